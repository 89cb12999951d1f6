"""What is reported of two runs, from runs that are made up."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from benchmarks.metaschedule_child import Order
from benchmarks.metaschedule_side import TheirRun, order_for, read_run
from benchmarks.our_side import OurRun, Winner, cpu_ms_per_trial
from benchmarks.process_tree import Seen, Watched
from benchmarks.race import Race
from benchmarks.suites import workload
from benchmarks.versus_metaschedule import row, summary, time_to_their_best
from tuner.candidate import Candidate, CandidateKind
from tuner.effort import Timing
from tuner.record import Measurement, Record, Status, Trial
from tuner.task import Task

TASK = Task("key", "gemm", "{}", "{}")
GEMM = workload("gemm")


def watched(started_s: float, wall_s: float, failure: str = "", errors: str = "") -> Watched:
    return Watched(failure, started_s, wall_s, "", errors, Seen())


def record(number: int, time_s: float, latency_s: float, status: Status = Status.OK) -> Record:
    candidate = Candidate(CandidateKind.TRACE, f'["{number}"]', "space")
    measurement = Measurement(status, (latency_s,), build_s=0.5, run_s=0.25)
    return Record(Trial("key", candidate), measurement, time_s=time_s)


def ours(records: list[Record], failure: str = "") -> OurRun:
    good = [r for r in records if r.latency_s]
    best = min(good, key=lambda r: r.latency_s or 0.0, default=None)
    winner = Winner(TASK, best, best.latency_s or 0.0) if best else None
    return OurRun(Path("run"), failure, watched(100.0, 40.0), tuple(records), winner, {})


def theirs(ran: list[tuple[float, list[float]]], failure: str = "", errors: str = "") -> TheirRun:
    order = Order("/f", "gemm", {}, "{}", 8, 0, 2, False, 120.0, 3, 7)
    events: list[dict[str, Any]] = [{"kind": "begun", "time_s": 1010.0}]
    events += [{"kind": "built", "time_s": 0.0, "programs": 8, "failed": 1, "error": "no"}]
    events += [
        {"kind": "ran", "time_s": at, "samples_s": samples, "error": "" if samples else "crash"}
        for at, samples in ran
    ]
    return read_run(order, watched(1000.0, 80.0, failure, errors), events)


OURS = ours([record(1, 110.0, 8e-3), record(2, 112.0, 4e-3), record(3, 120.0, 2e-3)])
THEIRS = theirs([(1040.0, [9e-3, 11e-3]), (1050.0, []), (1060.0, [6e-3, 6e-3])])
RACE = Race("", {"ours": [1e-3, 1e-3], "metaschedule": [2e-3, 2e-3]}, {})


def test_the_goal_is_their_winner_as_our_search_would_have_timed_it() -> None:
    """The search saw our winner at 2 ms; theirs takes twice as long, so 4 ms is as fast."""
    found = time_to_their_best(OURS, THEIRS, RACE.samples_s)
    assert found is not None
    assert found["goal_ms"] == pytest.approx(4.0)
    assert found["ours"] == {"from_start_s": 12.0, "from_first_trial_s": pytest.approx(2.75)}
    assert found["metaschedule"] == {"from_start_s": 60.0, "from_first_trial_s": 20.0}
    assert found["ratio"]["from_start"] == pytest.approx(12 / 60)
    assert found["ratio"]["from_start_to_their_end"] == pytest.approx(12 / 80)
    assert found["ratio"]["from_first_trial"] == pytest.approx(2.75 / 20)
    assert found["ratio"]["from_first_trial_to_their_end"] == pytest.approx(2.75 / 80)


def test_a_goal_that_was_never_reached_has_no_time_and_no_ratio() -> None:
    faster = {"ours": [2e-3], "metaschedule": [1e-3]}
    found = time_to_their_best(OURS, THEIRS, faster)
    assert found is not None
    assert found["ours"] == {"from_start_s": None, "from_first_trial_s": None}
    assert set(found["ratio"].values()) == {None}


def test_rates_count_what_was_built_and_run_and_nothing_else() -> None:
    made = row(GEMM, OURS, THEIRS, RACE)
    assert made["metaschedule"]["trials"] == 3
    assert made["metaschedule"]["trials_ok"] == 2
    assert made["metaschedule"]["failed_builds"] == 1
    assert made["metaschedule"]["errors"] == ["no", "crash"]
    assert made["rate_ratio"] == pytest.approx((3 / 40) / (3 / 80))
    assert made["wall_ratio"] == 0.5
    assert made["race"]["ratio"]["of_medians"] == 0.5


def test_a_side_that_failed_is_a_value_and_not_part_of_a_mean() -> None:
    crashed = theirs([], failure="killed by signal 11", errors="a\nb\nc\n")
    made = row(GEMM, OURS, crashed, Race("", {"ours": [1e-3]}, {"metaschedule": "no program"}))
    assert made["metaschedule"]["failure"] == "killed by signal 11: b / c"
    assert made["metaschedule"]["best_ms"] is None
    assert made["time_to_their_best"] is None
    both = summary([made, row(GEMM, OURS, THEIRS, RACE)])
    assert both["rows"] == 2
    assert both["latency_ratio"] == {"geometric_mean": pytest.approx(0.5), "of": 1}


def test_a_goal_that_was_never_reached_is_counted_with_all_the_time_there_was() -> None:
    slower = Race("", {"ours": [2e-3, 2e-3], "metaschedule": [1e-3, 1e-3]}, {})
    both = summary([row(GEMM, OURS, THEIRS, RACE), row(GEMM, OURS, THEIRS, slower)])
    found = both["time_to_their_best_from_start_ratio"]
    assert (found["of"], found["not_reached"]) == (1, 1)
    assert found["geometric_mean"] == pytest.approx(12 / 60)
    assert found["at_least"] == pytest.approx((12 / 60 * 40 / 60) ** 0.5)
    whole = both["time_to_their_best_from_start_to_their_end_ratio"]
    assert whole["at_least"] == pytest.approx((12 / 80 * 40 / 80) ** 0.5)


def test_ours_without_a_winner_is_a_value_too() -> None:
    made = row(GEMM, ours([], "not done after 5 s"), THEIRS, Race("ours has no winner", {}, {}))
    assert made["ours"]["failure"] == "not done after 5 s"
    assert made["ours"]["first_trial_s"] is None
    assert made["race"]["failure"] == "ours has no winner"


def test_the_other_side_samples_as_often_and_as_long() -> None:
    order = order_for(
        GEMM,
        Path("/f"),
        target="{}",
        cores=2,
        trials=8,
        seed=1,
        as_shipped=False,
        timing=Timing(total_s=0.020, min_samples=3),
    )
    assert (order.samples, order.sample_ms) == (3, 7)
    assert Order.from_json(order.to_json()) == order


def test_cpu_time_from_trial_33_on_leaves_out_the_start() -> None:
    times = [float(n) for n in range(100, 143)]
    spent = [
        {"search actor": 1.0, "space child": 2.0},
        {"search actor": 20.0, "space child": 40.0, "builder child": 1.0},
        {"search actor": 20.1, "space child": 40.4, "builder child": 3.0},
    ]
    seen = Seen(times_s=[99.0, 131.9, 141.9], cpu_s=spent)
    per_trial = cpu_ms_per_trial(seen, times)
    assert per_trial["from_33"] == pytest.approx(
        {
            "orchestration": 10.0,
            "search": 40.0,
            "search actor": 10.0,
            "space child": 40.0,
            "builder child": 200.0,
        }
    )
    assert per_trial["whole"]["search"] == pytest.approx(40.4e3 / 43)
    assert "from_33" not in cpu_ms_per_trial(seen, times[:33])
