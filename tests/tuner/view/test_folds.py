"""What a store tells people, as views and as `--json`."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.candidate import Candidate, CandidateKind
from tuner.errors import TunerError
from tuner.precision import Perplexity, Precision, PrecisionError
from tuner.record import Measurement, Record, Status, Trial
from tuner.storage.base import begin_session
from tuner.storage.facts import Defaults, SessionAlive, SessionEnded, Sizes, Tasks
from tuner.storage.sqlite_store import MemoryStore
from tuner.task import SpaceSource, Task
from tuner.view.as_json import best_json, status_json
from tuner.view.folds import view_run, view_winners
from tuner.view.progress import fold
from tuner.view.spaces import fruitless


def candidate(n: int) -> Candidate:
    return Candidate(CandidateKind.TRACE, f"[{n}]", "space")


DEFAULT = 0
MATMUL = Task("m", "matmul", "", "", weight=3.0, flops=2e9)
SOFTMAX = Task("s", "softmax", "", "")


def record(
    n: int, *seconds: float, rung: int = 0, status: Status = Status.OK, task: str = "m"
) -> Record:
    return Record(Trial(task, candidate(n), rung=rung), Measurement(status, seconds))


def store_of(*records: Record) -> MemoryStore:
    store = MemoryStore()
    store.put(Tasks([MATMUL, SOFTMAX]), Defaults({"m": candidate(DEFAULT).key}))
    store.append_many([(r, None) for r in records])
    return store


class TestStatus:
    def test_an_empty_run(self) -> None:
        assert status_json(view_run(MemoryStore())) == {
            "precision": None,
            "trials": 0,
            "ok": 0,
            "censored": 0,
            "failures": {},
            "elapsed_s": 0.0,
            "trials_per_s": 0.0,
            "settled": False,
            "utilisation": {},
            "tasks": [],
            "spaces": [],
            "toolchains": [],
        }

    def test_a_precision_is_told_without_the_ranges_of_its_rows(self) -> None:
        error = PrecisionError(2, 0.5, 0.01, 0.5, Perplexity(9.0, 10.0))
        known = Precision("auto", "int8", "it suits", "rows", ((-1.0, 1.0),), error)
        told = status_json(view_run(store_of()), known)["precision"]
        assert told == {
            "asked": "auto",
            "name": "int8",
            "why": "it suits",
            "rows": "rows",
            "error": {
                "inputs": 2,
                "largest": 0.5,
                "relative": 0.01,
                "logits": 0.5,
                "perplexity": {"before": 9.0, "after": 10.0},
            },
        }

    def test_a_run_under_way(self) -> None:
        store = store_of(
            record(DEFAULT, 0.004),
            record(1, 0.001, 0.002, 0.009),
            record(2, status=Status.WRONG),
            record(3, status=Status.INVALID),
            record(4, 0.1, status=Status.CENSORED),
            record(1, 0.0015, rung=1),
            record(1, task="s", status=Status.LOST),
        )
        store.put(Sizes({"m": {"space": 90}}))
        for ends_s in (1.0, 1.0):
            session = begin_session(store, 0.0)
            store.put(SessionAlive(session, 0.5, {"runner": {"busy": 1.5, "no_builds": 0.5}}))
            store.put(SessionEnded(session, ends_s, ""))
        begin_session(store, 1.0)
        matmul = {
            "name": "matmul",
            "key": "m",
            "weight": 3.0,
            "trials": 4,
            "ok": 2,
            "censored": 1,
            "failures": {"invalid": 1, "wrong": 1},
            "default_ms": 4.0,
            "best_ms": 2.0,
            "gflops": 1000.0,
        }
        softmax = {
            "name": "softmax",
            "key": "s",
            "weight": 1.0,
            "trials": 1,
            "ok": 0,
            "censored": 0,
            "failures": {"lost": 1},
            "default_ms": None,
            "best_ms": None,
            "gflops": None,
        }
        assert status_json(view_run(store)) == {
            "precision": None,
            "trials": 5,
            "ok": 2,
            "censored": 1,
            "failures": {"invalid": 1, "wrong": 1, "lost": 1},
            "elapsed_s": 2.0,
            "trials_per_s": 2.5,
            "settled": False,
            "utilisation": {"runner": {"busy": 3.0, "no_builds": 1.0}},
            "tasks": [matmul, softmax],
            "spaces": [
                {
                    "space": "space",
                    "points": 90,
                    "explored": 6,
                    "trials": 5,
                    "failed": 3,
                    "won": ["matmul"],
                    "best_ms": 2.0,
                }
            ],
            "toolchains": [],
        }

    def test_a_run_that_has_ended_has_the_times_of_its_winners(self) -> None:
        store = store_of(
            record(DEFAULT, 0.004),
            record(DEFAULT, 0.005, rung=1),
            record(1, 0.001),
            record(1, 0.003, rung=1),
            record(2, 0.002),
            record(2, 0.0025, rung=1),
            record(1, 0.008, task="s"),
        )
        session = begin_session(store, 0.0)
        assert [task.best_s for task in view_run(store).tasks] == [0.001, 0.008]
        store.put(SessionEnded(session, 1.0, "trials"))
        run = view_run(store)
        assert run.settled
        assert run.tasks == view_winners(store)
        assert (run.tasks[0].default_s, run.tasks[0].best_s) == (0.005, 0.0025)


class TestFruitless:
    """Declared spaces that gave no time are told once, with why."""

    SOURCE = SpaceSource("theirs.py", "", "SPACE", parts=("works", "fails", "missing"))
    TASKS = (replace(MATMUL, space=SOURCE), SOFTMAX)

    def of(self, part: str, n: int, *seconds: float, status: Status, error: str = "") -> Record:
        space = self.SOURCE.space_name(part)
        known = Candidate(CandidateKind.TRACE, f"[{n}]", space)
        return Record(Trial("m", known), Measurement(status, seconds, error=error))

    def test_each_has_a_line(self) -> None:
        store = store_of(
            self.of("works", 1, 0.5, status=Status.OK),
            self.of("works", 2, status=Status.WRONG, error="off by 3"),
            self.of("fails", 3, status=Status.BUILD_FAILED, error="no such intrinsic"),
            self.of("fails", 4, status=Status.WRONG, error="off by 7"),
        )
        assert fruitless(store, self.TASKS) == [
            "fails: all 2 candidates failed: build failed, no such intrinsic",
            "missing: none of its drafts could be scheduled, or none was reached",
        ]

    def test_without_a_declared_space_nothing_is_said(self) -> None:
        assert fruitless(store_of(), (MATMUL, SOFTMAX)) == []


class TestBest:
    def test_the_last_retiming_is_shown(self) -> None:
        store = store_of(
            record(DEFAULT, 0.008),
            record(DEFAULT, 0.005, rung=1),
            record(DEFAULT, 0.006, 0.006, 0.007, rung=2),
            record(1, 0.001),
            record(1, 0.003, rung=1),
            record(1, 0.001, 0.002, 0.009, rung=2),
        )
        assert [best_json(task) for task in view_winners(store)] == [
            {
                "name": "matmul",
                "weight": 3.0,
                "trials": 2,
                "default_ms": 6.0,
                "latency_ms": 2.0,
                "gflops": 1000.0,
                "candidate": candidate(1).key,
                "space": "space",
                "toolchain": None,
            },
            {
                "name": "softmax",
                "weight": 1.0,
                "trials": 0,
                "default_ms": None,
                "latency_ms": None,
                "gflops": None,
                "candidate": None,
                "space": None,
                "toolchain": None,
            },
        ]

    def test_of_a_task_with_many_shapes_it_is_what_its_kernels_take(self) -> None:
        """Where they were chosen; else the mean over all shapes, each with its best kernel."""
        small, large = (("n", 1),), (("n", 9),)
        task = Task("o", "symbolic", "", "", flops=2e9, shapes=((small, 3.0), (large, 1.0)))
        store = MemoryStore()
        store.put(Tasks([task]))
        for number, instance, seconds in ((1, small, 0.001), (2, large, 0.005)):
            trial = Trial("o", candidate(number), instance)
            store.append_many([(Record(trial, Measurement(Status.OK, (seconds,))), None)])
        (seen,) = view_winners(store)
        assert (seen.best_s, seen.gflops) == (pytest.approx(0.002), pytest.approx(1000.0))
        (seen,) = view_winners(store, {"o": 0.004})
        assert (seen.best_s, seen.gflops) == (0.004, 500.0)
        assert view_run(store, {"o": 0.004}).tasks == (seen,)

    def test_one_task_by_name_or_key(self) -> None:
        for wanted in ("softmax", "s"):
            (seen,) = view_winners(store_of(), task=wanted)
            assert seen.name == "softmax"
        with pytest.raises(TunerError, match="no task conv"):
            view_winners(store_of(), task="conv")


plausible = st.floats(1e-9, 1e6)
nonsense = st.sampled_from([math.nan, math.inf, -math.inf, -1.0, 0.0])
runs = st.lists(
    st.builds(
        lambda n, seconds, **rest: record(n, *seconds, **rest),
        st.integers(0, 5),
        st.lists(plausible | nonsense, max_size=3),
        rung=st.integers(0, 3),
        status=st.sampled_from(Status),
        task=st.sampled_from("ms"),
    )
)


@given(runs)
def test_views_agree_with_progress_and_are_strict_json(records: list[Record]) -> None:
    store = store_of(*records)
    run = view_run(store)
    json.dumps(status_json(run), allow_nan=False)
    json.dumps([best_json(task) for task in view_winners(store)], allow_nan=False)
    progress = fold(store.tasks(), store.get(Defaults).by_task, store.scan())
    assert run.trials == sum(p.spent for p in progress.values())
    for seen, p in zip(run.tasks, progress.values(), strict=True):
        assert replace(seen, toolchain="") == p.view()
