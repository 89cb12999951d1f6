"""The memory-bound template: every setting computes what numpy computes, whatever the shape."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from spaces.design_space.knob_space import KnobSpace
from spaces.design_space.realize import realize
from spaces.ir.schedules import code_hash
from spaces.templates.memory.template import memory_template
from spaces.templates.registry import templates_of
from tests.contracts.programs import gemm_task, write_down
from tests.few_examples import examples
from tuner.candidate import Draft, knobs_of
from tuner.task import Task

pytestmark = pytest.mark.tvm

LLVM = '{"kind":"llvm","num-cores":2}'
Array = np.ndarray[Any, Any]
Body = Callable[..., Any]


def tasks_of(
    shapes: Sequence[Sequence[int]], body: Body, dtype: str = "float32", target: str = LLVM
) -> list[Task]:
    """Tasks of a one-function model, lowered as users' models are.

    Args:
        body: of a block builder and one variable for each shape.
    """
    from tvm import relax

    from spaces.lowering.extract_tasks import extract
    from spaces.lowering.lower import lower

    builder = relax.BlockBuilder()
    variables = [
        relax.Var(f"x{i}", relax.TensorType(list(shape), dtype)) for i, shape in enumerate(shapes)
    ]
    with builder.function("main", variables):
        with builder.dataflow():
            out = builder.emit_output(builder.normalize(body(builder, *variables)))
        builder.emit_func_output(out)
    return extract(lower(builder.get(), target), target)


def outputs(module: Any, inputs: Sequence[Array], shape: Sequence[int], dtype: str) -> Array:
    """What a scheduled program computes; its last parameter is its output."""
    import tvm

    from spaces.passes.cpu_passes import before_compile
    from spaces.targets.target import parse_target

    library = tvm.compile(before_compile(module), target=parse_target(CPU))
    blank = np.full(shape, 77).astype(dtype)
    tensors = [tvm.runtime.tensor(a) for a in (*inputs, blank)]
    library["main"](*tensors)
    result: Array = tensors[-1].numpy()
    return result


def host_target() -> str:
    from spaces.targets.target import resolve_target

    return resolve_target("llvm", cores=2)


CPU = host_target()


def softmax(x: Array, axis: int) -> Array:
    shifted = np.exp(x - x.max(axis, keepdims=True))
    result: Array = shifted / shifted.sum(axis, keepdims=True)
    return result


def layer_norm(x: Array) -> Array:
    mean = x.mean(-1, keepdims=True)
    variance = ((x - mean) ** 2).mean(-1, keepdims=True)
    result: Array = (x - mean) / np.sqrt(variance + 1e-5)
    return result


def _ops() -> Any:
    from tvm.relax import op

    return op


def _pooled(x: Any, name: str, layout: str, **options: Any) -> Any:
    """Windows of 3 by 3, two steps apart."""
    return getattr(_ops().nn, name)(x, (3, 3), (2, 2), (1, 1, 1, 1), layout=layout, **options)


def pooled(x: Array, over: Callable[..., Array], blank: float) -> Array:
    """What `_pooled` does with channels first."""
    around = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)), constant_values=blank)
    windows = np.lib.stride_tricks.sliding_window_view(around, (3, 3), (2, 3))
    return over(windows[:, :, ::2, ::2], axis=(-1, -2))


# Name, what it does in Relax, what it does in numpy; of one tensor.
CASES: dict[str, tuple[Body, Callable[[Array], Array]]] = {
    "softmax-last": (lambda b, x: _ops().nn.softmax(x, -1), lambda x: softmax(x, -1)),
    "softmax-first": (lambda b, x: _ops().nn.softmax(x, 0), lambda x: softmax(x, 0)),
    "log-softmax": (
        lambda b, x: _ops().nn.log_softmax(x, -1),
        lambda x: np.log(softmax(x, -1)),
    ),
    "layer-norm": (
        lambda b, x, g, o: _ops().nn.layer_norm(x, g, o, axes=[-1], epsilon=1e-5),
        layer_norm,
    ),
    "sum-last": (lambda b, x: _ops().sum(x, [-1]), lambda x: x.sum(-1)),
    "sum-first": (lambda b, x: _ops().sum(x, [0]), lambda x: x.sum(0)),
    "sum-all": (lambda b, x: _ops().sum(x), lambda x: np.asarray(x.sum())),
    "max-middle": (lambda b, x: _ops().max(x, [1]), lambda x: x.max(1)),
    "mean-kept": (
        lambda b, x: _ops().mean(x, [0, 2], keepdims=True),
        lambda x: x.mean((0, 2), keepdims=True),
    ),
    "centred": (
        lambda b, x: _ops().subtract(x, b.emit(_ops().mean(x, [1], keepdims=True))),
        lambda x: x - x.mean(1, keepdims=True),
    ),
    "relu-chain": (
        lambda b, x: _ops().nn.relu(b.emit(_ops().add(x, b.emit(_ops().multiply(x, x))))),
        lambda x: np.maximum(x + x * x, 0),
    ),
    "silu": (
        lambda b, x: _ops().multiply(x, b.emit(_ops().sigmoid(x))),
        lambda x: x / (1 + np.exp(-x)),
    ),
    "reversed": (
        lambda b, x: _ops().permute_dims(x, [2, 1, 0]),
        lambda x: x.transpose(2, 1, 0),
    ),
    "rolled": (
        lambda b, x: _ops().permute_dims(x, [1, 2, 0]),
        lambda x: x.transpose(1, 2, 0),
    ),
    "doubled-last": (
        lambda b, x: _ops().concat([x, b.emit(_ops().negative(x))], 2),
        lambda x: np.concatenate([x, -x], 2),
    ),
    "doubled-first": (
        lambda b, x: _ops().concat([x, b.emit(_ops().negative(x))], 0),
        lambda x: np.concatenate([x, -x], 0),
    ),
    "joined-last": (
        lambda b, *xs: _ops().concat(list(xs), 2),
        lambda x: np.concatenate([x] * 8, 2),
    ),
    "padded": (
        lambda b, x: _ops().nn.pad(x, [1, 0, 0, 2, 3, 1]),
        lambda x: np.pad(x, ((1, 0), (0, 2), (3, 1))),
    ),
    "reshaped": (
        lambda b, x: _ops().add(b.emit(_ops().reshape(x, [-1])), b.emit(_ops().reshape(x, [-1]))),
        lambda x: 2 * x.reshape(-1),
    ),
    "max-pool-nchw": (
        lambda b, x: _pooled(x, "max_pool2d", "NCHW"),
        lambda x: pooled(x, np.max, -np.inf),
    ),
    "max-pool-nhwc": (
        lambda b, x: _pooled(x, "max_pool2d", "NHWC"),
        lambda x: np.moveaxis(pooled(np.moveaxis(x, 3, 1), np.max, -np.inf), 1, 3),
    ),
    "mean-pool-nhwc": (
        lambda b, x: _pooled(x, "avg_pool2d", "NHWC", count_include_pad=True),
        lambda x: np.moveaxis(pooled(np.moveaxis(x, 3, 1), np.mean, 0), 1, 3),
    ),
    "argmax": (lambda b, x: _ops().argmax(x, 1), lambda x: x.argmax(1)),
}
_NO_INTEGERS = (
    "softmax-last",
    "softmax-first",
    "log-softmax",
    "layer-norm",
    "mean-kept",
    "centred",
    "silu",
    "padded",
    "max-pool-nchw",
    "max-pool-nhwc",
    "mean-pool-nhwc",
)
SIZES = st.sampled_from([1, 2, 3, 5, 7, 8, 13, 16, 17, 31, 32, 33, 48, 67, 128])
FLOATS = ("float32", "float32", "float64", "float16")


def tolerance(dtype: str) -> float:
    return {"float16": 2e-2, "float32": 2e-5, "float64": 1e-5}.get(dtype, 0)


@pytest.mark.slow
@settings(max_examples=examples(30), deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_any_setting_computes_what_numpy_computes(data: Any) -> None:
    name = data.draw(st.sampled_from(sorted(CASES)))
    kinds = FLOATS if name in _NO_INTEGERS else (*FLOATS, "int32", "int8")
    dtype = data.draw(st.sampled_from(kinds if name != "layer-norm" else ("float32",)))
    shape = [data.draw(SIZES) for _ in range(3)]
    seed = data.draw(st.integers(0, 2**31 - 1))
    body, numpy_body = CASES[name]
    shape = [1, *shape] if "pool" in name else shape
    x = np.random.default_rng(seed).integers(-20, 20, shape)
    x = (x / 8).astype(dtype) if "float" in dtype else (x % 3).astype(dtype)
    inputs = [x] * (8 if name == "joined-last" else 1)
    if name == "layer-norm":
        inputs += [np.ones(shape[-1], dtype), np.zeros(shape[-1], dtype)]
    (task,) = tasks_of([i.shape for i in inputs], body, dtype, CPU)
    template = memory_template(task)
    assert template is not None
    space = KnobSpace(task, template)
    point = write_down(space, space.ranked[seed % len(space.ranked)])
    want = numpy_body(x.astype("float64") if "float" in dtype else x)
    out = "int64" if name == "argmax" else dtype
    want = want if "float" in dtype else want.astype(out)  # small integers wrap
    replayed = realize(task, point.candidate).mod
    got = outputs(replayed, inputs, want.shape, out)
    error, size = np.abs(got.astype(float) - want.astype(float)), np.abs(want.astype(float))
    allowed = tolerance(dtype) * (size + size.max() + 1) * _terms(name, shape)
    assert (error <= allowed).all(), knobs_of(point.candidate)
    assert code_hash(replayed) == point.code_hash


def _terms(name: str, shape: Sequence[int]) -> float:
    return float(np.sqrt(np.prod(shape))) if name.startswith(("sum", "mean")) else 4.0


def without_rows() -> Iterator[Any]:
    """Programs and shapes, a third of them each time."""
    names = ("softmax-last", "sum-all", "relu-chain")
    shapes = ((1,), (17,), (1, 1, 1), (1, 1000), (1, 1, 67))
    for (row, name), (column, shape) in product(enumerate(names), enumerate(shapes)):
        yield pytest.param(name, shape, marks=() if row == column % 3 else (pytest.mark.long,))


@pytest.mark.parametrize(("name", "shape"), [*without_rows()])
def test_every_setting_of_a_program_without_rows_works(name: str, shape: Sequence[int]) -> None:
    body, numpy_body = CASES[name]
    x = np.random.default_rng(1).standard_normal(shape).astype("float32")
    (task,) = tasks_of([shape], body, "float32", CPU)
    template = memory_template(task)
    assert template is not None
    space = KnobSpace(task, template)
    want = numpy_body(x.astype("float64"))
    for knobs in space.ranked[:: max(1, len(space.ranked) // 4)]:
        got = outputs(write_down(space, knobs).schedule.mod, [x], want.shape, "float32")
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


def test_a_tensor_without_dimensions() -> None:
    (task,) = tasks_of([()], lambda b, x: _ops().exp(x), "float32", CPU)
    template = memory_template(task)
    assert template is not None
    point = KnobSpace(task, template).realize_draft(Draft(task.key, 0, 1))
    got = outputs(realize(task, point.candidate).mod, [np.float32(0.5).reshape(())], (), "float32")
    assert got == pytest.approx(np.exp(0.5), rel=1e-6)


def test_rows_of_a_gather() -> None:
    from tvm import relax

    table = np.random.default_rng(2).standard_normal((50, 37)).astype("float32")
    index = np.array([3, 49, 0, 3, 17])
    constant = relax.const(index)
    tasks = tasks_of([table.shape], lambda b, x: _ops().take(x, constant, 0), "float32", CPU)
    template = memory_template(tasks[0])
    assert template is not None
    space = KnobSpace(tasks[0], template)
    for knobs in space.ranked[::7]:
        module = write_down(space, knobs).schedule.mod
        kind = str(module["main"].params[1].ty.dtype)
        got = outputs(module, [table, index.astype(kind)], (5, 37), "float32")
        np.testing.assert_array_equal(got, table[index])


def test_all_settings_of_a_softmax_are_feasible_and_few() -> None:
    (task,) = tasks_of([(3, 40, 21)], CASES["softmax-last"][0], "float32", CPU)
    template = memory_template(task)
    assert template is not None
    space = KnobSpace(task, template)
    assert 10 < len(space.ranked) < 500
    hashes = {write_down(space, knobs).code_hash for knobs in space.ranked}
    assert len(hashes) > len(space.ranked) // 2


def test_the_estimate_prefers_vectors_and_exponentials_done_once() -> None:
    (task,) = tasks_of([(64, 1024)], CASES["softmax-last"][0], "float32", CPU)
    template = memory_template(task)
    assert template is not None
    ranked = KnobSpace(task, template).ranked
    assert ranked[0]["vectors"] > 0
    assert ranked[0]["keep"] == 1
    assert ranked[-1]["vectors"] == 0


def test_a_matrix_product_is_none_of_its_business() -> None:
    assert memory_template(gemm_task(CPU)) is None


def test_programs_with_a_sum_that_is_not_known_are_left_to_the_rules() -> None:
    """`cumsum` is a call to a library, and a scan is no plain loop nest."""
    import tvm
    from tvm.script import tirx as T

    from spaces.lowering.extract_tasks import task_of

    @T.prim_func(s_tir=True)
    def scan(x: T.Buffer((16,), "float32"), y: T.Buffer((16,), "float32")) -> None:  # type: ignore[valid-type]
        for i in T.serial(16):
            with T.sblock("scan"):
                v = T.axis.opaque(16, i)
                y[v] = x[v] + T.if_then_else(v > 0, y[v - 1], T.float32(0))

    assert isinstance(scan, tvm.tirx.PrimFunc)
    assert memory_template(task_of(scan, CPU, name="scan")) is None


def test_templates_are_tried_in_order() -> None:
    (task,) = tasks_of([(8, 33)], CASES["sum-last"][0], "float32", CPU)
    assert [t.name for t in templates_of(task)] == ["kernel:memory-4"]


@pytest.mark.timeout(60)
def test_tiles_of_pieces_that_are_no_whole_vectors_compile() -> None:
    """TVM tells pieces apart at compile time only in a lane that is not tiled: it did not end."""
    from spaces.ir.schedules import new_schedule, task_module

    pieces = [np.full((1, 6, 14), n, "float32") for n in range(8)]
    join = lambda b, *xs: _ops().concat(list(xs), 2)  # noqa: E731
    (task,) = tasks_of([p.shape for p in pieces], join, "float32", CPU)
    template = memory_template(task)
    assert template is not None
    setting = {name: values[0] for name, values in template.choices.items()}
    for tile, vectors in [(16, 1), (32, 1), (32, 4), (64, 2)]:
        schedule = new_schedule(task_module(task.module))
        template.apply(schedule, setting | {"fused": 2, "tile": tile, "vectors": vectors})
        got = outputs(schedule.mod, pieces, (1, 6, 112), "float32")
        assert (got == np.concatenate(pieces, 2)).all(), (tile, vectors)


def test_writing_candidates_down_leaves_the_task_as_it_was() -> None:
    """All schedules of a task start from one module in memory."""
    from spaces.ir.schedules import task_module

    (task,) = tasks_of([(1, 1, 33)], CASES["softmax-last"][0], "float32", CPU)
    template = memory_template(task)
    assert template is not None
    space = KnobSpace(task, template)
    before = code_hash(task_module(task.module))
    for knobs in space.ranked[:8]:
        write_down(space, knobs)
    assert code_hash(task_module(task.module)) == before
