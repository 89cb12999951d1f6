"""Nobody is told of a record that could still be lost."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tuner.candidate import Candidate, CandidateKind
from tuner.cost_models.base import FittedModel
from tuner.record import Measurement, Record, Status, Trial, TrialKey
from tuner.session.durable_observer import AfterDurable


def record(n: int) -> Record:
    candidate = Candidate(CandidateKind.TRACE, f"[{n}]", "space")
    return Record(Trial("t", candidate), Measurement(Status.OK, (1.0 + n,)))


class Buffer:
    """A store of which a test says what is durable."""

    def __init__(self) -> None:
        self.durable: set[TrialKey] = set()
        self.given: list[Record] = []

    def is_durable(self, key: TrialKey) -> bool:
        return key in self.durable

    def flush(self) -> None:
        self.durable |= {r.trial.key for r in self.given}


class Heard:
    """Writes down what it is told."""

    def __init__(self) -> None:
        self.told: list[Any] = []

    def on_start(self, tasks: Sequence[Any]) -> None:
        self.told.append("start")

    def on_record(self, record: Record, best_s: float | None) -> None:
        self.told.append((record, best_s))

    def on_model(self, fitted: FittedModel) -> None:
        self.told.append("model")

    def on_snapshot(self, snapshot: Any) -> None:
        self.told.append("snapshot")

    def on_kernels(self, task_key: str, chosen: Any) -> None:
        self.told.append("kernels")

    def on_end(self, snapshot: Any) -> None:
        self.told.append("end")


def test_kernels_are_told_after_the_records_that_they_were_chosen_from() -> None:
    store, heard = Buffer(), Heard()
    observer = AfterDurable(heard, store)
    store.given.append(record(0))
    observer.on_record(record(0), 1.0)
    chosen: Any = None
    observer.on_kernels("t", chosen)
    assert heard.told == [(record(0), 1.0), "kernels"]


def test_records_are_told_in_order_once_they_are_durable() -> None:
    store, heard = Buffer(), Heard()
    observer = AfterDurable(heard, store)
    snapshot: Any = None
    fitted: Any = None
    observer.on_start(())
    for n in range(4):
        store.given.append(record(n))
        observer.on_record(record(n), float(n))
    observer.on_snapshot(snapshot)
    assert heard.told == ["start", "snapshot"]
    store.durable = {record(n).trial.key for n in (0, 1, 3)}
    observer.on_model(fitted)
    assert heard.told[2:] == [(record(0), 0.0), (record(1), 1.0), "model"]
    observer.on_end(snapshot)
    assert heard.told[5:] == [(record(2), 2.0), (record(3), 3.0), "end"]
