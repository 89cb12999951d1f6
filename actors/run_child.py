"""The child process of a runner: loads an artifact, checks its output, times it."""

from __future__ import annotations

import hashlib
import math
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from spaces.ir.lean_tvm import import_tvm_lean
from tuner.effort import Timing
from tuner.layers import OURS, Layers
from tuner.source import Source
from tuner.task import Instance, Task
from tuner.user_code.faults import LayerFailed, blamed
from tuner.user_code.load import load

if TYPE_CHECKING:
    import numpy.typing as npt

    from spaces.check.reference import Case, Reference
    from spaces.codegen.artifact import Kernel

_REFERENCES_BYTES = 768 << 20
"""The size up to which references are kept in memory; the last one always is."""
_CHECKS = 2
"""The number of times that an artifact is checked on one shape, with all draws unless it is slow:
an output may be right by luck of the threads once. After that, an artifact that comes again is only
timed."""
_PASSED_KEPT = 10_000
_MAX_RUNS = 1_000_000
_SPIN_S = 0.15
"""A library's threads look for work for up to 0.1 s after a call, on the cores that the next kernel
is timed on."""
_BOTH_S = 0.5
"""A kernel with a longer run is checked with one draw at a time: an unscheduled program must not
hold up all others."""
_SINGLY = 4
"""A run as long as this many samples is timed by itself. The call, some microseconds, hardly counts
then, and the evaluator would run the kernel once more for each group of samples."""
_HOPELESS = 2.0
_HOPELESS_FLOOR_S = 0.020
"""A first run of more than this many cutoffs, and this long, is enough to cut a kernel off: warming
up, the launch, and a few time slices lost to a stranger do not explain it."""


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


@dataclass(frozen=True, slots=True)
class Timed:
    """The samples, in seconds for one run; a single one if the kernel was cut off."""

    samples_s: tuple[float, ...]
    censored: bool = False


@lru_cache(maxsize=1)
def _timer_of(source: Source) -> Any:
    """A user's runner, made once in a process."""
    with blamed(source, "runner"):
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

        import spaces.check.reference
        import spaces.codegen.artifact  # noqa: F401
        from spaces.targets.target import device_of

        actual = tvm.runtime.num_threads()
        if threads is not None and actual != threads:
            raise RuntimeError(f"thread count: TVM uses {actual}, the target has {threads}")
        self._target = target
        self._device = device_of(target)
        self._scratch, self._salt = scratch, salt
        self._timer, self._libraries = layers.runner, layers.libraries
        self._spins_s = 0.0
        self._references: OrderedDict[tuple[str, Instance], Reference] = OrderedDict()
        self._passed: OrderedDict[tuple[str, Instance, bytes], int] = OrderedDict()
        self._loaded: Any = None
        self._tensors: list[Any] = []
        self._arguments: list[Any] = []

    def about(self) -> tuple[str, str]:
        """Fingerprints of the device and of the toolchain."""
        from spaces.passes.toolchain import toolchain_fingerprint
        from spaces.targets.target import device_fingerprint

        return device_fingerprint(self._target), toolchain_fingerprint()

    def knows(self, task_key: str, instance: Instance) -> bool:
        """Whether the child has the reference of this task and shape; if not, `learn` makes it."""
        key = (task_key, instance)
        if key in self._references:
            self._references.move_to_end(key)
        return key in self._references

    def learn(self, task: Task, instance: Instance) -> None:
        """Compute the reference of a task for one shape, or find it in the scratch folder."""
        import tvm

        from spaces.check.reference import reference
        from spaces.ir.symbolic import specialised

        module = specialised(tvm.ir.load_json(task.module), dict(instance))
        salt = [self._salt] if self._salt else []
        seed = "-".join([task.key, *(f"{name}{value}" for name, value in instance), *salt])
        found = reference(module, seed, self._scratch / "references")
        self._references[task.key, instance] = found
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

    def prepare(self, task_key: str, instance: Instance, artifact: bytes) -> Checked:
        """Load an artifact, run it on each draw, and compare its output. It stays loaded for
        `time`, with the last draw.

        An artifact that passed twice on this shape is only loaded; a slow one is run on one draw,
        and on the other when it comes again. Constant operands that it takes in another layout are
        packed first, outside the run, as a compiled model does when it is made.
        """
        from spaces.codegen.artifact import load_kernel

        if self._timer is not None:
            _timer_of(self._timer)  # its file may import much, and `time` must not wait for that
        known = self._references[task_key, instance]
        self.drop()
        loaded = load_kernel(artifact)
        self._loaded = loaded.module
        pair = (task_key, instance, hashlib.sha256(artifact).digest())
        passed, timed_on, first_s = self._passed.get(pair, 0), known.cases[-1], 0.0
        if passed >= _CHECKS:
            self._feed(loaded, timed_on)
            return Checked("", 0.0)
        for case in known.cases[passed:] + known.cases[:passed]:
            self._feed(loaded, case)
            run_s = self._run_once()
            first_s = first_s or run_s
            if error := how_wrong(case, self._tensors):
                return Checked(error, first_s)
            if run_s > _BOTH_S:
                break
        if case is not timed_on:
            self._feed(loaded, timed_on)
        self._note_passed(pair)
        return Checked("", first_s)

    def _feed(self, loaded: Kernel, case: Case) -> None:
        """Set the arguments to their values before a run."""
        import tvm

        self._arguments, self._tensors = [], []  # free those of another draw first
        self._tensors = [
            tvm.runtime.tensor(case.fresh(i), self._device) for i in range(len(case.arguments))
        ]
        self._arguments = loaded.arguments(self._tensors, self._device)

    def _note_passed(self, pair: tuple[str, Instance, bytes]) -> None:
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
            return self._timed(timing, cutoff_s)
        finally:
            time.sleep(self._spins_s)

    def _timed(self, timing: Timing, cutoff_s: float | None) -> Timed:
        """Time the artifact that `prepare` loaded.

        Each step up to full timing (see `Timing`) costs more, and fewer kernels take it.

        Raises:
            LayerFailed: a user's runner is at fault.
        """
        if self._timer is not None:
            return self._time_theirs(self._timer, timing, cutoff_s)
        first_s = self._run_once()
        if cutoff_s is not None and first_s > max(_HOPELESS * cutoff_s, _HOPELESS_FLOOR_S):
            return Timed((first_s,), censored=True)
        if first_s > timing.long_s:  # such as an unscheduled program, which holds up all others
            again = () if first_s > timing.once_s else (self._run_once(),)
            return Timed((first_s, *again))
        if first_s > _SINGLY * timing.sample_s:
            return self._time_singly(timing, cutoff_s, first_s)
        kernel = self._loaded.get_function("main", query_imports=True)
        for _ in range(timing.warmup_runs - 2):  # the run above was one; the evaluator adds one
            kernel(*self._arguments)
        estimate_s = self._evaluate(1, 1)[0]
        if not (math.isfinite(estimate_s) and estimate_s > 0):
            return Timed((estimate_s,))
        if cutoff_s is not None and estimate_s > cutoff_s:
            # A stranger may have slowed one run down, but a candidate is cut off for good.
            estimate_s = min(first_s, estimate_s, self._run_once())
            if estimate_s > cutoff_s:
                return Timed((estimate_s,), censored=True)
        if estimate_s < timing.sample_s / 50:  # one run is mostly overhead: look closer
            estimate_s = self._evaluate(_runs(timing.sample_s / 10, estimate_s), 1)[0]
        runs = _runs(timing.sample_s, estimate_s)
        # The estimate was one warm run, which is what a sample of a slow kernel is.
        samples: tuple[float, ...] = (estimate_s,) if runs == 1 else ()
        samples += self._samples(runs, timing.min_samples - len(samples))
        if min(samples) > timing.near_s(cutoff_s):
            return Timed(samples)
        wanted = min(max(int(timing.total_s / (runs * estimate_s)), 1), timing.max_samples)
        return Timed(samples + self._samples(runs, wanted - len(samples)))

    def _time_theirs(self, source: Source, timing: Timing, cutoff_s: float | None) -> Timed:
        theirs = _timer_of(source)
        with blamed(source, "runner, time", always=False):
            found = theirs.time(self._loaded, self._arguments, self._device, timing, cutoff_s)
        try:
            samples = tuple(float(sample) for sample in found)
        except (TypeError, ValueError) as error:
            raise LayerFailed(f"{source.file}: time gave {found!r}, no samples (runner)") from error
        if not samples:
            raise LayerFailed(f"{source.file}: time gave no samples (runner)")
        return Timed(samples, censored=cutoff_s is not None and min(samples) > cutoff_s)

    def _time_singly(self, timing: Timing, cutoff_s: float | None, first_s: float) -> Timed:
        """Take samples of one run each. The run before them was the warm-up; it counts as a sample
        where it is so long that cold caches make no difference."""
        again_s = self._run_once()
        if cutoff_s is not None and min(first_s, again_s) > cutoff_s:
            return Timed((min(first_s, again_s),), censored=True)
        samples = (first_s, again_s) if first_s > timing.total_s else (again_s,)
        count = timing.min_samples
        if cutoff_s is None or again_s <= timing.near_s(cutoff_s):
            count = max(count, min(int(timing.total_s / again_s), timing.max_samples))
        return Timed((*samples, *(self._run_once() for _ in range(count - len(samples)))))

    def drop(self) -> None:
        """Free the loaded kernel and its tensors."""
        self._tensors, self._arguments = [], []
        self._loaded = None

    def _run_once(self) -> float:
        """Wall seconds of one run, launch included."""
        import time

        kernel = self._loaded.get_function("main", query_imports=True)
        self._device.sync()
        start_s = time.perf_counter()
        kernel(*self._arguments)
        self._device.sync()
        return time.perf_counter() - start_s

    def _samples(self, runs: int, count: int) -> tuple[float, ...]:
        return self._evaluate(runs, count) if count > 0 else ()

    def _evaluate(self, runs: int, samples: int) -> tuple[float, ...]:
        evaluator = self._loaded.time_evaluator("main", self._device, number=runs, repeat=samples)
        return tuple(float(s) for s in evaluator(*self._arguments).results)


def how_wrong(case: Case, tensors: Sequence[Any]) -> str:
    """The error in the arguments that a kernel has written; empty if they are right."""
    import numpy as np

    for i, arg in enumerate(case.arguments):
        got = tensors[i].numpy()
        if not arg.written:
            if not np.array_equal(_raw(got), _raw(case.fresh(i))):
                return f"it overwrote its input {arg.name}"
        elif (error := case.wrong(i, got)) is not None:
            return f"output {arg.name}: {error}"
    return ""


def _raw(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """The contents as integers, which compare in a tenth of the time, also where NaN."""
    return array.view(f"u{array.dtype.itemsize}")


def _runs(span_s: float, run_s: float) -> int:
    """The number of runs that fill a span."""
    if not (math.isfinite(run_s) and run_s > 0):
        return 1
    return max(1, min(_MAX_RUNS, math.ceil(span_s / run_s)))
