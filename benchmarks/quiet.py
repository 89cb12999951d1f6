"""A/A test of the quiet lock: how far busy builders move the median of one fixed kernel.

    python -m benchmarks.quiet [--rounds 15] [--builders 2] [--json]

The same kernel is timed alone, with builders that compile all the time but are frozen while it
is timed, and with the same builders left running. The three take turns, so that what else the
machine does falls on all of them alike. The shift of the quiet case should be at most 3 %.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from actors.quiet_lock import Quiet
from actors.runner import Runner
from benchmarks.machine import about
from tuner.effort import EFFORTS
from tuner.process.child import Child
from tuner.process.outcome import Returned
from tuner.record import Status
from tuner.task import Task

_DEADLINE_S = 120.0
_LEAD_S = 0.1
"""How long builders work before the kernel is timed."""
_SIZE = 256


class BusyBuilder:
    """Compiles the same program over and over. Made in a child process."""

    def __init__(self, task: Task) -> None:
        self._task = task

    def compile_for(self, seconds: float) -> int:
        """How many builds it managed."""
        import tvm

        from spaces.codegen.artifact import build_artifact

        module, count = tvm.ir.load_json(self._task.module), 0
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            build_artifact(module, self._task.target)
            count += 1
        return count


class Load:
    """Builders that idle until they are set to work."""

    def __init__(self, task: Task, builders: int, quiet: Quiet, log: Path) -> None:
        self._quiet = quiet
        self._children = [
            Child("benchmarks.quiet:BusyBuilder", (task,), log=log) for _ in range(builders)
        ]
        for child in self._children:
            if not isinstance(outcome := child.ready(_DEADLINE_S), Returned):
                raise RuntimeError(f"builder: {outcome}")

    @contextmanager
    def working(self, *, frozen: bool) -> Iterator[None]:
        """All of them compile, until the context ends; frozen with the node, or not."""
        stop = threading.Event()
        threads = [
            threading.Thread(target=self._work, args=(child, stop, frozen))
            for child in self._children
        ]
        for thread in threads:
            thread.start()
        time.sleep(_LEAD_S)
        try:
            yield
        finally:
            stop.set()
            for thread in threads:
                thread.join()

    def close(self) -> None:
        """End them all."""
        for child in self._children:
            child.close()

    def _work(self, child: Child, stop: threading.Event, frozen: bool) -> None:
        watch = self._quiet.watch(child.pid) if frozen else None
        if frozen:
            self._quiet.register(child.pid)
        while not stop.is_set():
            outcome = child.call("compile_for", 0.2, deadline_s=_DEADLINE_S, frozen_s=watch)
            if not isinstance(outcome, Returned):
                break
        self._quiet.unregister(child.pid)


def fixed_kernel(cores: int) -> tuple[Task, bytes]:
    """A product of matrices with its rows in parallel, and its artifact."""
    import tvm
    from tvm import te

    from spaces.codegen.artifact import build_artifact
    from spaces.targets.target import resolve_target

    target = resolve_target("llvm", cores=cores)
    a = te.placeholder((_SIZE, _SIZE), name="A")
    b = te.placeholder((_SIZE, _SIZE), name="B")
    k = te.reduce_axis((0, _SIZE), name="k")
    c = te.compute((_SIZE, _SIZE), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C")
    module = tvm.IRModule({"main": te.create_prim_func([a, b, c])})
    schedule = tvm.s_tir.Schedule(module)
    rows, columns, terms = schedule.get_loops(schedule.get_sblock("C"))
    schedule.reorder(rows, terms, columns)
    schedule.parallel(rows)
    task = Task("aa-test", "matmul", tvm.ir.save_json(module), target)
    return task, build_artifact(schedule.mod, target)


def measure(rounds: int, builders: int, cores: int) -> dict[str, Any]:
    """Median of each case in each round, and how far it lies from the kernel alone."""
    task, artifact = fixed_kernel(cores)
    medians: dict[str, list[float]] = {"alone": [], "quiet": [], "loud": []}
    with tempfile.TemporaryDirectory(prefix="quiet-") as made:
        folder = Path(made)
        quiet = Quiet(folder / "quiet")
        runner = Runner(target=task.target, log_dir=folder, scratch=folder, quiet=quiet)
        load = Load(task, builders, quiet, folder / "builders.log")
        try:
            _time(runner, task, artifact)  # warms the child and the reference
            for _ in range(rounds):
                medians["alone"].append(_time(runner, task, artifact))
                for case in ("quiet", "loud"):
                    with load.working(frozen=case == "quiet"):
                        medians[case].append(_time(runner, task, artifact))
        finally:
            load.close()
            runner.close()
    return summary(medians, rounds=rounds, builders=builders, cores=cores)


def summary(medians: dict[str, list[float]], **settings: int) -> dict[str, Any]:
    """The printed object: milliseconds of each case, and its shift in percent."""
    middle = {case: statistics.median(times) for case, times in medians.items()}
    return {
        **settings,
        **{f"{case}_ms": 1e3 * value for case, value in middle.items()},
        **{
            f"{case}_shift_percent": 100 * (middle[case] / middle["alone"] - 1)
            for case in ("quiet", "loud")
        },
        "rounds_ms": {case: [1e3 * t for t in times] for case, times in medians.items()},
    }


def _time(runner: Runner, task: Task, artifact: bytes) -> float:
    measured = runner.run(
        task,
        artifact,
        timing=EFFORTS["normal"].finalist_timing,
        cutoff_s=None,
        deadline_s=_DEADLINE_S,
    )
    if measured.status is not Status.OK or measured.latency_s is None:
        raise RuntimeError(f"the kernel was not timed: {measured.status}: {measured.error}")
    return measured.latency_s


def main() -> None:
    """Run the test and print it."""
    from spaces.targets.cores import usable_cores

    parser = argparse.ArgumentParser(description="A/A test of the quiet lock.")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--builders", type=int, default=2)
    parser.add_argument("--cores", type=int, default=usable_cores())
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args()
    result = measure(options.rounds, options.builders, options.cores)
    if options.json:
        print(json.dumps({**result, "machine": about()}))
        return
    print(f"alone {result['alone_ms']:.4f} ms")
    for case in ("quiet", "loud"):
        print(f"{case} {result[f'{case}_ms']:.4f} ms, {result[f'{case}_shift_percent']:+.1f} %")


if __name__ == "__main__":
    main()
