"""What the chaos scenario says of a run: good is what gave a time, and nothing else."""

from __future__ import annotations

from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any

from benchmarks.fleet.chaos import Returns, judged
from benchmarks.fleet.faults import KINDS
from tuner.candidate import Candidate, CandidateKind
from tuner.record import Measurement, Record, Status, Trial
from tuner.run_location import RunLocation
from tuner.runs.folder import RunFolder
from tuner.storage.base import begin_session
from tuner.storage.facts import Tasks
from tuner.storage.sqlite_store import SqliteStore
from tuner.task import Task

TRIALS = 100


def found(folder: Path, statuses: list[Status]) -> dict[str, Any]:
    """What is said of a run whose trials ended like this."""
    folder.mkdir(exist_ok=True)
    task = Task("t", "gemm", "{}", '{"kind":"llvm"}')
    with closing(SqliteStore(RunFolder(folder).store)) as store:
        store.put(Tasks([task]))
        begin_session(store, 0.0)
        for number, status in enumerate(statuses):
            candidate = Candidate(CandidateKind.TRACE, f"[{number}]", "test")
            samples = (1e-3,) if status in (Status.OK, Status.CENSORED) else ()
            store.append_many([(Record(Trial("t", candidate), Measurement(status, samples)), None)])
    kills = Counter(dict.fromkeys(KINDS, 2))
    return judged(RunLocation.of(folder), TRIALS, 10, kills, wall_s=10.0, failure="")


def test_a_trial_that_was_cut_off_is_not_ok(tmp_path: Path) -> None:
    told = found(tmp_path, [Status.OK] * 73 + [Status.CENSORED] * 27)
    assert (told["records"], told["ok"], told["censored"]) == (TRIALS, 73, 27)
    assert not told["passed"]


def test_nearly_all_must_be_ok_and_hardly_any_lost(tmp_path: Path) -> None:
    mostly = [Status.OK] * 95 + [Status.LOST] + [Status.TIMEOUT] * 4
    assert found(tmp_path / "good", mostly)["passed"]
    lossy = [Status.OK] * 98 + [Status.LOST] * 2
    assert not found(tmp_path / "bad", lossy)["passed"]


def test_a_search_is_back_with_the_first_record_that_was_not_there_before() -> None:
    returns = Returns()
    assert set(returns.figures().values()) == {None}
    returns.gone(10.0, records=5)
    returns.look(11.0, records=5)
    returns.gone(13.0, records=5)  # killed again before it was back
    assert returns.waiting
    returns.look(17.0, records=6)
    assert not returns.waiting
    returns.gone(20.0, records=9)
    returns.look(22.0, records=10)
    assert returns.figures() == {"search_back_median_s": 4.5, "search_back_worst_s": 7.0}
