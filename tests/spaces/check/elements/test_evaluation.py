"""Elements that are computed without the others are those of the whole output."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from spaces.check.compare import difference
from spaces.check.draws import Array
from spaces.check.elements.evaluation import Evaluation
from spaces.check.elements.stages import Unevaluable
from spaces.check.reference import reference
from spaces.check.sampled_program import SampledProgram
from spaces.ir.schedules import task_module
from tests.actors.gate_programs import PROGRAMS, known, module_of, tensor
from tests.few_examples import examples
from tests.in_a_line import make_or_refuse
from tests.spaces.lowering.drawn_programs import Drawn, programs
from tests.spaces.lowering.test_drawn_programs import with_tasks

pytestmark = [pytest.mark.tvm, pytest.mark.optimised]


def grid(shape: tuple[int, ...], seed: int, most: int = 6) -> tuple[Array, ...]:
    random = np.random.default_rng(seed)
    return tuple(np.unique(random.integers(0, n, most)) for n in shape)


def check_elements(module: Any, judge: Any, seed: int) -> None:
    """Values are within the bounds of the whole output's, and bounds are nearly the same."""
    program = SampledProgram(module["main"], judge.arguments, "seed")
    for case in judge.cases:
        wanted = {i: grid(want.shape, seed) for i, want in case.outputs.items()}
        for i, sample in program.samples(case.initial, wanted).items():
            want, bound = case.outputs[i][sample.where], case.bounds[i]
            assert (bound is None) == (sample.bound is None)
            if bound is None:
                assert difference(sample.want, want, None) is None
                continue
            assert difference(sample.want, want, bound[sample.where]) is None
            assert sample.bound is not None
            if sample.want.dtype.kind not in "iub":
                whole = bound[sample.where]
                assert (sample.bound <= 2 * whole).all()
                assert (whole <= 2 * sample.bound).all()
                assert np.median(sample.bound) == pytest.approx(np.median(whole), rel=0.3)


@pytest.mark.parametrize("name", [*PROGRAMS])
def test_they_are_those_of_the_whole_output(name: str) -> None:
    check_elements(module_of(name), known(name), 1)


@settings(
    max_examples=examples(60),
    suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow],
)
@given(programs(), st.integers(0, 1 << 20))
def test_of_whatever_program_they_are_right_or_refused(drawn: Drawn, seed: int) -> None:
    taken = make_or_refuse(lambda: with_tasks(drawn))
    for task in taken[1] if taken else ():
        module = task_module(task.module)
        try:
            SampledProgram(module["main"], (), "seed")
        except Unevaluable:
            continue
        judge = reference(module, task.key)
        try:
            check_elements(module, judge, seed)
        except Unevaluable:
            continue


def evaluated(made: list[Any], feeds: list[Array], *places: list[int]) -> Array:
    """Elements of the last of some tensors."""
    from tvm import te

    function = te.create_prim_func(made)
    at = tuple(np.array(indices) for indices in places)
    last = len(made) - 1
    return Evaluation(function).at(dict(enumerate(feeds)), {last: at})[last]


def test_a_padded_convolution_reads_nothing_outside() -> None:
    from tvm import topi

    a, w = tensor("a", 1, 2, 6, 6), tensor("w", 3, 2, 3, 3)
    random = np.random.default_rng(0)
    x, y = (random.random(shape, np.float32) for shape in ((1, 2, 6, 6), (3, 2, 3, 3)))
    got = evaluated(
        [a, w, topi.nn.conv2d_nchw(a, w, 1, 1, 1)], [x, y], [0], [0, 2], [0, 3, 5], [0, 5]
    )
    windows = np.lib.stride_tricks.sliding_window_view(
        np.pad(x[0], ((0, 0), (1, 1), (1, 1))), (3, 3), (1, 2)
    )
    want = np.einsum("cyxij,fcij->fyx", windows, y)
    assert got[0] == pytest.approx(want[np.ix_([0, 2], [0, 3, 5], [0, 5])], rel=1e-5)


def test_rows_may_be_named_by_another_tensor() -> None:
    from tvm import te

    table, rows = tensor("table", 9, 4), tensor("rows", 5, dtype="int32")
    taken = te.compute((5, 4), lambda i, j: table[rows[i], j] * 2.0)
    twice = te.compute((5, 4), lambda i, j: taken[i, j] + table[rows[4 - i], j])
    x, y = np.arange(36, dtype=np.float32).reshape(9, 4), np.array([8, 0, 3, 3, 1], np.int32)
    got = evaluated([table, rows, twice], [x, y], [0, 3], [1, 2])
    want = 2 * x[y] + x[y[::-1]]
    assert np.array_equal(got, want[np.ix_([0, 3], [1, 2])])


def test_another_shape_of_the_same_elements_needs_only_some() -> None:
    from tvm import te, topi

    a = tensor("a", 64, 48)
    doubled = te.compute((64, 48), lambda i, j: a[i, j] * 2.0)
    x = np.arange(64 * 48, dtype=np.float32).reshape(64, 48)
    made = [a, topi.reshape(topi.transpose(doubled), (6, 8, 64))]
    got = evaluated(made, [x], [5], [0, 7], [1, 63])
    assert np.array_equal(got, (2 * x.T).reshape(6, 8, 64)[np.ix_([5], [0, 7], [1, 63])])


def test_the_place_of_the_largest_is_found_beside_it() -> None:
    from tvm import topi

    random = np.random.default_rng(0)
    x = random.permutation(60).reshape(5, 12).astype(np.float32)
    a = tensor("a", 5, 12)
    assert np.array_equal(evaluated([a, topi.argmax(a, 1)], [x], [1, 4]), x.argmax(1)[[1, 4]])


def test_sums_are_added_up_in_their_type_and_order() -> None:
    from tvm import te

    a, k = tensor("a", 1, 5000, dtype="float16"), te.reduce_axis((0, 5000), "k")
    total = te.compute((1,), lambda i: te.sum(a[i, k], k))
    got = evaluated([a, total], [np.ones((1, 5000), np.float16)], [0])
    assert got[0] == 2048, "a half holds no odd numbers beyond, so that 1 is lost"


def test_integers_wrap() -> None:
    from tvm import te

    a = tensor("a", 3, dtype="int8")
    twice = te.compute((3,), lambda i: a[i] + a[i])
    got = evaluated([a, twice], [np.array([100, -100, 3], np.int8)], [0, 1, 2])
    assert got.tolist() == [-56, 56, 6]


def test_whole_numbers_are_divided_and_rounded_as_programs_do() -> None:
    from tvm import te, tirx

    kinds = [tirx.floordiv, tirx.floormod, tirx.truncdiv, tirx.truncmod]
    a, b = tensor("a", 4, dtype="int32"), tensor("b", 4, dtype="int32")
    x, y = np.array([7, -7, 7, -7], np.int32), np.array([2, 2, -2, -2], np.int32)

    def result(kind: Any) -> Array:
        made = te.compute((4,), lambda i: kind(a[i], b[i]))
        return evaluated([a, b, made], [x, y], [0, 1, 2, 3])

    found = [result(kind) for kind in kinds]
    assert [each.tolist() for each in found] == [
        [3, -4, -4, 3],
        [1, 1, -1, -1],
        [3, -3, -3, 3],
        [1, -1, 1, -1],
    ]


def refused(text: str) -> Any:
    return pytest.raises(Unevaluable, match=text)


def test_what_is_not_known_is_refused() -> None:
    from tvm import te, tirx, topi

    a = tensor("a", 8)
    running = topi.cumsum(tensor("c", 8, dtype="int32"), axis=0)
    x = np.zeros(8, np.float32)
    unknown = te.compute(
        (8,), lambda i: tirx.call_pure_extern("float32", "lgammaf", a[i]), name="out"
    )
    with refused("a call of"):
        evaluated([a, unknown], [x], [0])
    with refused(r"a \w+"):
        evaluated([*running.op.input_tensors, running], [x.astype(np.int32)], [0])


def test_old_contents_of_an_output_are_refused() -> None:
    from tvm.script import tirx as T

    @T.prim_func(s_tir=True)
    def add_to(A: T.Buffer((8,), "float32"), C: T.Buffer((8,), "float32")):
        for i in range(8):
            with T.sblock("C"):
                vi = T.axis.remap("S", [i])
                C[vi] = C[vi] + A[vi]

    @T.prim_func(s_tir=True)
    def some_of(A: T.Buffer((8,), "float32"), C: T.Buffer((8,), "float32")):
        for i in range(4):
            with T.sblock("C"):
                vi = T.axis.remap("S", [i])
                C[vi * 2] = A[vi]

    x = np.zeros(8, np.float32)
    with refused("read before"):
        Evaluation(add_to).at({0: x}, {1: (np.arange(8),)})
    with refused("not written"):
        Evaluation(some_of).at({0: x}, {1: (np.arange(8),)})
    assert Evaluation(some_of).at({0: x}, {1: (np.array([0, 6]),)})[1].tolist() == [0, 0]


def test_what_would_take_long_is_refused_before_it_does() -> None:
    from tvm import te

    from tests.actors.gate_programs import product

    long = 1 << 22
    function = te.create_prim_func(product("float32", "float32", "float32", long))
    one = np.float32(1)
    inputs = {0: np.broadcast_to(one, (24, long)), 1: np.broadcast_to(one, (long, 40))}
    with refused("long"):
        Evaluation(function).at(inputs, {2: (np.arange(2), np.arange(2))}, 1.0)


def test_one_program_is_computed_on_grids_of_every_kind() -> None:
    """Ends alone, one element, all of them."""
    case = known("f32").cases[0]
    evaluation = Evaluation(module_of("f32")["main"])
    feeds = {i: case.fresh(i) for i in range(2)}
    whole = case.outputs[2]
    rows, columns = whole.shape
    for places in ([[0, rows - 1], [0, columns - 1]], [[3], [5]], [range(rows), range(columns)]):
        at = tuple(np.array(indices) for indices in places)
        got = evaluation.at(feeds, {2: at})[2]
        assert difference(got, whole[np.ix_(*at)], case.bounds[2][np.ix_(*at)]) is None


def test_the_side_that_is_not_taken_may_read_anything() -> None:
    from tvm import te, tirx

    a = tensor("a", 6)
    zero = tirx.const(0.0, "float32")
    before = te.compute((6,), lambda i: tirx.Select(i > 0, a[i - 1], zero))
    after = te.compute((6,), lambda i: before[i] + tirx.if_then_else(i < 5, a[i + 1], zero))
    x = np.arange(1, 7, dtype=np.float32)
    assert evaluated([a, after], [x], [0, 3, 5]).tolist() == [2, 8, 5]
