"""The check of a kernel before it is used: built, run and compared in processes of their own."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from actors.builder import Builder
from actors.runner import Runner
from spaces.ir import tvm_compat
from spaces.targets.backends import backend_of
from spaces.targets.target import refuse_other_features
from tuner.effort import EFFORTS, Effort
from tuner.errors import TunerError
from tuner.layers import OURS, Layers
from tuner.record import Measurement, Status
from tuner.task import Task

_LOGS = "tuner-gate-"


class Gate:
    """Checks kernels of one target on this machine.

    Args:
        builder, runner: work on this machine.
        effort: deadlines, and rules of timing.
    """

    def __init__(self, builder: Builder, runner: Runner, effort: Effort) -> None:
        self._builder, self._runner, self._effort = builder, runner, effort
        self._learned: dict[str, str] = {}

    def measured(self, task: Task, function: Any, *, library: str = "") -> Measurement:
        """The measurement of a scheduled PrimFunc that should compute what a task does: `OK` if its
        output is right on all draws.

        Args:
            library: the space of the gate's library that it calls; empty of a kernel.
        """
        import tvm

        module = tvm.ir.save_json(tvm_compat.normalize(function))
        built = self._builder.build_module(module, task.target, self._effort.build_deadline_s)
        if isinstance(built, Measurement):
            return built
        if task.key not in self._learned:
            learned = self._runner.learn(task, (), self._effort.reference_deadline_s)
            self._learned[task.key] = learned.error
        if self._learned[task.key]:
            return Measurement(Status.UNCHECKED, error=self._learned[task.key])
        return self._runner.run(
            task,
            built.artifact,
            timing=self._effort.timing,
            cutoff_s=None,
            deadline_s=self._effort.run_deadline_s,
            library=library,
        )


@contextmanager
def gate(
    target: str, effort: Effort = EFFORTS["normal"], *, layers: Layers = OURS
) -> Iterator[Gate | None]:
    """A gate for a target, for the length of a block; None where kernels of the target do not run
    on this machine.

    Args:
        target: canonical JSON.
        layers: the libraries that kernels may call.
    """
    if not _runs_here(target):
        yield None
        return
    with (
        tempfile.TemporaryDirectory(prefix=_LOGS) as folder,
        closing(Builder(log_dir=Path(folder))) as builder,
        closing(
            Runner(target=target, log_dir=Path(folder), scratch=Path(folder), layers=layers)
        ) as runner,
    ):
        yield Gate(builder, runner, effort)


def _runs_here(target: str) -> bool:
    if not backend_of(target).on_host:
        import tvm

        return bool(tvm.device(backend_of(target).word).exist)
    try:
        refuse_other_features(target)
    except TunerError:
        return False
    return True
