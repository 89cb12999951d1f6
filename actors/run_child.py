"""The child process of a runner: loads an artifact, checks its output, times it."""

from __future__ import annotations

import hashlib
import logging
from collections import OrderedDict
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from actors.judged_kernels import JudgedKernels
from spaces.devices.ladder import Timed, time_kernel
from spaces.devices.stopwatch import NOTHING_LOADED, Loaded, Stopwatch
from spaces.emulation.library import DEADLINE_S
from spaces.ir.lean_tvm import import_tvm_lean
from tuner.effort import Timing
from tuner.layers import OURS, Layers
from tuner.request.target_text import arithmetic_of
from tuner.source import Source
from tuner.task import Instance, Task
from tuner.user_code.faults import LayerFailed, blame
from tuner.user_code.load import load

if TYPE_CHECKING:
    from spaces.check.case import Draw
    from spaces.check.choice import Judge
    from spaces.codegen.artifact import Kernel
    from spaces.devices.checker import Checker

_log = logging.getLogger(__name__)
_REFERENCES_BYTES = 768 << 20
"""The size up to which references are kept in memory; the last one always is."""
_CHECKS = 2
"""The number of times that an artifact is checked on one shape, with all draws unless it is slow:
an output may be right by luck of the threads once. After that, an artifact that comes again is only
timed."""
_PASSED_KEPT = 10_000
_SPIN_S = 0.15
"""A library's threads look for work for up to 0.1 s after a call, on the cores that the next kernel
is timed on."""
_LAUNCH_SHARE = 0.75
"""Of a deadline, the share that one launch may take on the emulated device: what it waited for can
be said in the rest."""
_BOTH_S = 0.5
"""A kernel with a longer run is checked with one draw at a time: an unscheduled program must not
hold up all others."""


_Shape = tuple[str, Instance]
_Pair = tuple[str, Instance, bytes]
"""A task, one of its shapes, and the digest of an artifact."""


@dataclass(frozen=True, slots=True)
class Checked:
    """The result of a check.

    Attributes:
        error: how the output differs from the unscheduled program's; empty if it does not.
        run_s: wall seconds of the first run, on a machine that need not be quiet; 0 for an artifact
            that had been checked before and was not run.
    """

    error: str
    run_s: float


@lru_cache(maxsize=1)
def _timer_of(source: Source) -> Any:
    """A user's runner, made once in a process."""
    with blame(source, "runner"):
        return load(source)()


class RunChild:
    """Holds one device. Made in a process of its own, with `thread_variables` set.

    Args:
        target: canonical JSON of the target, which names the device.
        threads: number of threads that TVM must use on a CPU; None requires nothing.
        scratch: folder that caches references.
        layers: of the user's: what times kernels in the place of ours, and libraries.
        salt: has other inputs drawn than those of any other salt; a run's own have none.

    Raises:
        RuntimeError: TVM uses another number of threads.
        TunerError: this machine has no such device.
    """

    def __init__(
        self,
        target: str,
        threads: int | None,
        scratch: Path,
        layers: Layers = OURS,
        salt: str = "",
    ) -> None:
        import_tvm_lean()
        import tvm

        import spaces.check.choice
        import spaces.codegen.artifact  # noqa: F401
        from spaces.targets.backends import backend_of
        from spaces.targets.backends import load as load_named
        from spaces.targets.target import device_of

        actual = tvm.runtime.num_threads()
        if threads is not None and actual != threads:
            raise RuntimeError(f"thread count: TVM uses {actual}, the target has {threads}")
        self._target = target
        self._device = device_of(target)
        row = backend_of(target)
        self._stopwatch: Stopwatch = load_named(row.stopwatch)(self._device, target)
        self._checker: Checker = load_named(row.checker)(self._device, target)
        self._scratch, self._salt = scratch, salt
        self._timer, self._libraries = layers.runner, layers.libraries
        self._spins_s = 0.0
        self._references: OrderedDict[_Shape, Judge] = OrderedDict()
        self._seeds: dict[_Shape, str] = {}
        self._judged = JudgedKernels(scratch / "references")
        self._passed: OrderedDict[_Pair, int] = OrderedDict()
        self._loaded = NOTHING_LOADED
        self._tensors: list[Any] = []

    def device(self) -> str:
        """The fingerprint of the device."""
        from spaces.targets.target import device_fingerprint

        return device_fingerprint(self._target)

    def knows(self, task_key: str, instance: Instance) -> bool:
        """Whether the child has the reference of this task and shape; if not, `learn` makes it."""
        key = (task_key, instance)
        if key in self._references:
            self._references.move_to_end(key)
        return key in self._references

    def learn(self, task: Task, instance: Instance) -> None:
        """Compute the reference of a task for one shape, or find it in the scratch folder; of a
        large one only some elements, see `spaces.check.choice`."""
        import tvm

        from spaces.check.choice import reference_of
        from spaces.ir.symbolic import specialise

        module = specialise(tvm.ir.load_json(task.module), dict(instance))
        salt = [self._salt] if self._salt else []
        seed = "-".join([task.key, *(f"{name}{value}" for name, value in instance), *salt])
        found = reference_of(
            module,
            seed,
            self._scratch / "references",
            arithmetic=arithmetic_of(task.target),
        )
        self._references[task.key, instance], self._seeds[task.key, instance] = found, seed
        kept_bytes = sum(known.size_bytes for known in self._references.values())
        while len(self._references) > 1 and kept_bytes > _REFERENCES_BYTES:
            _, dropped = self._references.popitem(last=False)
            kept_bytes -= dropped.size_bytes

    def use_library(self, space: str) -> None:
        """Register the functions of a library, whose threads outlive a call of theirs: use a child
        for nothing else from then on.

        Args:
            space: of the candidates that call it, with the version of its text.

        Raises:
            LayerFailed: the library is at fault.
            ValueError: it was not named with the run.
        """
        from spaces.libraries.registration import register_source, space_of

        named = next((each for each in self._libraries if space_of(each) == space), None)
        if named is None:
            raise ValueError(f"{space} is not named with --library")
        register_source(named)
        self._spins_s = _SPIN_S

    def prepare(
        self, task_key: str, instance: Instance, artifact: bytes, deadline_s: float = DEADLINE_S
    ) -> Checked:
        """Load an artifact, run it on each draw, and compare its output. It stays loaded for
        `time`, with the last draw.

        An artifact that passed twice on this shape is only loaded; a slow one is run on one draw,
        and on the other when it comes again. Constant operands that it takes in another layout are
        packed first, outside the run, as a compiled model does when it is made.

        Args:
            deadline_s: after which nobody waits for the answer.

        Raises:
            TimeoutError: a launch on the emulated device would never end; the text names what its
                threads wait for.
        """
        from spaces.codegen.artifact import load_kernel

        launch_s = deadline_s * _LAUNCH_SHARE
        if self._timer is not None:
            _timer_of(self._timer)  # its file may import much, and `time` must not wait for that
        shape = task_key, instance
        known = self._references[shape]
        self.drop()
        pair = (task_key, instance, hashlib.sha256(artifact).digest())
        passed, timed_on, first_s = self._passed.get(pair, 0), known.cases[-1], 0.0
        if not passed:
            self._judge_again(shape, launch_s)
        loaded = load_kernel(artifact, launch_s=launch_s)
        if passed >= _CHECKS:
            self._feed(loaded, timed_on)
            return Checked("", 0.0)
        cases: tuple[Draw, ...] = known.cases
        for case in cases[passed:] + cases[:passed]:
            error, run_s = self._check(loaded, case, pair)
            first_s = first_s or run_s
            if error:
                return Checked(error, first_s)
            if run_s > _BOTH_S:
                break
        if case is not timed_on:
            self._feed(loaded, timed_on)
        self._note_passed(pair)
        self._keep_judged(pair, artifact)
        return Checked("", first_s)

    def _check(self, loaded: Kernel, case: Draw, pair: _Pair) -> tuple[str, float]:
        """Run a kernel on a draw; return the error in its output, and the seconds of the run."""
        self._feed(loaded, case)
        run_s = self._stopwatch.run_once(self._loaded)
        error = self._checker.wrong(case, self._tensors)
        self._note_judgement(case, pair, error)
        return error, run_s

    def _judge_again(self, shape: _Shape, launch_s: float) -> None:
        """Have a kernel to compare others with, where another child had one."""
        from spaces.check.sampled_case import SampledCase
        from spaces.codegen.artifact import load_kernel

        known = self._references[shape]
        sampled = [case for case in known.cases if isinstance(case, SampledCase)]
        if not sampled or any(case.whole for case in sampled):
            return
        artifact = self._judged.take(self._seeds[shape])
        if artifact is None:
            return
        loaded = load_kernel(artifact, launch_s=launch_s)
        pair = (*shape, hashlib.sha256(artifact).digest())
        if not any(self._check(loaded, case, pair)[0] for case in sampled):
            self._keep_judged(pair, artifact)

    def _keep_judged(self, pair: _Pair, artifact: bytes) -> None:
        """Let another child compare kernels with this one, if this one does. A library's functions
        are in no other child."""
        from spaces.check.sampled_case import SampledCase

        *_, own = pair
        shape = pair[0], pair[1]
        cases = self._references[shape].cases
        if not self._spins_s and any(isinstance(c, SampledCase) and c.is_by(own) for c in cases):
            self._judged.put(self._seeds[shape], artifact)

    def _feed(self, loaded: Kernel, case: Draw) -> None:
        """Set the arguments to their values before a run."""
        self.drop()  # free those of another draw first
        self._tensors = self._checker.feed(case)
        arguments = loaded.arguments(self._tensors, self._device)
        self._loaded = Loaded(loaded.module, arguments)

    def _note_judgement(self, case: Draw, pair: _Pair, error: str) -> None:
        """Judge other kernels by this one's outputs, where there are no better ones, and none by
        those of a kernel that is wrong, which is checked again should it come again."""
        from spaces.check.sampled_case import SampledCase

        if not isinstance(case, SampledCase):
            return
        task_key, instance, own = pair
        disproved = case.take_disproved()
        for wrong in disproved:
            _log.warning("%s: kernel %s, which seemed right, is wrong", task_key, wrong.hex()[:12])
        for wrong in disproved | ({own} if error else set()):
            self._passed.pop((task_key, instance, wrong), None)
            for each in self._references[task_key, instance].cases:
                if isinstance(each, SampledCase):
                    each.forget(wrong)
        if not error and case.whole is None:
            written = [i for i, arg in enumerate(case.arguments) if arg.written]
            case.keep(own, {i: self._tensors[i].numpy() for i in written})

    def _note_passed(self, pair: _Pair) -> None:
        self._passed[pair] = self._passed.pop(pair, 0) + 1
        while len(self._passed) > _PASSED_KEPT:
            self._passed.popitem(last=False)

    def time(self, timing: Timing, cutoff_s: float | None) -> Timed:
        """Time the artifact that `prepare` loaded. Nothing else should run on the device meanwhile;
        nor does it while threads of a library may still look for work.

        Raises:
            LayerFailed: a user's runner is at fault.
        """
        import time

        try:
            if self._timer is not None:
                timed = self._time_theirs(self._timer, timing, cutoff_s)
            else:
                timed = time_kernel(self._stopwatch, self._loaded, timing, cutoff_s)
            return replace(timed, conditions=self._stopwatch.conditions())
        finally:
            time.sleep(self._spins_s)

    def _time_theirs(self, source: Source, timing: Timing, cutoff_s: float | None) -> Timed:
        theirs = _timer_of(source)
        with blame(source, "runner, time", always=False):
            loaded = self._loaded
            found = theirs.time(loaded.module, loaded.arguments, self._device, timing, cutoff_s)
        try:
            samples = tuple(float(sample) for sample in found)
        except (TypeError, ValueError) as error:
            raise LayerFailed(f"{source.file}: time gave {found!r}, no samples (runner)") from error
        if not samples:
            raise LayerFailed(f"{source.file}: time gave no samples (runner)")
        return Timed(samples, censored=cutoff_s is not None and min(samples) > cutoff_s)

    def drop(self) -> None:
        """Free the loaded kernel and its tensors."""
        self._tensors, self._loaded = [], NOTHING_LOADED
