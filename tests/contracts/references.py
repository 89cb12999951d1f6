"""What every measurer does for tasks whose reference output takes its time to be worked out."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path

from actors.runner import Learned
from tuner.candidate import Candidate, CandidateKind
from tuner.effort import Effort
from tuner.measure import Measurer
from tuner.record import Record, Status, Trial
from tuner.task import Task

EFFORT = Effort("test", 10, 60.0, run_deadline_s=1.0, reference_deadline_s=20.0)
LONG_S = 2.0
"""What a slow reference takes: longer than a run may."""
WHY = "no answer within 600 s"
_PATIENCE_S = 60.0
TARGET = '{"kind":"llvm","num-cores":1}'


def make_reference(name: str) -> Learned:
    """Work a reference out, as the task's name says: `VERB PATH`, each call a line in the file."""
    verb, _, path = name.partition(" ")
    first = not Path(path).exists()
    with open(path, "a") as calls:
        calls.write("call\n")
    if verb == "slow":
        time.sleep(LONG_S)
    if verb == "deadly" or (verb == "deadly-once" and first):
        os._exit(9)
    if verb == "hopeless":
        return Learned(WHY, 0.1)
    return Learned("", 0.1)


def task(verb: str, folder: Path) -> Task:
    """A task whose reference behaves so. Tasks need not be programs here: nobody compiles them."""
    name = f"{verb} {folder / verb}"
    return Task(f"{verb:_>16}"[:16], name, "no module", TARGET)


def calls(task: Task) -> int:
    """How often its reference was begun."""
    return len(Path(task.name.partition(" ")[2]).read_text().splitlines())


def candidate(number: int) -> Candidate:
    """Some candidate."""
    return Candidate(CandidateKind.TRACE, f"[{number}]", "test")


@dataclass(frozen=True)
class Referring:
    """A measurer with one runner, and tasks by what their references do.

    Attributes:
        tasks: `slow`, `hopeless` and `plain`.
    """

    measurer: Measurer
    tasks: dict[str, Task]

    def measure(self, verb: str, *numbers: int) -> list[Record]:
        """Records of some candidates of a task."""
        trials = [Trial(self.tasks[verb].key, candidate(n)) for n in numbers]
        until_s = time.monotonic() + _PATIENCE_S
        while self.measurer.free() <= 0:
            assert time.monotonic() < until_s, "no slot became free"
            self.measurer.collect(0.1)
        self.measurer.submit(trials)
        records: list[Record] = []
        while len(records) < len(trials):
            assert time.monotonic() < until_s, f"{records} only, after a long while"
            records += self.measurer.collect(0.1)
        return records


class ReferencesContract:
    """Subclass it as `Test...` with a fixture `referring`, anew for each test or not."""

    def test_a_reference_may_take_longer_than_a_run_may(self, referring: Referring) -> None:
        records = referring.measure("slow", 1, 2, 3)
        assert [(r.measurement.status, r.attempt) for r in records] == [(Status.OK, 1)] * 3
        assert calls(referring.tasks["slow"]) == 1

    def test_where_it_cannot_be_made_nothing_is_checked_and_others_go_on(
        self, referring: Referring
    ) -> None:
        records = referring.measure("hopeless", 1, 2)
        assert {r.measurement.status for r in records} == {Status.UNCHECKED}
        assert not any(r.measurement.status.spends_budget for r in records)
        (said,) = {r.measurement.error for r in records}
        assert said.startswith("reference output: ")
        assert said.endswith(WHY)
        (record,) = referring.measure("plain", 1)
        assert record.measurement.status is Status.OK
        (again,) = referring.measure("hopeless", 3)
        assert again.measurement.error == said
        assert calls(referring.tasks["hopeless"]) == 1
