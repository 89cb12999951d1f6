"""What a user asked for, as data: already parsed, not yet looked up."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tuner.effort import EFFORTS, Effort
from tuner.errors import UsageError

MAX_KERNELS = 4
"""Kernels for all shapes of one program, where nothing else is said."""
DEVICE_WAIT_S = 600.0
"""How long to wait for a machine that has room for a worker, where nothing else is said."""


@dataclass(frozen=True, slots=True)
class IntRange:
    """Integers to draw an input from, both ends included."""

    low: int
    high: int


@dataclass(frozen=True, slots=True)
class ModelSpec:
    """Which model, and how its open ends are closed.

    Attributes:
        source: `model.onnx`, `model.pt2`, `path.py:function` or `package.module:function`.
        shapes: shape of each input that the model leaves dynamic.
        inputs: values of inputs, a file of them or a range of integers to draw from.
        args: keyword arguments for a function that makes the model.
        dims: values of each symbolic dimension that stays open, ascending.
        weights: file with the weight of each shape; None weighs all alike.
    """

    source: str
    shapes: tuple[tuple[str, tuple[int, ...]], ...] = ()
    inputs: tuple[tuple[str, Path | IntRange], ...] = ()
    args: tuple[tuple[str, str | int | float], ...] = ()
    dims: tuple[tuple[str, tuple[int, ...]], ...] = ()
    weights: Path | None = None


@dataclass(frozen=True, slots=True)
class TuneOptions:
    """One request to tune a model.

    Attributes:
        target: `auto`, `llvm`, `cuda`, or the JSON of a TVM target.
        trials: total of the run; None is the effort's share for each task.
        time_budget_s: wall time from the start; see `limit_s` for None.
        only: glob on task names; None is all of them.
        run: the run folder, or as text the URL of a run that several machines see (see
            `tuner.run_place`); None is a new folder under `runs/`.
        address: `auto`, `local` or `HOST:PORT` of a Ray cluster.
        strategy: `evolutionary`, or `random` for replaying traces with random decisions.
        base_model: what the cost model begins with: `none`, `auto` (the registered model of the
            target's family), a registered name, `NAME:VERSION`, or the path of a file.
        seeds_from: other runs whose best schedules of equal and similar tasks are tried first.
        max_kernels: how many kernels may serve the shapes of one program.
        devices: to measure on, at most; None is all that the cluster has or can start.
        device_wait_s: how long to wait for a machine with a device; None is `DEVICE_WAIT_S` where
            the cluster starts one, and where it does not, no wait.

    Raises:
        UsageError: there is room for no kernel.
    """

    model: ModelSpec
    target: str = "auto"
    trials: int | None = None
    time_budget_s: float | None = None
    effort: Effort = EFFORTS["normal"]
    only: str | None = None
    run: Path | str | None = None
    seed: int = 0
    address: str = "auto"
    strategy: str = "evolutionary"
    base_model: str = "none"
    seeds_from: tuple[Path | str, ...] = ()
    max_kernels: int = MAX_KERNELS
    devices: int | None = None
    device_wait_s: float | None = None

    def __post_init__(self) -> None:
        if self.max_kernels < 1:
            raise UsageError(f"max_kernels={self.max_kernels}: a program needs at least 1 kernel")

    @property
    def limit_s(self) -> float:
        """Wall time after which the run ends, whatever was done.

        It is what the user said, or the effort's. One who asked for more trials than the effort
        has for a task, and said nothing of time, wants them all: then there is so much more of it,
        which only ends what does not get on.
        """
        if self.time_budget_s is not None:
            return self.time_budget_s
        asked = (self.trials or 0) / self.effort.trials_per_task
        return self.effort.time_budget_s * max(1.0, asked)

    @property
    def finalists_s(self) -> float:
        """At most so much of that goes to finalists, which more trials do not make more."""
        return self.effort.finalist_share * (self.time_budget_s or self.effort.time_budget_s)
