"""What a user may ask for; how long a run may take."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from tuner.effort import EFFORTS
from tuner.errors import UsageError
from tuner.request.model_spec import ModelSpec
from tuner.request.options import MAX_KERNELS, TuneOptions
from tuner.request.target_text import is_emulated
from tuner.runs.folder import Manifest

NORMAL, QUICK = EFFORTS["normal"], EFFORTS["quick"]
HOUR_S = 3600.0
MODEL = ModelSpec("m.onnx")


def options(
    trials: int | None = None, time_budget_s: float | None = None, effort: str = "normal"
) -> TuneOptions:
    return TuneOptions(
        ModelSpec("m.onnx"), trials=trials, time_budget_s=time_budget_s, effort=EFFORTS[effort]
    )


@pytest.mark.parametrize("until", [-0.1, 1.5, "3 percent", None])
def test_until_is_a_share(until: object) -> None:
    with pytest.raises(UsageError, match="until="):
        TuneOptions(MODEL, until=until)  # type: ignore[arg-type]


def test_without_a_word_the_effort_says_how_long() -> None:
    assert options().limit_s == NORMAL.time_budget_s
    assert options(effort="quick").limit_s == QUICK.time_budget_s


def test_what_the_user_said_holds_whatever_the_trials() -> None:
    for trials in (None, 3, 20_000):
        assert options(trials, 2 * HOUR_S).limit_s == 2 * HOUR_S


def test_who_asks_for_few_trials_has_the_efforts_time() -> None:
    assert options(3).limit_s == options(NORMAL.trials_per_task).limit_s == NORMAL.time_budget_s


@pytest.mark.parametrize("effort", EFFORTS)
def test_who_asks_for_many_trials_gets_them(effort: str) -> None:
    per_trial_s = EFFORTS[effort].time_budget_s / EFFORTS[effort].trials_per_task
    found_s = options(20_000, effort=effort).limit_s
    assert found_s == pytest.approx(20_000 * per_trial_s)
    assert found_s > 20_000 * 5, "slow kernels on one device take less"


def test_finalists_have_their_share_of_the_time_that_was_said_or_is_the_efforts() -> None:
    assert options().finalists_s == pytest.approx(360.0)
    assert options(time_budget_s=10 * HOUR_S).finalists_s == pytest.approx(HOUR_S)
    assert options(time_budget_s=60.0).finalists_s == pytest.approx(6.0)
    assert options(20_000).finalists_s == options().finalists_s


MODEL = ModelSpec("model.onnx")


@pytest.mark.parametrize("number", [0, -1])
def test_a_budget_without_a_kernel_is_refused(number: int) -> None:
    with pytest.raises(UsageError) as refused:
        TuneOptions(MODEL, max_kernels=number)
    assert f"max_kernels={number}" in str(refused.value)
    assert "\n" not in str(refused.value)


def test_one_kernel_will_do() -> None:
    assert TuneOptions(MODEL, max_kernels=1).max_kernels == 1


def test_a_run_that_says_nothing_of_kernels_has_the_usual_number() -> None:
    """It was begun before there was a choice."""
    assert Manifest("m", "hash", "{}").max_kernels == MAX_KERNELS
    assert Manifest("m", "hash", "{}", {"max_kernels": None}).max_kernels == MAX_KERNELS
    assert Manifest("m", "hash", "{}", {"max_kernels": 2}).max_kernels == 2


def test_what_a_run_says_of_kernels_is_not_replaced_by_something_else() -> None:
    assert Manifest("m", "hash", "{}", {"max_kernels": 0}).max_kernels == 0


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("[1]", "are no arguments"),
        ("{most: 64}", "is no JSON"),
        ('{"no name": 1}', "are no arguments"),
    ],
)
def test_arguments_of_a_space_are_a_dictionary(given: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        TuneOptions(MODEL, space="mine.py", space_arguments=given)


def test_arguments_are_for_a_space_that_is_named() -> None:
    with pytest.raises(UsageError, match="for a space that is named, not given"):
        TuneOptions(MODEL, space_arguments='{"most": 64}')


@pytest.mark.parametrize("given", [{"rows": 4, "most": 64}, '{"rows":4,"most":64}'])
def test_arguments_of_a_space_are_kept_as_one_text(given: object) -> None:
    options = TuneOptions(MODEL, space="mine.py", space_arguments=given)  # type: ignore[arg-type]
    assert options.space_arguments == '{"most": 64, "rows": 4}'


@pytest.mark.parametrize("target", ["auto", "cuda", '{"kind":"cuda"}'])
def test_the_emulated_device_is_asked_for_by_its_name(target: str) -> None:
    asked = TuneOptions(MODEL, target=target, measure="emulated")
    assert is_emulated(asked.target)
    assert json.loads(asked.target)["arch"] == "sm_80"
    assert not is_emulated(TuneOptions(MODEL, target=target).target)
    assert replace(asked, trials=3).target == asked.target


def test_the_emulated_device_is_the_one_that_the_target_says() -> None:
    asked = TuneOptions(MODEL, target='{"kind":"cuda","arch":"sm_90a"}', measure="emulated")
    assert json.loads(asked.target)["arch"] == "sm_90a"


@pytest.mark.parametrize(
    ("target", "measure", "said"),
    [
        ("llvm", "emulated", "--measure emulated is for CUDA targets"),
        ('{"kind":"llvm"}', "emulated", "--measure emulated is for CUDA targets"),
        ("cuda", "emulate", "unknown measure 'emulate': write device or emulated"),
    ],
)
def test_no_other_device_is_emulated(target: str, measure: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        TuneOptions(MODEL, target=target, measure=measure)


FAST, COLD = ["cuda", "gpu", "fast-math"], ["cuda", "gpu", "cold-l2"]


@pytest.mark.parametrize("target", ["auto", "cuda"])
def test_fast_math_and_a_cold_cache_are_marks_of_a_target(target: str) -> None:
    fast = TuneOptions(MODEL, target=target, fast_math=True)
    assert json.loads(fast.target) == {"kind": "cuda", "keys": FAST}
    cold = TuneOptions(MODEL, target=target, l2="cold")
    assert json.loads(cold.target) == {"kind": "cuda", "keys": COLD}
    rounded = TuneOptions(MODEL, target=target, tf32=True)
    assert json.loads(rounded.target) == {"kind": "cuda", "keys": ["cuda", "gpu", "tf32"]}
    both = TuneOptions(MODEL, target=target, l2="cold", fast_math=True)
    assert json.loads(both.target)["keys"] == ["cuda", "gpu", "cold-l2", "fast-math"]
    assert TuneOptions(MODEL, target=both.target).target == both.target
    assert replace(both, trials=3).target == both.target


def test_the_emulated_device_multiplies_in_tf32_too() -> None:
    emulated = TuneOptions(MODEL, measure="emulated", tf32=True)
    assert json.loads(emulated.target)["keys"] == ["cuda", "gpu", "emulated", "tf32"]


def test_without_them_a_target_is_what_it_was() -> None:
    for target in ("auto", "cuda", "llvm", '{"arch": "sm_90", "kind": "cuda"}'):
        assert TuneOptions(MODEL, target=target).target == target
    assert TuneOptions(MODEL, l2="warm").target == "cuda"
    said = '{"arch": "sm_90", "keys": ["gpu", "cuda"], "kind": "cuda"}'
    assert json.loads(TuneOptions(MODEL, target=said, l2="warm").target) == {
        "arch": "sm_90",
        "kind": "cuda",
    }


def test_a_policy_that_is_said_goes_before_the_target_s() -> None:
    cold = TuneOptions(MODEL, target='{"arch":"sm_90","kind":"cuda"}', l2="cold", fast_math=True)
    warm = replace(cold, l2="warm")
    assert json.loads(warm.target) == {"arch": "sm_90", "kind": "cuda", "keys": FAST}


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"target": "llvm", "fast_math": True}, "--fast-math is for CUDA targets"),
        ({"target": "llvm", "tf32": True}, "--tf32 is for CUDA targets"),
        ({"target": '{"kind":"llvm"}', "l2": "cold"}, "--l2 cold is for CUDA targets"),
        ({"target": "llvm", "l2": "warm"}, "--l2 warm is for CUDA targets"),
        ({"l2": "hot"}, "unknown L2 policy 'hot': write warm or cold"),
        ({"measure": "emulated", "fast_math": True}, "--fast-math and --l2 are for devices"),
        ({"measure": "emulated", "l2": "cold"}, "--fast-math and --l2 are for devices"),
        ({"measure": "emulated", "l2": "warm"}, "--fast-math and --l2 are for devices"),
        (
            {"measure": "emulated", "target": '{"kind":"cuda","keys":["fast-math"]}'},
            "--fast-math and --l2 are for devices",
        ),
        ({"target": '{"kind":"llvm","keys":["cold-l2"]}'}, "cold-l2 is for CUDA targets"),
    ],
)
def test_what_only_a_device_of_cuda_has_is_refused_elsewhere_in_a_line(
    options: dict[str, Any], said: str
) -> None:
    with pytest.raises(UsageError, match=said) as refused:
        TuneOptions(MODEL, **options)
    assert "\n" not in str(refused.value)
