"""Kernels of one task, built and timed in turns on this machine."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tuner.candidate import Candidate
from tuner.effort import Timing
from tuner.task import Task

if TYPE_CHECKING:
    from actors.builder import Builder
    from actors.runner import Runner

_DEADLINE_S = 60.0


@dataclass(frozen=True, slots=True)
class KernelTimer:
    """A builder and a runner."""

    builder: Builder
    runner: Runner

    def time(
        self, task: Task, candidates: Mapping[str, Candidate], timing: Timing, rounds: int
    ) -> dict[str, list[float]]:
        """The least sample of each candidate in each round, seconds; none where it failed."""
        from actors.builder import Built

        built = {key: self.builder.build(task, c, _DEADLINE_S) for key, c in candidates.items()}
        times_s: dict[str, list[float]] = {key: [] for key in candidates}
        self.runner.learn(task, (), _DEADLINE_S)
        for _ in range(rounds):
            for key, kernel in built.items():
                if isinstance(kernel, Built):
                    done = self.runner.run(
                        task, kernel.artifact, timing=timing, cutoff_s=None, deadline_s=_DEADLINE_S
                    )
                    times_s[key] += [min(done.samples_s)] if done.samples_s else []
        return times_s


@contextlib.contextmanager
def start_timer(target: str) -> Iterator[KernelTimer]:
    """A builder and a runner for a target, while the block runs."""
    from actors.builder import Builder
    from actors.runner import Runner

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        builder = Builder(log_dir=folder)
        runner = Runner(target=target, log_dir=folder, scratch=folder)
        try:
            builder.ready()
            runner.ready()
            yield KernelTimer(builder, runner)
        finally:
            builder.close()
            runner.close()
