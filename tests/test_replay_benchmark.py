"""Search policies on recorded spaces: the curves of today are those that were recorded.

Where the exact curves differ, the search, the session or the replay changed what it does. If that
was meant: `python -m benchmarks.replay --recordings DIR --golden tests/golden/replay-curves.json`
with the trials and seeds that the file names.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from benchmarks.replay.__main__ import compare, main
from benchmarks.replay.policies import EXACT, POLICIES, Curve, WarmStart, find_recordings, run
from tuner.errors import TunerError
from tuner.replay.recording import Recording, fingerprint, load

ROOT = Path(__file__).parents[1]
GOLDEN: dict[str, Any] = json.loads((ROOT / "tests/golden/replay-curves.json").read_text())
PATHS = find_recordings(ROOT / GOLDEN["folder"])
MOST_BYTES = 10_000_000


@pytest.fixture(scope="module")
def recordings() -> dict[str, Recording]:
    return {name: load(path) for name, path in PATHS.items()}


def test_the_curves_are_of_these_recordings() -> None:
    assert {p.name: fingerprint(p) for p in PATHS.values()} == GOLDEN["recordings"]


def test_all_recordings_together_are_small() -> None:
    assert sum(p.stat().st_size for p in PATHS.values()) <= MOST_BYTES


BLIND = {"batch-matmul", "conv-nchw-deep", "conv-nhwc"}
"""Recordings on which evolution is run each time, as random search is on the others."""


def policies_on_recordings() -> list[Any]:
    return [
        pytest.param(
            name,
            policy,
            marks=() if (name in BLIND) == (policy == "evolution-blind") else (pytest.mark.long,),
        )
        for name in sorted(GOLDEN["curves"])
        for policy in EXACT
    ]


@pytest.mark.parametrize(("name", "policy"), policies_on_recordings())
def test_exact_policies_do_what_they_did(
    name: str, policy: str, recordings: dict[str, Recording]
) -> None:
    recorded = GOLDEN["curves"][name][policy]
    curve = run(
        recordings[name], POLICIES[policy], WarmStart(recordings), trials=GOLDEN["trials"], seed=0
    )
    assert [list(step) for step in curve.steps] == recorded[0]


def test_golden_curves_only_fall_and_end_at_what_is_known() -> None:
    for of_task in GOLDEN["curves"].values():
        for curves in of_task.values():
            for curve in curves:
                ratios = [ratio for _, ratio in curve]
                assert ratios == sorted(ratios, reverse=True)
                assert ratios[-1] >= 1.0


def test_two_runs_of_a_learned_policy_are_the_same(recordings: dict[str, Recording]) -> None:
    few = {name: recordings[name] for name in sorted(recordings)[:3]}
    curves = [
        run(few[min(few)], POLICIES["evolution+base"], WarmStart(few), trials=40, seed=1)
        for _ in range(2)
    ]
    assert curves[0] == curves[1]


@pytest.mark.long
def test_what_is_learned_helps(recordings: dict[str, Recording]) -> None:
    """Bounds, since learned policies may differ a little from one processor to the next."""
    names = sorted(recordings)[:2]
    policies = ["random", "evolution", "evolution+base"]
    report = compare(recordings, names, policies, trials=128, seeds=3)
    means = report["geometric_mean_of_medians"]
    needed = {policy: mean["trials_to_within_5_percent"] for policy, mean in means.items()}
    assert needed["evolution"] < needed["random"]
    assert needed["evolution+base"] < needed["random"]


def test_a_base_model_never_saw_the_task_it_is_judged_on(recordings: dict[str, Recording]) -> None:
    one = min(recordings)
    alone = WarmStart({one: recordings[one]})
    with pytest.raises(TunerError, match="other tasks"):
        alone.base(one)
    assert alone.seeds(recordings[one].task).known == ()


class TestCurve:
    CURVE = Curve(((1, 3.0), (4, 1.2), (9, 1.05), (20, 1.0)))

    def test_trials_to_within_5_percent_include_the_bound(self) -> None:
        assert self.CURVE.trials_to(1.05) == 9
        assert Curve(((1, 1.0501),)).trials_to(1.05) == math.inf

    def test_the_best_so_far(self) -> None:
        assert [self.CURVE.at(n) for n in (1, 3, 4, 100)] == [3.0, 3.0, 1.2, 1.0]
        assert Curve(()).at(5) == math.inf


def test_the_command_prints_one_object(capsys: pytest.CaptureFixture[str]) -> None:
    folder, name = str(ROOT / GOLDEN["folder"]), min(PATHS)
    arguments = ["--recordings", folder, "--task", name, "--policy", "random"]
    assert main([*arguments, "--trials", "20", "--seeds", "2", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    shown = report["tasks"][name]["random"]
    assert shown["trials_to_within_5_percent"] <= 21
    assert list(shown["curve"]) == ["8", "16", "20"]


@pytest.mark.parametrize("arguments", [["--policy", "magic"], ["--recordings", "/nonexistent"]])
def test_a_bad_request_is_refused(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert caught.value.code == 2
    assert capsys.readouterr().err
