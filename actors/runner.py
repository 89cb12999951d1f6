"""Measures artifacts on one device, in a child process, which a bad kernel may kill."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from actors.memory_limit import memory_bytes
from actors.quiet_lock import NotQuiet, Quiet
from actors.run_child import Checked
from actors.warm_child import HOARDING, WarmChild, was_killed
from spaces.devices.ladder import Timed
from spaces.devices.runtime import OUT_OF_MEMORY
from spaces.targets.backends import backend_of
from spaces.targets.config import target_cores
from spaces.targets.cores import thread_variables, usable_cores
from tuner.effort import Timing
from tuner.layers import OURS, Layers
from tuner.process.outcome import DeadlinePassed, Died, MemoryExceeded, Outcome, Raised, Returned
from tuner.record import Measurement, Status
from tuner.task import Instance, Task

_START_DEADLINE_S = 120.0
_DEVICE_ERROR = "cuda"
"""Part of the words of each error of the device's, whether TVM says it or `spaces.devices`."""
_RECYCLE_GROWTH_BYTES = 600 << 20
"""A child that has grown by this since its first trial holds only fragments of earlier trials'
memory; some 400 trials of small kernels make them. A task whose tensors alone are larger does not
cost a child for each trial, since they are there at its first."""
_SPINS = 20_000
"""The number of times that TVM's threads look for work before they sleep: some milliseconds, longer
than any pause between two timed runs. TVM's default of 300 000 keeps a core busy from one kernel to
the next, which builders could use."""
_CHILD = "actors.run_child:RunChild"
_QUIET_DEADLINE_S = 300.0
_FULL_TRIES = 3
"""Tries of a candidate on a device whose memory is taken."""
_HOPELESS = 8.0
_HOPELESS_FLOOR_S = 0.1
"""A first run that took more than this many cutoffs, and this long, is not timed at all: a
machine that is not quiet does not make a kernel that much slower."""


@dataclass(frozen=True, slots=True)
class Learned:
    """The result of making a task's reference.

    Attributes:
        error: why there is no reference; empty if there is one.
        learn_s: seconds of making it, without time spent frozen.
    """

    error: str
    learn_s: float


def longest_learn_s(deadline_s: float) -> float:
    """The longest time of `Runner.learn` with this deadline, without time spent frozen."""
    return 2 * (_START_DEADLINE_S + deadline_s)


def longest_run_s(deadline_s: float) -> float:
    """The longest time of `Runner.run` with this deadline, without time spent frozen."""
    return 2 * (_START_DEADLINE_S + 2 * deadline_s)


class Runner:
    """Runs artifacts one at a time. Used by one thread, which must live as long as it does.

    Args:
        target: canonical JSON of the target; a CPU's `num-cores` is the number of TVM's threads.
        log_dir: folder for the kernels' output.
        scratch: folder that caches references; may be emptied at any time.
        quiet: the node's quiet lock where the device is its CPU, else None.
        name: name of the log file.
        memory_limit_bytes: a child that reaches this is killed; None is half of all memory.
        recycle_growth_bytes: a child that grew by this since its first trial is replaced.
        layers, salt: see `RunChild`.
        child: factory of the child's object; a parameter for tests.
    """

    def __init__(
        self,
        *,
        target: str,
        log_dir: Path,
        scratch: Path,
        quiet: Quiet | None = None,
        name: str = "runner",
        memory_limit_bytes: int | None = None,
        recycle_growth_bytes: int = _RECYCLE_GROWTH_BYTES,
        layers: Layers = OURS,
        salt: str = "",
        child: str = _CHILD,
    ) -> None:
        self._quiet = quiet
        self._recycle_growth_bytes = recycle_growth_bytes
        self._lean_bytes = 0
        self._section_s = 0.0
        wrong = () if backend_of(target).on_host else (Status.WRONG,)
        self._harmless = (Status.OK, Status.CENSORED, *wrong)
        threads = target_cores(target) if backend_of(target).on_host else None
        self._child = WarmChild(
            child,
            (target, threads, scratch, *((layers, salt) if layers or salt else ())),
            env=_environment(threads),
            log=log_dir / f"{name}.log",
            quiet=quiet,
            memory_limit_bytes=memory_limit_bytes or memory_bytes() // 2,
        )

    def ready(self, deadline_s: float = _START_DEADLINE_S) -> None:
        """Have a warm child.

        Raises:
            RuntimeError: the child does not start; the text says why.
        """
        outcome = self._child.ready(deadline_s)
        if not isinstance(outcome, Returned):
            raise RuntimeError(f"runner did not start: {outcome}")

    def device(self) -> str:
        """The fingerprint of the device. Only after `ready`.

        Raises:
            RuntimeError: the child does not answer.
        """
        outcome = self._child.call("device", deadline_s=_START_DEADLINE_S)
        if not isinstance(outcome, Returned):
            raise RuntimeError(f"runner cannot tell its device: {outcome}")
        return str(outcome.value)

    def learn(self, task: Task, instance: Instance, deadline_s: float) -> Learned:
        """Make the reference of a task: the right output, which kernels' outputs are compared with.

        It may take long, since that program is not optimised. `run` only looks the reference up, so
        call this first. After a failure in a child that ran kernels before, this is tried once more
        in a fresh one.

        Args:
            instance: the shape, for a task with symbolic dimensions.
            deadline_s: without time spent frozen.

        Raises:
            RuntimeError: there is no child to make it, which is not the task's fault.
        """
        elapsed_s = self._child.stopwatch()
        tries = 0
        while True:
            tries += 1
            self.ready()
            fresh = self._child.fresh
            outcome = self._learn(task, instance, deadline_s)
            if isinstance(outcome, Returned):
                return Learned("", elapsed_s())
            self._child.replace()
            if was_killed(outcome, tries):
                continue
            if fresh or not _may_be_anothers(outcome):
                return Learned(str(outcome), elapsed_s())

    def run(
        self,
        task: Task,
        artifact: bytes,
        *,
        timing: Timing,
        cutoff_s: float | None,
        deadline_s: float,
        instance: Instance = (),
        library: str = "",
    ) -> Measurement:
        """Check an artifact's output and time it.

        After a crash in a child that had run other artifacts before, this is tried once more in a
        fresh one: the others may be at fault. The same holds for an error of the device, which an
        artifact that seemed to end well may have left in its context. A child killed from outside
        is not the artifact's fault, nor is a device whose memory others took. A child in which
        anything failed is not used again; one on a device is, after a wrong output, which cannot
        have spoilt the host's memory.

        Args:
            cutoff_s: a kernel slower than this is CENSORED with the one sample it gave.
            deadline_s: for loading, checking and timing, without time spent frozen; the same again
                for finding the reference that `learn` made.
            instance: the shape to measure, for a task with symbolic dimensions.
            library: the space of a library of the user's that the artifact calls; empty is none. It
                gets a child of its own, and nothing is timed while the library's threads may still
                look for work.

        Returns:
            OK, CENSORED, RUN_FAILED, WRONG or TIMEOUT; UNCHECKED where there is no reference; LOST
            where the device had no memory left, each time.
        """
        tries = 0
        if library and not self._child.fresh:
            self._child.replace()
        while True:
            tries += 1
            started = self._child.ready(_START_DEADLINE_S)
            if was_killed(started, tries):
                continue
            if not isinstance(started, Returned):
                return _fail(f"runner did not start: {started}")
            fresh, self._child.fresh = self._child.fresh, False
            elapsed_s, self._section_s = self._child.stopwatch(), 0.0
            result: Outcome | Measurement = Returned(None)
            if library:
                result = self._child.call("use_library", library, deadline_s=deadline_s)
            if isinstance(result, Returned):
                result = self._measure(task, instance, artifact, timing, cutoff_s, deadline_s)
            measured = _judge(result)
            if measured.status not in self._harmless or bool(library) or self._has_grown(fresh):
                self._child.replace()
            full = _is_full(result)
            if was_killed(result, tries) or (full and tries < _FULL_TRIES):
                continue
            if full:
                measured = replace(measured, status=Status.LOST)
            if full or fresh or not _may_be_anothers(result):
                return replace(measured, run_s=elapsed_s() + self._section_s)

    def close(self) -> None:
        """Stop the child and remove what it left on disk."""
        self._child.close()

    def leave(self) -> None:
        """Remove its files on disk, from any thread of a process that is about to end."""
        self._child.leave()

    def _has_grown(self, fresh: bool) -> bool:
        size_bytes = self._child.rss_bytes()
        if fresh:
            self._lean_bytes = size_bytes
        return size_bytes - self._lean_bytes > self._recycle_growth_bytes

    def _measure(
        self,
        task: Task,
        instance: Instance,
        artifact: bytes,
        timing: Timing,
        cutoff_s: float | None,
        deadline_s: float,
    ) -> Outcome | Measurement:
        """Check and time an artifact. Return its measurement, or the outcome of the call that
        failed."""
        outcome = self._learn(task, instance, deadline_s)
        if isinstance(outcome, Died) and outcome.from_outside:
            return outcome
        if not isinstance(outcome, Returned):
            return Measurement(Status.UNCHECKED, error=f"reference output: {outcome}")
        elapsed_s = self._child.stopwatch()
        # A kernel without a time to beat may be an unscheduled program, which must not run twice.
        alone = self._quietly if cutoff_s is None else self._child.call
        outcome = alone("prepare", task.key, instance, artifact, deadline_s, deadline_s=deadline_s)
        if not isinstance(outcome, Returned):
            return outcome
        checked: Checked = outcome.value
        if checked.error:
            return Measurement(Status.WRONG, error=checked.error)
        if cutoff_s is None:
            if checked.run_s > timing.once_s:
                return Measurement(Status.OK, (checked.run_s,))
        elif (first_s := min(checked.run_s, elapsed_s())) > _hopeless_s(cutoff_s):
            return Measurement(Status.CENSORED, (first_s,))
        left_s = max(0.0, deadline_s - elapsed_s() - self._section_s)
        outcome = self._quietly("time", timing, cutoff_s, deadline_s=left_s)
        if not isinstance(outcome, Returned):
            return outcome
        timed: Timed = outcome.value
        status = Status.CENSORED if timed.censored else Status.OK
        return Measurement(status, timed.samples_s, conditions=timed.conditions)

    def _learn(self, task: Task, instance: Instance, deadline_s: float) -> Outcome:
        """Make sure that the child has the task's reference; a failure is no candidate's fault."""
        outcome = self._child.call("knows", task.key, instance, deadline_s=deadline_s)
        if outcome != Returned(False):
            return outcome
        return self._child.call("learn", task, instance, deadline_s=deadline_s)

    def _quietly(self, name: str, *args: Any, deadline_s: float) -> Outcome:
        """Call the child while nothing else runs, with a deadline of at most the time that the node
        may be frozen."""
        if self._quiet is None:
            return self._child.call(name, *args, deadline_s=deadline_s)
        try:
            with self._quiet.section(_QUIET_DEADLINE_S, spare=(self._child.pid,)):
                start_s = time.monotonic()
                deadline_s = min(deadline_s, self._quiet.limit_s)
                outcome = self._child.call(name, *args, deadline_s=deadline_s, freezable=False)
                self._section_s += time.monotonic() - start_s
                return outcome
        except NotQuiet as error:
            return Raised("NotQuiet", str(error))


def _hopeless_s(cutoff_s: float) -> float:
    return max(_HOPELESS * cutoff_s, _HOPELESS_FLOOR_S)


def _environment(threads: int | None) -> dict[str, str]:
    """Environment of the child. `threads` is None where kernels do not run on the CPU, whose cores
    then all compute references."""
    if threads is None:
        return {**HOARDING, "TVM_NUM_THREADS": str(usable_cores())}
    return {
        **HOARDING,
        **thread_variables(threads),
        "OMP_NUM_THREADS": str(threads),
        "TVM_THREAD_POOL_SPIN_COUNT": str(_SPINS),
    }


def _judge(result: Outcome | Measurement) -> Measurement:
    """The measurement that a result stands for."""
    match result:
        case Measurement():
            bad = [s for s in result.samples_s if not (math.isfinite(s) and s > 0)]
            if bad or (result.status is Status.OK and not result.samples_s):
                return _fail(f"a sample is no time: {bad[0] if bad else 'none was taken'}")
            return result
        case DeadlinePassed() | Raised(kind="TimeoutError", fault=""):
            return Measurement(Status.TIMEOUT, error=str(result))
        case Raised() if result.fault:
            return replace(_fail(result.fault), fault=result.fault)
        case _:
            return _fail(str(result))


def _is_full(result: Outcome | Measurement) -> bool:
    """Whether the device had no memory left. A candidate's own tensors fit, since its task's
    reference did, so others have it."""
    return isinstance(result, Raised) and any(word in str(result) for word in OUT_OF_MEMORY)


def _may_be_anothers(result: Outcome | Measurement) -> bool:
    """Whether a kernel that the child ran before may have caused a failure."""
    if isinstance(result, Raised):
        return _DEVICE_ERROR in str(result).lower()
    return isinstance(result, Died | MemoryExceeded)


def _fail(error: str) -> Measurement:
    return Measurement(Status.RUN_FAILED, error=error)
