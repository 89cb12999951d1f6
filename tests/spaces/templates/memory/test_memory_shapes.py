"""The memory-bound template on symbolic dimensions: one schedule, right for every shape."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from spaces.design_space.knob_space import KnobSpace
from spaces.design_space.realize import realize
from spaces.ir.schedules import code_hash
from spaces.templates.base import ShapedTemplate
from spaces.templates.memory.shapes import stand_in
from spaces.templates.memory.template import MemoryTemplate, memory_template
from spaces.templates.plain_loops import plain_loops
from spaces.templates.registry import templates_of
from tests.contracts.programs import write_down
from tests.few_examples import examples
from tests.spaces.after_pass import modules_after
from tests.spaces.templates.memory.test_memory_template import CPU, layer_norm, softmax
from tuner.candidate import Draft, knobs_of
from tuner.dynamic.shapes import joint
from tuner.task import Shapes, Task

pytestmark = pytest.mark.tvm

Array = np.ndarray[Any, Any]
Body = Callable[..., Any]
Dim = int | str
SEQUENCE = joint([("T", tuple(range(1, 129)))])
BOTH = joint([("B", (1, 4)), ("T", (1, 16, 100))])


def task_of_shapes(
    dims: Sequence[Sequence[Dim]], body: Body, shapes: Shapes, dtype: str = "float32"
) -> Task:
    """The task of a one-function model whose named dimensions stay symbolic.

    Args:
        body: of a block builder and one variable for each of `dims`.
    """
    from tvm import relax
    from tvm.tirx import Var

    from spaces.lowering.extract_tasks import extract
    from spaces.lowering.lower import lower

    known = {name: Var(name, "int64") for name, _ in shapes[0][0]}
    builder = relax.BlockBuilder()
    variables = [
        relax.Var(f"x{i}", relax.TensorType([_dim(d, known) for d in each], dtype))
        for i, each in enumerate(dims)
    ]
    with builder.function("main", variables):
        with builder.dataflow():
            out = builder.emit_output(builder.normalize(body(builder, *variables)))
        builder.emit_func_output(out)
    (task,) = extract(lower(builder.get(), CPU), CPU, None, shapes)
    return task


def _dim(dim: Dim, known: Mapping[str, Any]) -> Any:
    """A dimension; `16T` is 16 times T."""
    if isinstance(dim, int):
        return dim
    times, name = dim[:-1], dim[-1]
    return int(times) * known[name] if times else known[name]


def sized(dims: Sequence[Dim], values: Mapping[str, int]) -> list[int]:
    """Dimensions as numbers."""
    return [d if isinstance(d, int) else int(d[:-1] or 1) * values[d[-1]] for d in dims]


def compiled(module: Any) -> Any:
    import tvm

    from spaces.passes.cpu_passes import before_compile
    from spaces.targets.target import parse_target

    return tvm.compile(before_compile(module), target=parse_target(CPU))["main"]


def computed(function: Any, inputs: Sequence[Array], shape: Sequence[int]) -> Array:
    """What a program computes; what it does not write is NaN."""
    import tvm

    out = tvm.runtime.tensor(np.full(shape, np.nan, inputs[0].dtype))
    function(*(tvm.runtime.tensor(a) for a in inputs), out)
    result: Array = out.numpy()
    return result


def _op() -> Any:
    from tvm.relax import op

    return op


def _gelu(b: Any, x: Any) -> Any:
    half = b.emit(_op().sigmoid(x))
    return _op().multiply(x, half)


# Name: dimensions, what it does in Relax, what it does in numpy.
CASES: dict[str, tuple[Sequence[Dim], Body, Callable[[Array], Array]]] = {
    "softmax over the sequence": (
        (3, "T", "T"),
        lambda b, x: _op().nn.softmax(x, -1),
        lambda x: softmax(x, -1),
    ),
    "softmax across the sequence": (
        ("T", 20),
        lambda b, x: _op().nn.softmax(x, 0),
        lambda x: softmax(x, 0),
    ),
    "softmax of symbolic rows": (
        ("T", 33),
        lambda b, x: _op().nn.softmax(x, -1),
        lambda x: softmax(x, -1),
    ),
    "layer norm of symbolic rows": (
        ("T", 48),
        lambda b, x, g, o: _op().nn.layer_norm(x, g, o, axes=[-1], epsilon=1e-5),
        layer_norm,
    ),
    "layer norm over the sequence": (
        (5, "T"),
        lambda b, x, g, o: _op().nn.layer_norm(x, g, o, axes=[-1], epsilon=1e-5),
        layer_norm,
    ),
    "sum over the sequence": (
        (7, "T"),
        lambda b, x: _op().sum(x, [-1]),
        lambda x: x.sum(-1),
    ),
    "sum of columns": (("T", 40), lambda b, x: _op().sum(x, [0]), lambda x: x.sum(0)),
    "sum of symbolic columns": ((9, "T"), lambda b, x: _op().sum(x, [0]), lambda x: x.sum(0)),
    "sum of all": (("T", 24), lambda b, x: _op().sum(x), lambda x: np.asarray(x.sum())),
    "maximum in the middle": (
        (2, "T", 19),
        lambda b, x: _op().max(x, [1]),
        lambda x: x.max(1),
    ),
    "chain": (("T", 50), _gelu, lambda x: x / (1 + np.exp(-x))),
    "chain of symbolic rows": ((6, "T"), _gelu, lambda x: x / (1 + np.exp(-x))),
    "heads apart": (
        (1, "T", 3, 16),
        lambda b, x: _op().permute_dims(x, [0, 2, 1, 3]),
        lambda x: x.transpose(0, 2, 1, 3),
    ),
    "heads apart and turned": (
        (1, "T", 3, 16),
        lambda b, x: _op().permute_dims(x, [0, 2, 3, 1]),
        lambda x: x.transpose(0, 2, 3, 1),
    ),
    "turned back": (
        (3, 16, "T"),
        lambda b, x: _op().permute_dims(x, [2, 0, 1]),
        lambda x: x.transpose(2, 0, 1),
    ),
    "centred": (
        (4, "T"),
        lambda b, x: _op().subtract(x, b.emit(_op().mean(x, [1], keepdims=True))),
        lambda x: x - x.mean(1, keepdims=True),
    ),
    "padded at the end of rows": (
        ("T", 48),
        lambda b, x: _op().nn.pad(x, [0, 0, 3, 13]),
        lambda x: np.pad(x, ((0, 0), (3, 13))),
    ),
    "padded at the end of the sequence": (
        ("T", 48),
        lambda b, x: _op().nn.pad(x, [1, 5, 0, 0]),
        lambda x: np.pad(x, ((1, 5), (0, 0))),
    ),
    "multiples of the sequence": (
        ("16T", 12),
        lambda b, x: _op().nn.softmax(x, -1),
        lambda x: softmax(x, -1),
    ),
}
LENGTHS = (1, 2, 3, 7, 15, 16, 17, 31, 32, 33, 61, 64, 65, 127, 128, 129, 300, 347)


def parameters_of(
    name: str, values: Mapping[str, int], rng: np.random.Generator, dtype: str
) -> list[Array]:
    """Inputs of a case."""
    shape = sized(CASES[name][0], values)
    inputs = [rng.standard_normal(shape).astype(dtype)]
    if name.startswith("layer norm"):
        inputs += [np.ones(shape[-1], dtype), np.zeros(shape[-1], dtype)]
    return inputs


def task_named(name: str, dtype: str = "float32") -> Task:
    dims, body, _ = CASES[name]
    more = [[dims[-1]], [dims[-1]]] if name.startswith("layer norm") else []
    return task_of_shapes([dims, *more], body, SEQUENCE, dtype)


def template_of(task: Task) -> MemoryTemplate:
    template = memory_template(task)
    assert isinstance(template, MemoryTemplate)
    return template


def check(name: str, function: Any, lengths: Sequence[int], dtype: str = "float32") -> None:
    """A compiled case against numpy."""
    rng, error = np.random.default_rng(3), 5e-2 if dtype == "float16" else 2e-4
    for length in lengths:
        inputs = parameters_of(name, {"T": length}, rng, dtype)
        want = CASES[name][2](inputs[0].astype("float64"))
        got = computed(function, inputs, want.shape)
        np.testing.assert_allclose(got, want, rtol=error, atol=error, err_msg=f"T={length}")


def best_settings() -> Iterator[Any]:
    """Programs, and which of their settings: one of each each time, in turn."""
    for (place, name), (number, which) in product(
        enumerate(sorted(CASES)), enumerate(("best", "serial", "wide"))
    ):
        marks = () if place % 3 == number else (pytest.mark.long,)
        yield pytest.param(name, which, marks=marks)


@pytest.mark.parametrize(("name", "which"), [*best_settings()])
def test_the_best_setting_is_right_for_every_length(name: str, which: str) -> None:
    """Of all, of those for one thread, and of those with the longest vectors."""
    task = task_named(name)
    space = KnobSpace(task, template_of(task))
    longest = max(space.template.choices["vectors"])
    among = {
        "best": space.ranked,
        "serial": (k for k in space.ranked if k["vectors"] and not k["fused"]),
        "wide": (k for k in space.ranked if k["vectors"] == longest),
    }[which]
    check(name, compiled(write_down(space, next(iter(among))).schedule.mod), LENGTHS)


@pytest.mark.slow
@settings(max_examples=examples(30), deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_any_setting_is_right_for_any_length(data: Any) -> None:
    name = data.draw(st.sampled_from(sorted(CASES)))
    lengths = data.draw(st.lists(st.integers(1, 400), min_size=4, max_size=4))
    dtypes = ("float32", "float64", "float16")
    # Sums of halves are too coarse to be compared, and layer norms are in float32.
    coarse = name.startswith(("sum", "layer norm", "centred"))
    dtype = data.draw(st.sampled_from(dtypes[: 1 if name.startswith("layer") else 3 - coarse]))
    task = task_named(name, dtype)
    space = KnobSpace(task, template_of(task))
    point = write_down(space, data.draw(st.sampled_from(space.ranked)))
    replayed = realize(task, point.candidate).mod
    assert code_hash(replayed) == point.code_hash, knobs_of(point.candidate)
    check(name, compiled(replayed), [*lengths, 1, 16], dtype)


def test_two_symbolic_dimensions() -> None:
    task = task_of_shapes([("B", "T", "T")], lambda b, x: _op().nn.softmax(x, -1), BOTH)
    space = KnobSpace(task, template_of(task))
    rng = np.random.default_rng(4)
    for knobs in space.ranked[:: max(1, len(space.ranked) // 5)]:
        function = compiled(write_down(space, knobs).schedule.mod)
        for batch, length in ((1, 1), (3, 17), (5, 64), (2, 131)):
            x = rng.standard_normal((batch, length, length)).astype("float32")
            got = computed(function, [x], x.shape)
            np.testing.assert_allclose(got, softmax(x, -1), rtol=2e-4, atol=1e-6)


def test_a_template_speaks_for_each_shape() -> None:
    task = task_named("softmax over the sequence")
    template = template_of(task)
    assert isinstance(template, ShapedTemplate)
    space = KnobSpace(task, template)
    knobs = space.ranked[0]
    costs = template.shape_costs_s(knobs)
    assert costs.shape == (128,)
    assert np.isfinite(costs).all()
    assert costs[0] < costs[64] < costs[127]
    columns = {name: np.array([value]) for name, value in knobs.items()}
    at = [float(template.at(i).costs_s(columns)[0]) for i, _ in task.shapes]
    np.testing.assert_allclose(at, costs)
    assert float(template.costs_s(columns)[0]) == pytest.approx(costs[127])
    assert template.layout(knobs) == ""


def test_short_sequences_are_left_to_one_core() -> None:
    task = task_named("softmax over the sequence")
    space = KnobSpace(task, template_of(task))
    assert space.at((("T", 1),)).ranked[0]["fused"] == 0
    assert space.at((("T", 128),)).ranked[0]["vectors"] > 0


def test_points_carry_what_the_search_for_kernels_asks_for() -> None:
    task = task_named("layer norm of symbolic rows")
    space = KnobSpace(task, template_of(task))
    point = space.at(task.shapes[5][0]).realize_draft(Draft(task.key, 1, 7))
    assert point.on_shapes is not None
    assert len(point.on_shapes.costs_s) == 128
    kernel = space.kernel(point.candidate)
    assert kernel is not None
    assert kernel.on_shapes == point.on_shapes
    assert point.features is not None
    assert kernel.features == tuple(point.features.tolist())


def test_the_main_part_of_a_symbolic_row_is_vectors() -> None:
    """A vector loop with a predicate for every lane would have been written out lane by lane."""
    task = task_named("chain of symbolic rows")
    space = KnobSpace(task, template_of(task))
    knobs = next(k for k in space.ranked if k["vectors"] == 1)
    text = str(lowered(write_down(space, knobs).schedule.mod))
    assert "T.Ramp(" in text or ":T.int64(16)" in text or "+ T.int64(16)]" in text


def lowered(module: Any) -> Any:
    """A program as it is once its loops are vectors."""
    return modules_after("VectorizeLoop", module, CPU)[0]


def test_dimensions_are_stood_for_by_primes_of_their_own() -> None:
    values = stand_in(joint([("B", (1, 64)), ("T", (5, 128)), ("U", (128,))]))
    assert values == {"B": 67, "T": 131, "U": 137}
    assert stand_in(()) == {}


def test_the_template_is_chosen_for_symbolic_programs() -> None:
    for name in ("softmax over the sequence", "heads apart"):
        assert [t.name for t in templates_of(task_named(name))] == ["kernel:memory-4"]


def test_a_program_of_no_known_form_is_parallel_and_in_vectors() -> None:
    """A convolution of symbolic batch."""
    cases: list[tuple[Sequence[Sequence[Dim]], Body, Callable[..., Array]]] = [
        (
            [("T", 3, 10, 16), (8, 3, 3, 3)],
            lambda b, x, w: _op().nn.conv2d(x, w),
            _convolved,
        ),
    ]
    rng = np.random.default_rng(5)
    for dims, body, numpy_body in cases:
        task = task_of_shapes(dims, body, SEQUENCE)
        template = plain_loops(task)
        assert template is not None
        assert isinstance(template, ShapedTemplate)
        space = KnobSpace(task, template)
        assert "T.parallel" in str(write_down(space, space.ranked[0]).schedule.mod)
        for knobs in space.ranked[::5]:
            function = compiled(write_down(space, knobs).schedule.mod)
            for length in (1, 2, 17):
                inputs = [rng.standard_normal(sized(d, {"T": length})) for d in dims]
                want = numpy_body(*inputs)
                got = computed(function, [i.astype("float32") for i in inputs], want.shape)
                np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)


def _convolved(x: Array, w: Array) -> Array:
    windows = np.lib.stride_tricks.sliding_window_view(x, (3, 3), (2, 3))
    result: Array = np.einsum("nchwij,ocij->nohw", windows, w)
    return result
