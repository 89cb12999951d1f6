"""The workers as Ray actors, in the only file of this package that knows Ray.

Each holds the plain class that does the work and declares the resources it needs. `ready()` answers
once its child process is warm, with the worker's device and toolchain. The tasks of its run
come in pieces, see `actors.chunked_args`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import ray

from actors.build_child import NOTHING, Written
from actors.builder import Builder, Built
from actors.chunked_args import join_pieces
from actors.quiet_lock import Quiet
from actors.runner import Learned, Runner
from actors.shared_folder import SharedFolder
from actors.space_worker import SpaceWorker
from tuner.candidate import Candidate, Draft
from tuner.effort import Timing
from tuner.files.own_folder import own_folder
from tuner.layers import OURS, Layers
from tuner.measure import Evaluated
from tuner.record import Measurement
from tuner.task import Instance, Task

# Signs of life have a thread of their own, since they are given while a job runs.
_OPTIONS = {"max_restarts": 0, "max_task_retries": 0, "concurrency_groups": {"beat": 1}}

_FETCH_S = 5.0
"""To build a kernel anew takes less than to wait longer for it."""


@dataclass(frozen=True, slots=True)
class WorkerPlace:
    """The folders of a run's worker on its node.

    Attributes:
        quiet: directory of the node's quiet lock; None where kernels do not run on the CPU.
        logs: folder for the output of children.
        scratch: folder for reference outputs and the like; may be emptied at any time.
        away: replaces the folder of these two where a node does not have that one; removed with the
            last worker of the run there. If not absolute, this and `quiet` are relative to the
            user's own folder on the node (`tuner.files.own_folder`).
        layers: of the user's, whose files need not be on the node.
    """

    quiet: Path | None
    logs: Path
    scratch: Path
    away: Path | None = None
    layers: Layers = OURS

    def on_this_node(self) -> tuple[WorkerPlace, SharedFolder | None]:
        """The folders to use on this node, which may not see the run folder, and the hold on them.

        Raises:
            TunerError: a folder on the node is not this user's alone.
        """
        if self.away is None or self.logs.parent.is_dir():
            return self, None
        folder = SharedFolder(own_folder() / self.away)
        logs, scratch = folder.path / "logs", folder.path / "scratch"
        return replace(self, logs=logs, scratch=scratch), folder

    def quiet_lock(self) -> Quiet | None:
        """The node's quiet lock.

        Raises:
            TunerError: its directory is not this user's alone.
        """
        return None if self.quiet is None else Quiet(own_folder() / self.quiet)


@dataclass(frozen=True, slots=True)
class About:
    """A worker's description of itself when it is ready.

    Attributes:
        node: Ray's id of the worker's machine.
        device: fingerprint of the device that it times kernels on; empty unless it is a runner.
        toolchain: fingerprint of the toolchain that it builds with; empty unless it is a builder.
    """

    node: str
    device: str = ""
    toolchain: str = ""


@dataclass(frozen=True, slots=True)
class Compiled:
    """A successful build, without its artifact, which goes to a runner only.

    Attributes:
        build_s: seconds of building.
        sha256: checksum of the artifact; a runner loads nothing else in its place.
        written: the program before it was compiled.
        toolchain: fingerprint of its builder's toolchain, which the builder tells once.
    """

    build_s: float
    sha256: str
    written: Written = NOTHING
    toolchain: str = ""


class _Alive:
    """A worker that gives signs of life.

    Args:
        place: has the node's quiet lock.
    """

    def __init__(self, place: WorkerPlace) -> None:
        self._quiet = place.quiet_lock()

    _worker: SpaceWorker | Builder | Runner
    _away: SharedFolder | None

    @ray.method(concurrency_group="beat")  # type: ignore[untyped-decorator]
    def beat(self) -> float:
        """Answer at once, even while the worker is busy, with the seconds that its node spent
        frozen so far, which count against no deadline."""
        return self._quiet.frozen_s() if self._quiet is not None else 0.0

    @ray.method(concurrency_group="beat")  # type: ignore[untyped-decorator]
    def leave(self) -> None:
        """Remove the worker's files on its node; it is ended next."""
        self._worker.leave()
        if self._away is not None:
            self._away.leave()


def _about(device: str = "", toolchain: str = "") -> About:
    return About(ray.get_runtime_context().get_node_id(), device, toolchain)


@ray.remote(num_cpus=0.5, **_OPTIONS)
class SpaceActor(_Alive):
    """Evaluates drafts."""

    _worker: SpaceWorker

    def __init__(self, name: str, place: WorkerPlace, *tasks: bytes) -> None:
        super().__init__(place)
        place, self._away = place.on_this_node()
        self._worker = SpaceWorker(
            log_dir=place.logs, quiet=self._quiet, name=name, layers=place.layers
        )
        self._worker.put_tasks(join_pieces(tasks))

    def ready(self) -> About:
        """Wait for the child to be warm."""
        self._worker.ready()
        return _about()

    def use_model(self, version: int, model: bytes) -> None:
        """Score with this model from now on."""
        self._worker.use_model(version, model)

    def evaluate(self, drafts: Sequence[Draft], deadline_s: float) -> tuple[list[Evaluated], float]:
        """One answer for each draft, and the seconds it took, without those spent frozen."""
        elapsed_s = self._worker.stopwatch()
        return self._worker.evaluate(drafts, deadline_s), elapsed_s()


@ray.remote(num_cpus=0.5, **_OPTIONS)
class BuilderActor(_Alive):
    """Compiles candidates. Sees no GPU, so that no compiler touches one. It is ready once it has
    built a kernel of one line for each target of its tasks."""

    _worker: Builder

    def __init__(self, name: str, place: WorkerPlace, *tasks: bytes) -> None:
        super().__init__(place)
        self._tasks: dict[str, Task] = {task.key: task for task in join_pieces(tasks)}
        place, self._away = place.on_this_node()
        self._worker = Builder(
            log_dir=place.logs, quiet=self._quiet, name=name, layers=place.layers
        )

    def ready(self) -> About:
        """Wait for the child to be warm, and to have built for each target: its toolchain."""
        self._worker.ready()
        targets = {task.target for task in self._tasks.values()}
        toolchains = {self._worker.try_target(target) for target in targets}
        return _about(toolchain="; ".join(sorted(toolchains)))

    @ray.method(num_returns=2)  # type: ignore[untyped-decorator]
    def build(
        self, task_key: str, candidate: Candidate, deadline_s: float
    ) -> tuple[Compiled | Measurement, bytes]:
        """Build a candidate. Return the build and its artifact; or the failure, and no bytes."""
        built = self._worker.build(self._tasks[task_key], candidate, deadline_s)
        if isinstance(built, Built):
            return Compiled(built.build_s, built.sha256, built.written), built.artifact
        return built, b""


@ray.remote(num_cpus=0, **_OPTIONS)
class RunnerActor(_Alive):
    """Measures artifacts on one device."""

    _worker: Runner

    def __init__(self, name: str, place: WorkerPlace, *tasks: bytes) -> None:
        super().__init__(place)
        self._tasks: dict[str, Task] = {task.key: task for task in join_pieces(tasks)}
        place, self._away = place.on_this_node()
        self._worker = Runner(
            target=next(iter(self._tasks.values())).target,
            log_dir=place.logs,
            scratch=place.scratch,
            quiet=self._quiet,
            name=name,
            layers=place.layers,
        )

    def ready(self) -> About:
        """Wait for the child to be warm; return its device."""
        self._worker.ready()
        return _about(self._worker.device())

    def learn(self, task_key: str, instance: Instance, deadline_s: float) -> Learned:
        """Make the reference of a task, on one shape if it has several."""
        return self._worker.learn(self._tasks[task_key], instance, deadline_s)

    def run(
        self,
        task_key: str,
        artifact: Sequence[Any],
        sha256: str,
        timing: Timing,
        cutoff_s: float | None,
        deadline_s: float,
        instance: Instance = (),
        library: str = "",
    ) -> Measurement | None:
        """Check and time an artifact, on one shape if its task has several; after `learn`. See
        `Runner.run`.

        Args:
            artifact: one reference to it. Ray fetches a bare one before it makes the call, and
                holds all later calls back meanwhile, those for signs of life too.

        Returns None if the artifact does not come, or its checksum is wrong: it was not loaded.
        """
        built = _fetch(artifact[0])
        if hashlib.sha256(built).hexdigest() != sha256:
            return None
        return self._worker.run(
            self._tasks[task_key],
            built,
            timing=timing,
            cutoff_s=cutoff_s,
            deadline_s=deadline_s,
            instance=instance,
            library=library,
        )


def _fetch(reference: Any) -> bytes:
    """What lies behind a reference; empty if it is lost, or does not come: Ray may ask a machine
    for it that is gone, and asks another one 10 s later."""
    try:
        return bytes(ray.get(reference, timeout=_FETCH_S))
    except (ray.exceptions.ObjectLostError, ray.exceptions.GetTimeoutError):
        return b""


def actor_class(kind: str) -> Any:
    """The actor class of a kind of worker: `space`, `builder` or `runner`."""
    return {"space": SpaceActor, "builder": BuilderActor, "runner": RunnerActor}[kind]
