"""Compiles candidates, in a child process that is kept until it crashes or grows."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from pathlib import Path

from actors.build_child import NOTHING, BuildAnswer, Written
from actors.quiet_lock import Quiet
from actors.warm_child import HOARDING, WarmChild, was_killed
from tuner.candidate import Candidate
from tuner.layers import OURS, Layers
from tuner.process.outcome import Died, MemoryExceeded, Outcome, Raised, Returned
from tuner.record import Measurement, Status
from tuner.source import text_hash
from tuner.task import Task

_RECYCLE_RSS_BYTES = 700 << 20
_MEMORY_LIMIT_BYTES = 4 << 30
_START_DEADLINE_S = 120.0
_CHILD = "actors.build_child:BuildChild"


@dataclass(frozen=True, slots=True)
class Built:
    """An artifact, with its build time.

    Attributes:
        build_s: seconds of building, without time spent frozen.
        sha256: checksum of the artifact.
        written: the program before it was compiled.
    """

    artifact: bytes
    build_s: float
    sha256: str
    written: Written = NOTHING


def longest_build_s(deadline_s: float) -> float:
    """The longest time of `Builder.build` with this deadline, without time spent frozen."""
    return 2 * (_START_DEADLINE_S + deadline_s)


class Builder:
    """Builds candidates one at a time. Used by one thread, which must live as long as it does.

    Args:
        log_dir: folder for the compiler's output.
        quiet: the node's quiet lock where kernels are timed on its CPU, else None.
        name: name of the log file.
        recycle_rss_bytes: a child that has grown past this is replaced after its build.
        memory_limit_bytes: a child that reaches this during a build is killed.
        layers: of the user's, see `BuildChild`.
        child: factory of the child's object; a parameter for tests.
    """

    def __init__(
        self,
        *,
        log_dir: Path,
        quiet: Quiet | None = None,
        name: str = "builder",
        recycle_rss_bytes: int = _RECYCLE_RSS_BYTES,
        memory_limit_bytes: int = _MEMORY_LIMIT_BYTES,
        layers: Layers = OURS,
        child: str = _CHILD,
    ) -> None:
        self._recycle_rss_bytes = recycle_rss_bytes
        self._child = WarmChild(
            child,
            (layers,) if layers else (),
            env=_environment(),
            log=log_dir / f"{name}.log",
            quiet=quiet,
            memory_limit_bytes=memory_limit_bytes,
        )

    def ready(self, deadline_s: float = _START_DEADLINE_S) -> None:
        """Have a warm child.

        Raises:
            RuntimeError: the child does not start; the text says why.
        """
        outcome = self._child.ready(deadline_s)
        if not isinstance(outcome, Returned):
            raise RuntimeError(f"builder did not start: {outcome}")

    def try_target(self, target: str, deadline_s: float = _START_DEADLINE_S) -> str:
        """See that this machine can build for a target, before a run counts on it; return the
        fingerprint of its toolchain. Only after `ready`.

        Raises:
            RuntimeError: it cannot; the text says why.
        """
        outcome = self._child.call("try_target", target, deadline_s=deadline_s)
        if not isinstance(outcome, Returned):
            raise RuntimeError(f"builder cannot build for the target: {outcome}")
        return str(outcome.value)

    def build_module(self, module: str, target: str, deadline_s: float) -> Built | Measurement:
        """Compile a scheduled module as it is, see `BuildChild.build_module` and `build`."""
        self.ready()
        elapsed_s = self._child.stopwatch()
        outcome = self._child.call("build_module", module, target, deadline_s=deadline_s)
        if not isinstance(outcome, Returned):
            self._child.replace()
        return _result(outcome, elapsed_s())

    def build(self, task: Task, candidate: Candidate, deadline_s: float) -> Built | Measurement:
        """Realise and compile a candidate.

        A candidate that crashes a child that had built others before is tried once more in a fresh
        one: they may be at fault. A child killed from outside is not the candidate's fault.

        Args:
            deadline_s: for the build alone, without time spent frozen.

        Returns:
            `Built`, or the measurement of a trial that ended here: INVALID or BUILD_FAILED.

        Raises:
            RuntimeError: there is no child to build with, which is not the candidate's fault.
        """
        tries = 0
        while True:
            tries += 1
            self.ready()
            fresh, self._child.fresh = self._child.fresh, False
            elapsed_s = self._child.stopwatch()
            outcome = self._ask(task, candidate, deadline_s)
            build_s = elapsed_s()
            if not isinstance(outcome, Returned) or (
                self._child.rss_bytes() > self._recycle_rss_bytes
            ):
                self._child.replace()
            if was_killed(outcome, tries):
                continue
            if fresh or not isinstance(outcome, Died | MemoryExceeded):
                return _result(outcome, build_s)

    def close(self) -> None:
        """Stop the child and remove what it left on disk."""
        self._child.close()

    def leave(self) -> None:
        """Remove its files on disk, from any thread of a process that is about to end."""
        self._child.leave()

    def _ask(self, task: Task, candidate: Candidate, deadline_s: float) -> Outcome:
        digest = text_hash(task.space.text) if task.space is not None else ""
        outcome = self._child.call("knows", task.key, digest, deadline_s=deadline_s)
        if not isinstance(outcome, Returned):
            return outcome
        has_task, has_text = outcome.value
        if not has_task:
            sent = _without_text(task) if has_text else task
            outcome = self._child.call("learn", sent, digest, deadline_s=deadline_s)
        if not isinstance(outcome, Returned):
            return outcome
        return self._child.call("build", task.key, candidate, deadline_s=deadline_s)


def _without_text(task: Task) -> Task:
    """A task without the text of its user's file, which is sent to each child once."""
    return task if task.space is None else replace(task, space=replace(task.space, text=""))


def _environment() -> dict[str, str]:
    """Environment of the child, which is shown no device."""
    return {
        "CUDA_VISIBLE_DEVICES": "",
        "TVM_NUM_THREADS": "1",
        # CUDA code stays source until `spaces.codegen.artifact` compiles it, on machines with a
        # device too.
        "TVM_COMPILE_FORCE_FALLBACK": "1",
        **HOARDING,
    }


def _result(outcome: Outcome, build_s: float) -> Built | Measurement:
    if isinstance(outcome, Raised) and outcome.fault:
        return Measurement(Status.BUILD_FAILED, error=outcome.fault, fault=outcome.fault)
    if not isinstance(outcome, Returned):
        return Measurement(Status.BUILD_FAILED, error=f"build: {outcome}", build_s=build_s)
    answer: BuildAnswer = outcome.value
    if answer.status is not Status.OK:
        return Measurement(answer.status, error=answer.error, build_s=build_s)
    sha256 = hashlib.sha256(answer.artifact).hexdigest()
    return Built(answer.artifact, build_s, sha256, answer.written)
