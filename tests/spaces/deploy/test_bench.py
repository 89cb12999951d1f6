"""The side-by-side comparison."""

from __future__ import annotations

import itertools
import json
import math
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from spaces.codegen.executable import compile_module, compile_plainly
from spaces.deploy import bench as bench_module
from spaces.deploy.bench import Side, bench, errors, spread, take_rounds
from spaces.frontends.inputs import make_inputs
from spaces.frontends.model import Model, load_model
from spaces.lowering.lower import lower
from tests.needed import needed_package
from tuner.request.model_spec import ModelSpec

EXAMPLES = Path(__file__).parents[3] / "examples"
LLVM = '{"kind":"llvm","num-cores":1}'


class Bed:
    """A clock that moves when sides run, and a diary of who ran.

    Where cool-downs take no time, all times are exact.
    """

    def __init__(self, *, cools: bool = False) -> None:
        self.now = 0.0
        self.cools = cools
        self.diary: list[str] = []

    def side(self, name: str, run_s: float, limit_s: float = 1e9) -> Side:
        def run() -> None:
            self.diary.append(name)
            self.now += run_s

        return Side(name, run, limit_s)

    def rounds(self, sides: list[Side], rounds: int, budget_s: float = math.inf) -> None:
        def clock() -> float:
            return self.now

        def sleep(time_s: float) -> None:
            self.now += time_s if self.cools else 0.0

        take_rounds(sides, rounds, budget_s=budget_s, clock=clock, sleep=sleep)


def test_rounds_take_one_sample_of_each_side_in_turning_order() -> None:
    bed = Bed()
    a, b = bed.side("a", 1.0), bed.side("b", 2.0)
    bed.rounds([a, b], 4)
    assert bed.diary == list("ab" + "abbaabba")
    assert a.samples_s == [1.0] * 4
    assert b.samples_s == [2.0] * 4


def test_a_fast_side_is_warmed_up_and_runs_often_enough_for_its_clock() -> None:
    bed = Bed()
    side = bed.side("a", 0.001)
    bed.rounds([side], 2)
    warming, sampled = 150, 20
    assert len(bed.diary) == pytest.approx(2 + 2 * (warming + sampled), abs=4)
    assert side.samples_s == pytest.approx([0.001] * 2)


def test_a_slow_side_gets_fewer_samples_but_at_least_one() -> None:
    bed = Bed()
    slow, slower, fast = bed.side("s", 4.0, 10.0), bed.side("t", 60.0, 10.0), bed.side("f", 0.01)
    bed.rounds([slow, slower, fast], 10)
    assert [len(s.samples_s) for s in (slow, slower, fast)] == [2, 1, 10]


def counts(*sides: Side) -> list[int]:
    return [len(side.samples_s) for side in sides]


def test_a_side_hundreds_of_times_slower_gets_fewer_rounds_within_the_budget() -> None:
    bed = Bed()
    untuned, tuned, peer = bed.side("u", 2.0), bed.side("t", 0.004), bed.side("o", 0.005)
    bed.rounds([untuned, tuned, peer], 10, budget_s=20.0)
    assert counts(untuned, tuned, peer) == [6, 10, 10]
    assert 15.0 < bed.now <= 20.0
    turns = [name for name, _ in itertools.groupby(bed.diary[5:])]
    between = "".join(turns).strip("u").split("u")
    assert all(between), "its rounds are spread over those of the others"


def test_a_slow_side_has_a_few_samples_wherever_they_fit() -> None:
    bed = Bed()
    slow, fast = bed.side("s", 4.0), bed.side("f", 0.01)
    bed.rounds([slow, fast], 10, budget_s=17.5)
    assert counts(slow, fast)[0] == 3
    assert counts(slow, fast)[1] >= 3
    assert spread(slow.samples_s) == 0.0
    assert bed.now <= 17.5


def test_one_run_beyond_the_budget_is_the_sample_and_the_others_have_time_of_their_own() -> None:
    bed = Bed()
    endless, fast = bed.side("e", 50.0), bed.side("f", 0.01)
    bed.rounds([endless, fast], 10, budget_s=10.0)
    assert endless.samples_s == [50.0]
    assert bed.diary.count("e") == 1
    assert counts(fast) == [10]


def test_sides_of_one_speed_share_a_budget_that_is_too_small_alike() -> None:
    bed = Bed()
    sides = [bed.side(name, 1.0) for name in "abc"]
    bed.rounds(sides, 10, budget_s=16.0)
    assert counts(*sides) == [4, 4, 4]


def test_a_machine_that_becomes_slow_does_not_make_the_comparison_long() -> None:
    bed = Bed()
    side = bed.side("a", 1.0)

    def run() -> None:
        bed.now += 1.0 if bed.now < 1.0 else 5.0

    side.run = run
    bed.rounds([side], 10, budget_s=12.0)
    assert side.samples_s == [5.0, 5.0, 5.0]


@given(
    # Rounding decides nothing: half a second may be slow or not, and no sum of these is a budget.
    runs_s=st.lists(
        st.integers(1, 1_000_000).filter(lambda n: n != 5_000).map(lambda n: n / 1e4),
        min_size=1,
        max_size=4,
    ),
    budget_s=st.integers(1_000, 1_000_000).map(lambda n: (n + 0.5) / 1e4),
)
@settings(max_examples=50)
def test_whatever_the_sides_all_have_a_sample_and_the_budget_holds(
    runs_s: list[float], budget_s: float
) -> None:
    bed = Bed(cools=True)
    sides = [bed.side(str(i), run_s) for i, run_s in enumerate(runs_s)]
    bed.rounds(sides, 10, budget_s=budget_s)
    tried_s = sum(side.run_s if side.slow else 2 * side.run_s for side in sides)
    assert min(counts(*sides)) >= 1
    for one, other in itertools.permutations(sides, 2):
        if one.cost_s < other.cost_s - 1e-9:  # of two that cost the same either may have more
            assert counts(one) >= counts(other)
    assert bed.now <= max(budget_s, tried_s + budget_s / len(sides)) + 1e-9


def test_errors_are_absolute_and_relative_to_the_largest_value() -> None:
    expected = [np.array([1.0, -4.0]), np.array([100.0])]
    assert errors(expected, expected) == (0.0, 0.0)
    got = [np.array([1.5, -4.0]), np.array([101.0])]
    assert errors(got, expected) == (1.0, 0.125)


def test_nan_on_one_side_only_is_an_infinite_error() -> None:
    nan, one = np.array([np.nan]), np.array([1.0])
    infinite = np.array([np.inf])
    assert errors([nan], [one]) == (math.inf, math.inf)
    assert errors([one], [nan])[0] == math.inf
    assert errors([nan], [nan]) == (0.0, 0.0)
    assert errors([infinite], [infinite]) == (0.0, 0.0)
    assert errors([one, one], [one]) == (math.inf, math.inf)
    assert errors([np.zeros((2, 1))], [np.zeros((1, 2))]) == (math.inf, math.inf)


def test_the_spread_is_the_distance_of_the_quartiles_over_the_median() -> None:
    assert spread([1, 2, 3, 4, 5]) == pytest.approx(2 / 3)
    assert spread([2.0]) == 0.0


def small_onnx(path: Path) -> Model:
    rng = np.random.default_rng(0)
    weight = numpy_helper.from_array(rng.standard_normal((8, 8)).astype("float32"), "w")
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["h"]),
        helper.make_node("Relu", ["h"], ["out"]),
    ]
    ends = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [4, 8]) for n in ("x", "out")]
    graph = helper.make_graph(nodes, "g", ends[:1], ends[1:], [weight])
    opset = [helper.make_opsetid("", 17)]
    onnx.save(helper.make_model(graph, opset_imports=opset, ir_version=8), str(path))
    return load_model(ModelSpec(str(path)))


def compared(model: Model, tuned: Any = None, inputs: Any = None) -> Any:
    os.environ.setdefault("TVM_NUM_THREADS", "1")
    lowered = lower(model.module, LLVM)
    plain, fast = compile_plainly(lowered, LLVM), compile_module(tuned or lowered, LLVM)
    return bench(model, plain, fast, inputs or make_inputs(model.inputs))


@pytest.mark.tvm
@pytest.mark.usefixtures("bench_without_pauses")
def test_an_onnx_model_is_compared_with_onnxruntime(tmp_path: Path) -> None:
    needed_package("onnxruntime")
    result = compared(small_onnx(tmp_path / "net.onnx"))
    assert result.reference == "onnxruntime"
    assert result.onnxruntime_ms > 0
    assert 0 <= result.max_rel_err < 1e-5
    assert set(result.spread) == {"untuned", "tuned", "onnxruntime"}
    assert result.samples == {"untuned": 10, "tuned": 10, "onnxruntime": 10}
    assert result.to_json()["tuned_ms"] == result.tuned_ms


@pytest.mark.tvm
@pytest.mark.usefixtures("bench_without_pauses")
def test_onnxruntime_has_the_targets_number_of_threads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    onnxruntime = needed_package("onnxruntime")
    given: list[tuple[int, int]] = []
    session = onnxruntime.InferenceSession

    def generic_of(path: str, options: Any, **more: Any) -> Any:
        given.append((options.intra_op_num_threads, options.inter_op_num_threads))
        return session(path, options, **more)

    monkeypatch.setattr(onnxruntime, "InferenceSession", generic_of)
    compared(small_onnx(tmp_path / "net.onnx"))
    assert given == [(json.loads(LLVM)["num-cores"], 1)]


@pytest.mark.tvm
@pytest.mark.usefixtures("bench_without_pauses")
def test_a_wrong_tuned_module_shows(tmp_path: Path) -> None:
    model = small_onnx(tmp_path / "net.onnx")
    (tmp_path / "other").mkdir()
    other = small_onnx(tmp_path / "other" / "net.onnx")
    proto = onnx.load(str(other.path))
    proto.graph.initializer[0].raw_data = np.ones((8, 8), "float32").tobytes()
    onnx.save(proto, str(other.path))
    wrong = load_model(ModelSpec(str(other.path)))
    assert compared(model, lower(wrong.module, LLVM)).max_rel_err > 0.1


@pytest.mark.tvm
@pytest.mark.usefixtures("bench_without_pauses")
def test_without_onnxruntime_the_unscheduled_program_is_the_reference(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    result = compared(small_onnx(tmp_path / "net.onnx"))
    assert (result.reference, result.onnxruntime_ms) == ("untuned", None)
    assert result.note == "onnxruntime is not installed"
    assert result.max_abs_err == 0


@pytest.mark.tvm
def test_a_function_has_no_peer() -> None:
    """With the pauses that users wait for."""
    model = load_model(ModelSpec(f"{EXAMPLES}/gemm.py:gemm", args=(("m", 8), ("n", 8))))
    result = compared(model)
    assert (result.reference, result.onnxruntime_ms, result.note) == ("untuned", None, "")
    assert set(result.spread) == {"untuned", "tuned"}
    assert result.samples == {"untuned": 10, "tuned": 10}


@pytest.mark.tvm
@pytest.mark.usefixtures("bench_without_pauses")
def test_a_reference_that_is_not_finite_is_pointed_out(tmp_path: Path) -> None:
    infinite = np.full((4, 8), np.inf, "float32")
    result = compared(small_onnx(tmp_path / "net.onnx"), inputs=[infinite])
    assert "NaN or infinity" in result.note


def test_a_peer_on_a_device_gets_its_inputs_once_and_leaves_its_outputs_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As ours do; here the device is the CPU, which onnxruntime always has."""
    onnxruntime = needed_package("onnxruntime")
    monkeypatch.setattr(bench_module, "_ORT_DEVICE", "cpu")
    small_onnx(tmp_path / "net.onnx")
    session = onnxruntime.InferenceSession(str(tmp_path / "net.onnx"))
    feed = {i.name: np.ones(i.shape, np.float32) for i in session.get_inputs()}
    sent: list[int] = []
    send = onnxruntime.OrtValue.ortvalue_from_numpy
    monkeypatch.setattr(
        onnxruntime.OrtValue,
        "ortvalue_from_numpy",
        lambda array, device: sent.append(array.nbytes) or send(array, device),
    )
    run = bench_module._bound_run(session, feed)
    for _ in range(3):
        run()
    assert sent == [array.nbytes for array in feed.values()]
