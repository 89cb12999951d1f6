"""The micro-kernel template for contractions: any setting computes what the program computes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from spaces.check.reference import reference
from spaces.codegen.artifact import build_artifact, load_kernel
from spaces.codegen.prepack import packs
from spaces.design_space.knob_space import KnobSpace
from spaces.design_space.point import Point
from spaces.design_space.realize import realize
from spaces.ir import tvm_compat
from spaces.ir.schedules import InvalidCandidate, code_hash, task_module
from spaces.lowering.extract_tasks import task_of
from spaces.targets.target import resolve_target
from spaces.templates.base import Template
from spaces.templates.contraction.match import match_contraction
from spaces.templates.contraction.template import contraction_templates
from tests.contracts.programs import write_down
from tests.few_examples import examples
from tuner.candidate import Draft, knobs_of
from tuner.task import Task

pytestmark = pytest.mark.tvm

long = pytest.mark.long
CPU = resolve_target("llvm", cores=2)
Array = np.ndarray[Any, Any]
Tensors = list[Any]


def tensor(name: str, *shape: int, dtype: str = "float32") -> Any:
    from tvm import te

    return te.placeholder(shape, dtype, name=name)


def program_task(tensors: Sequence[Any], *, constants: Sequence[int] = ()) -> Task:
    """The task of a program, made of its inputs and outputs.

    Args:
        constants: positions of inputs that are known ahead.
    """
    from tvm import te

    function = te.create_prim_func(list(tensors))
    if constants:
        function = function.with_attr(tvm_compat.LAYOUT_FREE, list(constants))
    return task_of(function, CPU, name="program")


def templates_for(task: Task) -> list[Template]:
    return contraction_templates(task, match_contraction(task))


def matmul(a: Any, b: Any, *, ta: bool = False, tb: bool = False) -> Any:
    """Product of matrices; leading dimensions are a batch."""
    from tvm import te

    *batch, m, k = (int(d) for d in a.shape)
    m, k = (k, m) if ta else (m, k)
    n = int(b.shape[-2 if tb else -1])
    step = te.reduce_axis((0, k), "k")

    def element(*index: Any) -> Any:
        *outer, i, j = index
        left = a(*outer, step, i) if ta else a(*outer, i, step)
        right = outer[: len(b.shape) - 2]
        return te.sum(left * (b(*right, j, step) if tb else b(*right, step, j)), step)

    return te.compute((*batch, m, n), element, name="matmul")


def conv2d(data: Any, weight: Any, layout: str, *, stride: int, pad: int, **more: int) -> Any:
    from tvm import topi

    kernel = "HWIO" if layout == "NHWC" else "OIHW"
    options = {"dilation": 1, "groups": 1, **more}
    return topi.nn.conv(
        data,
        weight,
        stride,
        pad,
        options["dilation"],
        options["groups"],
        layout,
        kernel,
        str(data.dtype),
    )


SIZE = st.sampled_from([1, 2, 3, 4, 5, 7, 8, 11, 13, 16, 17, 24, 32, 33, 48, 63])
FEW = st.integers(1, 3)
DTYPE = st.sampled_from(["float32", "float32", "float64"])


def hard_swish(x: Any) -> Any:
    from tvm import topi

    return topi.multiply(x, topi.divide(topi.clip(topi.add(x, 3.0), 0.0, 6.0), 6.0))


def silu(x: Any) -> Any:
    from tvm import topi

    return topi.multiply(x, topi.sigmoid(x))


def clip(x: Any) -> Any:
    from tvm import topi

    return topi.clip(x, -0.5, 0.75)


@st.composite
def epilogue(draw: Any, inputs: Tensors, out: Any, column: int) -> Tensors:
    """The program's tensors with some of what usually follows: bias, residual, activation."""
    from tvm import topi

    dtype, shape = str(out.dtype), [int(d) for d in out.shape]
    tensors = list(inputs)
    if (bias := draw(st.sampled_from(["none", "none", "full", "short"]))) != "none":
        wide = [d if i == column else 1 for i, d in enumerate(shape)]
        wide = wide[column:] if bias == "short" else wide
        tensors.append(tensor("bias", *wide, dtype=dtype))
        out = topi.add(out, tensors[-1])
    if draw(st.booleans()):
        tensors.append(tensor("rest", *shape, dtype=dtype))
        out = topi.add(out, tensors[-1])
    last = draw(st.sampled_from([lambda x: x, topi.nn.relu, hard_swish, silu, clip]))
    return [*tensors, last(out)]


@st.composite
def products(draw: Any) -> Tensors:
    """Products of matrices, batched or not, in all transposes; a fused operation before some."""
    from tvm import topi

    m, n, k, dtype = draw(SIZE), draw(SIZE), draw(SIZE), draw(DTYPE)
    ta, tb = draw(st.booleans()), draw(st.booleans())
    kind = draw(st.sampled_from(["plain", "batch", "dense", "heads"]))
    batch = {"plain": [], "heads": [draw(FEW), draw(FEW)]}.get(kind, [draw(FEW)])
    a = tensor("a", *batch, *((k, m) if ta else (m, k)), dtype=dtype)
    shared = [] if kind == "dense" else batch
    b = tensor("b", *shared, *((n, k) if tb else (k, n)), dtype=dtype)
    before = topi.nn.relu(a) if draw(st.booleans()) else a
    out = matmul(before, b, ta=ta, tb=tb)
    return draw(epilogue([a, b], out, len(out.shape) - 1))


@st.composite
def convolutions(draw: Any) -> Tensors:
    """Convolutions, plain, pointwise, depthwise and grouped, in both layouts."""
    layout, dtype = draw(st.sampled_from(["NHWC", "NCHW"])), draw(DTYPE)
    n, h, w = draw(st.integers(1, 2)), draw(st.integers(5, 15)), draw(st.integers(5, 19))
    kernel = draw(st.sampled_from([1, 1, 2, 3]))
    kind = draw(st.sampled_from(["plain", "plain", "depthwise", "grouped"]))
    c, f = draw(SIZE), draw(SIZE)
    groups = 1
    if kind == "depthwise":
        groups, f, inside = c, c, 1
    elif kind == "grouped":
        groups = draw(st.integers(2, 4))
        inside, c, f = draw(st.integers(2, 9)), 0, groups * draw(st.integers(2, 20))
        c = groups * inside
    else:
        inside = c
    shapes = {
        "NHWC": ((n, h, w, c), (kernel, kernel, inside, f)),
        "NCHW": ((n, c, h, w), (f, inside, kernel, kernel)),
    }[layout]
    data, weight = tensor("data", *shapes[0], dtype=dtype), tensor("w", *shapes[1], dtype=dtype)
    out = conv2d(
        data,
        weight,
        layout,
        stride=draw(st.integers(1, 2)),
        pad=draw(st.integers(0, 1)),
        dilation=draw(st.sampled_from([1, 1, 2])),
        groups=groups,
    )
    return draw(epilogue([data, weight], out, layout.index("C")))


@st.composite
def transposed(draw: Any) -> Tensors:
    """Transposed convolutions."""
    from tvm import topi

    c, f, size, stride = draw(SIZE), draw(SIZE), draw(st.integers(3, 9)), draw(st.integers(1, 2))
    data, weight = tensor("data", 1, c, size, size), tensor("w", c, f, 4, 4)
    steps, pads = (stride, stride), (1, 1)
    out = topi.nn.conv2d_transpose_nchw(data, weight, steps, pads, "float32", (0, 0))
    return [data, weight, out]


def check(task: Task, point: Point) -> None:
    """Build and run a point, weights packed ahead, and compare with the unscheduled program."""
    import tvm

    kernel = load_kernel(build_artifact(point.schedule.mod, CPU))
    for known in reference(task_module(task.module), task.key).cases:
        tensors = [tvm.runtime.tensor(known.fresh(i)) for i in range(len(known.arguments))]
        kernel.module["main"](*kernel.arguments(tensors, tvm.cpu()))
        for position in known.outputs:
            wrong = known.wrong(position, tensors[position].numpy())
            assert wrong is None, (wrong, point.candidate.space, knobs_of(point.candidate))


def drawn_point(task: Task, template: Template, seed: int) -> Point:
    """A setting of a template that TVM carries out, any feasible one equally likely."""
    space = KnobSpace(task, template)
    ranked = space.ranked
    assert ranked, "a template without a feasible setting"
    return write_down(space, ranked[seed % len(ranked)])


PROGRAMS = st.one_of(products(), convolutions(), convolutions(), transposed())
SLOW = {"deadline": None, "suppress_health_check": list(HealthCheck)}


@settings(max_examples=examples(25), **SLOW)
@given(PROGRAMS, st.sets(st.sampled_from([0, 1, 1, 1])), st.integers(0, 2**31), st.data())
def test_any_setting_computes_what_the_program_computes(
    tensors: Tensors, constants: set[int], seed: int, data: Any
) -> None:
    task = program_task(tensors, constants=sorted(constants - {0}))
    templates = templates_for(task)
    if not templates:
        assert np.prod([int(d) for d in tensors[-1].shape]) < 8, "too small to be worth one"
        return
    point = drawn_point(task, data.draw(st.sampled_from(templates)), seed)
    check(task, point)
    assert code_hash(realize(task, point.candidate).mod) == point.code_hash


def test_a_small_product_in_double_precision_has_a_feasible_setting() -> None:
    a, b = tensor("a", 2, 2, 1, 1, dtype="float64"), tensor("b", 2, 2, 1, 2, dtype="float64")
    (template,) = templates_for(program_task([a, b, matmul(a, b)]))
    assert KnobSpace(program_task([a, b, matmul(a, b)]), template).ranked


def test_small_work_may_stay_with_one_thread_and_large_work_is_shared_out() -> None:
    """Sharing out takes microseconds, as long as the whole of a small product."""
    a, b = tensor("a", 48, 5, 16), tensor("b", 48, 16, 64)
    task = program_task([a, b, matmul(a, b)])
    (template,) = templates_for(task)
    space = KnobSpace(task, template)
    for threads in (0, 1):
        knobs = next(k for k in space.ranked if k["parallel"] == threads and k["outer_block"] < 48)
        point = write_down(space, knobs)
        assert ("T.parallel" in point.schedule.mod.script()) == bool(threads)
        check(task, point)
    c, d = tensor("c", 256, 256), tensor("d", 256, 256)
    (large, *_) = templates_for(program_task([c, d, matmul(c, d)]))
    assert "parallel" not in large.choices


@settings(max_examples=examples(10), **SLOW)
@given(PROGRAMS, st.integers(0, 2**31))
def test_what_is_near_a_setting_is_one_too(tensors: Tensors, seed: int) -> None:
    task = program_task(tensors, constants=[1])
    for template in templates_for(task)[:1]:
        space = KnobSpace(task, template)
        parent = space.realize_draft(Draft(task.key, 1, seed)).candidate
        near = knobs_of(space.realize_draft(Draft(task.key, 2, seed, parent)).candidate)
        assert near is not None
        assert near != knobs_of(parent)
        try:
            point = write_down(space, near)
        except InvalidCandidate:
            continue
        check(task, point)


def _conv(
    layout: str, size: int, c: int, f: int, kernel: int, *, pad: int = 0, **more: int
) -> Callable[[], Tensors]:
    def make() -> Tensors:
        inside = c // more.get("groups", 1)
        shapes = {
            "NHWC": ((1, size, size, c), (kernel, kernel, inside, f)),
            "NCHW": ((1, c, size, size), (f, inside, kernel, kernel)),
        }[layout]
        data, weight = tensor("data", *shapes[0]), tensor("w", *shapes[1])
        stride = more.get("stride", 1)
        rest = {k: v for k, v in more.items() if k != "stride"}
        return [data, weight, conv2d(data, weight, layout, stride=stride, pad=pad, **rest)]

    return make


def _product(a: Sequence[int], b: Sequence[int], **how: bool) -> Callable[[], Tensors]:
    def make() -> Tensors:
        left, right = tensor("a", *a), tensor("b", *b)
        return [left, right, matmul(left, right, **how)]

    return make


def _heads() -> Tensors:
    """Queries times keys, each with its heads split off and moved outside."""
    from tvm import topi

    q, keys = tensor("q", 1, 20, 48), tensor("k", 1, 20, 48)
    parts = [topi.transpose(topi.reshape(x, (1, 20, 3, 16)), (0, 2, 1, 3)) for x in (q, keys)]
    return [q, keys, matmul(parts[0], parts[1], tb=True)]


def _ended(make: Callable[[], Tensors], end: Callable[[Any], Any]) -> Callable[[], Tensors]:
    """A program followed by an operation on each element of its result."""

    def make_both() -> Tensors:
        *inputs, out = make()
        return [*inputs, end(out)]

    return make_both


FOUND: dict[str, Callable[[], Tensors]] = {
    "square": _product((64, 64), (64, 64)),
    "both-transposed": _product((31, 45), (67, 31), ta=True, tb=True),
    "matrix-times-vector": _product((1, 200), (200, 100)),
    "dense-on-three": _product((2, 19, 40), (40, 33)),
    "heads": _heads,
    "hard-swish-of-1640": _ended(_product((157, 48), (48, 1640)), hard_swish),
    "silu-of-1640": _ended(_product((157, 48), (48, 1640)), silu),
    "hard-swish-channels-21": _ended(_conv("NHWC", 13, 32, 21, 1), hard_swish),
    "channels-255": _conv("NHWC", 13, 32, 255, 1),
    "channels-21": _conv("NHWC", 13, 32, 21, 1),
    "channels-10": _conv("NHWC", 8, 16, 10, 3, pad=1),
    "width-prime": _conv("NHWC", 37, 16, 32, 3, pad=1),
    "stem": _conv("NHWC", 30, 3, 32, 7, pad=3, stride=2),
    "grouped": _conv("NHWC", 14, 68, 68, 1, groups=4),
    "grouped-nchw": _conv("NCHW", 14, 64, 64, 3, pad=1, groups=4),
    "depthwise": _conv("NHWC", 14, 32, 32, 3, pad=1, groups=32),
    "depthwise-58": _conv("NHWC", 14, 58, 58, 3, pad=1, groups=58),
    "depthwise-nchw": _conv("NCHW", 14, 32, 32, 3, pad=1, groups=32),
    "depthwise-nchw-strided": _conv("NCHW", 15, 32, 32, 3, pad=1, groups=32, stride=2),
    "nchw-width-prime": _conv("NCHW", 37, 16, 32, 3, pad=1),
}


@pytest.mark.parametrize("name", sorted(FOUND))
def test_a_template_is_found_and_its_best_guess_is_right(name: str) -> None:
    task = program_task(FOUND[name](), constants=[1])
    templates = templates_for(task)
    assert templates
    for template in templates:
        check(task, write_down(KnobSpace(task, template), KnobSpace(task, template).ranked[0]))


def _softmaxed() -> Tensors:
    from tvm import topi

    a, b = tensor("a", 32, 32), tensor("b", 32, 32)
    return [a, b, topi.nn.softmax(matmul(a, b))]


def _two_results() -> Tensors:
    from tvm import topi

    a, b = tensor("a", 32, 32), tensor("b", 32, 32)
    product = matmul(a, b)
    return [a, b, topi.nn.relu(product), topi.exp(product)]


def _result_in_between() -> Tensors:
    from tvm import topi

    a, b = tensor("a", 32, 32), tensor("b", 32, 32)
    product = matmul(a, b)
    return [a, b, product, topi.nn.relu(product)]


def _two_products() -> Tensors:
    a, b, c = (tensor(name, 32, 32) for name in "abc")
    return [a, b, c, matmul(matmul(a, b), c)]


def _long_integers() -> Tensors:
    a, b = tensor("a", 32, 32, dtype="int64"), tensor("b", 32, 32, dtype="int64")
    return [a, b, matmul(a, b)]


def _one_matrix() -> Tensors:
    a = tensor("a", 32, 32)
    return [a, matmul(a, a, tb=True)]


def _elementwise() -> Tensors:
    from tvm import topi

    a = tensor("a", 32, 32)
    return [a, topi.nn.relu(a)]


@pytest.mark.parametrize(
    "make",
    [
        _softmaxed,
        _two_results,
        _result_in_between,
        _two_products,
        _long_integers,
        _one_matrix,
        _elementwise,
    ],
)
def test_what_is_no_contraction_of_a_known_form_has_no_template(
    make: Callable[[], Tensors],
) -> None:
    assert templates_for(program_task(make())) == []


@pytest.mark.parametrize("name", ["square", "channels-255", "grouped", "depthwise-58"])
def test_constant_weights_are_packed_ahead(name: str) -> None:
    task = program_task(FOUND[name](), constants=[1])
    seen = 0
    for template in templates_for(task):
        space = KnobSpace(task, template)
        for knobs in space.ranked[:: max(1, len(space.ranked) // 8)]:
            if not knobs["pack_columns"]:
                continue
            point = write_down(space, knobs)
            if not packs(point.schedule.mod["main"]):
                continue
            kernel = load_kernel(build_artifact(point.schedule.mod, CPU))
            assert kernel.packing is not None
            assert kernel.packing.sources == (1,)
            assert tvm_compat.PREPROC in point.candidate.trace
            seen += 1
    assert seen or name == "depthwise-58"


def test_padding_of_constant_weights_costs_nothing_at_run_time() -> None:
    task = program_task(_product((40, 61), (61, 99))(), constants=[1])
    (template, *_) = templates_for(task)
    space = KnobSpace(task, template)
    padded = [k for k in space.ranked if k["pack_columns"] and k["unroll"] == 4]
    point = write_down(space, padded[0])
    blocks = point.schedule.get_child_blocks(point.schedule.get_sblock("root"))
    readers = [
        point.schedule.get(b)
        for b in blocks
        if any(str(r.source.name) == "b" for r in point.schedule.get(b).reads)
    ]
    assert all(b.annotations.get(tvm_compat.PREPROC) for b in readers)
    check(task, point)


@pytest.mark.parametrize("seed", [0, 97, *(pytest.param(n, marks=long) for n in (194, 291))])
def test_a_product_is_what_numpy_says(seed: int) -> None:
    import tvm

    task = program_task(_product((2, 23, 37), (37, 29))())
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((2, 23, 37)), rng.standard_normal((37, 29))
    inputs = [a.astype("float32"), b.astype("float32")]
    for template in templates_for(task):
        point = drawn_point(task, template, seed)
        kernel = load_kernel(build_artifact(point.schedule.mod, CPU))
        blank = np.full((2, 23, 29), 7, "float32")
        tensors = [tvm.runtime.tensor(x) for x in (*inputs, blank)]
        kernel.module["main"](*tensors)
        np.testing.assert_allclose(tensors[2].numpy(), a @ b, rtol=1e-4, atol=1e-4)
