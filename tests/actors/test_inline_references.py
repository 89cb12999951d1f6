"""References on the inline measurer: its runner and that one's child are real, what they work out
is not."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from actors.builder import Built
from actors.runner import Runner
from tests.actors.inline_measurer import InlineMeasurer
from tests.contracts.references import EFFORT, TARGET, ReferencesContract, Referring, task
from tuner.candidate import Candidate
from tuner.record import Provenance
from tuner.task import Task

CHILD = """
from actors.run_child import Checked
from spaces.devices.ladder import Timed
from tests.contracts.references import WHY, make_reference

class Hopeless(Exception):
    pass

class Quick:
    def __init__(self, target, threads, scratch): self.known = set()
    def knows(self, key, instance): return key in self.known
    def learn(self, task, instance):
        if make_reference(task.name).error: raise Hopeless(WHY)
        self.known.add(task.key)
    def prepare(self, key, instance, artifact, deadline_s):
        assert key in self.known
        return Checked("", 0.001)
    def time(self, timing, cutoff_s): return Timed((0.1, 0.1, 0.1))
"""


class QuickBuilder:
    """Builds nothing, at once."""

    def build(self, task: Task, candidate: Candidate, deadline_s: float) -> Built:
        return Built(b"artifact", 0.1, "hash")

    def close(self) -> None:
        pass


@pytest.fixture
def referring(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Referring]:
    (tmp_path / "quick_run.py").write_text(CHILD)
    monkeypatch.syspath_prepend(str(tmp_path))
    tasks = {verb: task(verb, tmp_path) for verb in ("slow", "hopeless", "plain")}
    runner = Runner(
        target=TARGET, log_dir=tmp_path, scratch=tmp_path / "scratch", child="quick_run:Quick"
    )
    measurer = InlineMeasurer(
        list(tasks.values()),
        QuickBuilder(),  # type: ignore[arg-type]
        runner,
        effort=EFFORT,
        provenance=Provenance("inline", "this device", "this toolchain"),
    )
    yield Referring(measurer, tasks)
    measurer.close()


class TestReferencesInline(ReferencesContract):
    """On one runner of this process."""
