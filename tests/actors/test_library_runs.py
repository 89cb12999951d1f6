"""A runner with functions of libraries: judged like kernels, each in a process of its own."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

import psutil
import pytest

from actors import run_child
from actors.builder import Builder, Built
from actors.run_child import RunChild
from actors.runner import Runner
from spaces.devices.ladder import Timed
from spaces.libraries.offers import offer
from spaces.libraries.registration import space_of
from spaces.lowering.extract_tasks import task_of
from tests.spaces.libraries.cumsum import cumsum
from tuner.candidate import Candidate
from tuner.effort import EFFORTS
from tuner.layers import Layers
from tuner.record import Measurement, Status
from tuner.source import Source
from tuner.task import Task

pytestmark = [pytest.mark.tvm, pytest.mark.slow]

TEXT = (Path(__file__).parents[1] / "spaces" / "libraries" / "cumsum.py").read_text()
NOTES = """
import os
class Notes(Sums):
    def functions(self):
        (function,) = super().functions().values()
        def summed(x, y):
            with open(NOTES, "a") as file:
                print(os.getpid(), file=file)
            function(x, y)
        return {"sums.cumsum": summed}
"""


@pytest.fixture(scope="module")
def task() -> Task:
    return task_of(cumsum(8, 256), '{"kind":"llvm","num-cores":1}', name="cumsum")


class Bench:
    """A builder and a runner with some libraries."""

    def __init__(self, task: Task, libraries: Sequence[Source], folder: Path) -> None:
        layers = Layers(libraries=tuple(libraries))
        self.task, self.libraries = task, layers.libraries
        self.builder = Builder(log_dir=folder, layers=layers)
        self.runner = Runner(target=task.target, log_dir=folder, scratch=folder, layers=layers)
        assert self.runner.learn(task, (), 60.0).error == ""

    def call(self, number: int = 0) -> Measurement:
        """The measurement of a library's function."""
        candidate = offer(self.libraries[number], self.task)
        assert candidate is not None
        return self.measure(candidate, candidate.space)

    def measure(self, candidate: Candidate, library: str = "") -> Measurement:
        """The measurement of a candidate."""
        built = self.builder.build(self.task, candidate, 60.0)
        assert isinstance(built, Built), built
        timing = EFFORTS["quick"].timing
        return self.runner.run(
            self.task,
            built.artifact,
            timing=timing,
            cutoff_s=None,
            deadline_s=60.0,
            library=library,
        )


@contextmanager
def start(task: Task, libraries: Sequence[Source], folder: Path) -> Iterator[Bench]:
    bench = Bench(task, libraries, folder)
    with closing(bench.builder), closing(bench.runner):
        yield bench


NAMES = ("Sums", "Wrong", "Greedy", "Raises")


@pytest.fixture(scope="module")
def bench(task: Task, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    """With libraries that compute the same, by the same name."""
    libraries = [Source("cumsum.py", TEXT, name) for name in NAMES]
    with start(task, libraries, tmp_path_factory.mktemp("bench")) as made:
        yield made


@pytest.mark.parametrize(
    ("name", "status", "said"),
    [
        ("Sums", Status.OK, ""),
        ("Wrong", Status.WRONG, "output sums"),
        ("Greedy", Status.WRONG, "it overwrote its input x"),
        ("Raises", Status.RUN_FAILED, "out of sums"),
    ],
)
def test_a_function_is_judged_as_a_kernel_is(
    bench: Bench, name: str, status: Status, said: str
) -> None:
    measured = bench.call(NAMES.index(name))
    assert (measured.status, said in measured.error) == (status, True), measured
    assert (measured.latency_s is not None) == (status is Status.OK)


def test_it_has_a_process_of_its_own(task: Task, tmp_path: Path) -> None:
    from spaces.design_space.default_schedule import default_candidate

    notes = tmp_path / "notes"
    source = Source("cumsum.py", f"{TEXT}\nNOTES = {str(notes)!r}\n{NOTES}", "Notes")
    with start(task, [source], tmp_path) as sums:
        for calls in (False, True, False, True):
            before = set(psutil.Process().children(recursive=True))
            measured = sums.call() if calls else sums.measure(default_candidate(task))
            assert measured.status is Status.OK
            after = set(psutil.Process().children(recursive=True))
            if calls:
                called_in = {int(pid) for pid in notes.read_text().split()}
                assert len(called_in) == 1
                assert not called_in & {p.pid for p in after}, "it ended with its one measurement"
                assert not called_in & {p.pid for p in before}, "it had timed nothing else"
                notes.unlink()


def test_nothing_else_is_timed_while_its_threads_look_for_work(
    task: Task, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    layers = Layers(libraries=(Source("cumsum.py", TEXT, "Sums"),))
    child = RunChild(task.target, None, tmp_path, layers)
    child.use_library(space_of(layers.libraries[0]))
    ended_s = []

    def end(*_: object) -> Timed:
        ended_s.append(time.perf_counter())
        return Timed(())

    monkeypatch.setattr(run_child, "time_kernel", end)
    child.time(EFFORTS["quick"].timing, None)
    assert time.perf_counter() - ended_s[0] >= 0.15
