"""Proposals for a GPU: what one costs, how many are right before anything is lowered, and how many
kernels are built in a second.

    python -m benchmarks.gpu.feasible --out benchmarks/results/gpu/feasible.json

Of each program of `benchmarks.gpu`'s and each architecture, `--count` drafts are carried out as a
search's first ones are, from all of the task's spaces; CPU time is given apart for the first, with
which templates rank their settings. `--builds` of those that came out are built as builders build
them, on all cores: a build that is refused, by TVM, by the compiler, for what a launch wants, or
because registers are spilled, was not feasible. Kernels in a second say little where `load`, the
processes that want a core, is above the number of cores. No GPU is needed.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import statistics
import sys
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.gpu.workloads import ON_A_DEVICE, Workload
from benchmarks.machine import about, spent_cpu_s
from tuner.candidate import Candidate, Draft, without_version
from tuner.files.atomic import write_bytes
from tuner.record import Status
from tuner.task import Task

if TYPE_CHECKING:
    from actors.build_child import BuildChild

_ARCHES = ("sm_80", "sm_90a")
_NAMES = (
    "product f32 1024",
    "product f16 2048",
    "decode f16 1x4096x4096",
    "open rows f32 ?x1024x1024",
    "convolution f32 3x3",
    "attention f16 32x2048x128",
    "softmax 4096x4096",
)
Build = tuple[str, str, float]
"""A status, what was said of one that failed, and seconds of a CPU."""


def main() -> int:
    """Run the command line."""
    flags = argparse.ArgumentParser(prog="python -m benchmarks.gpu.feasible")
    flags.add_argument("--count", type=int, default=100, help="proposals of each program")
    flags.add_argument("--builds", type=int, default=12, help="of these that are built")
    flags.add_argument("--only", help="one program, by its name")
    flags.add_argument("--out", type=Path)
    options = flags.parse_args()
    os.environ["TVM_COMPILE_FORCE_FALLBACK"] = "1"  # as in builders: the compiler is called by us
    cores = len(os.sched_getaffinity(0))
    chosen = [w for w in ON_A_DEVICE if w.name in ({options.only} if options.only else {*_NAMES})]
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(cores, mp_context=context) as pool:
        rows = [
            measure(pool, workload, arch, options.count, options.builds)
            for workload in chosen
            for arch in _ARCHES
        ]
    said = {**about(), "cores": cores, "rows": rows}
    text = json.dumps(said, indent=1) + "\n"
    print(text, end="")
    if options.out is not None:
        write_bytes(options.out, text.encode())
    return 0


def measure(
    pool: ProcessPoolExecutor, workload: Workload, arch: str, count: int, builds: int
) -> dict[str, Any]:
    """The row of a program on an architecture."""
    from spaces.targets.target import resolve_target

    task = workload.task(resolve_target(f'{{"kind":"cuda","arch":"{arch}"}}'))
    proposals, cpu_s = propose(task, count)
    distinct = [*dict.fromkeys(proposals)]
    built = distinct[:: max(len(distinct) // builds, 1)][:builds]
    began_s = time.perf_counter()
    answers = list(pool.map(build, [task] * len(built), built))
    wall_s = time.perf_counter() - began_s
    failures = Counter(said for status, said, _ in answers if status != Status.OK)
    return {
        "program": workload.name,
        "arch": arch,
        "proposals": count,
        "proposed": len(proposals) / count,
        "first_cpu_ms": 1e3 * cpu_s[0],
        "median_cpu_ms": 1e3 * statistics.median(cpu_s),
        "mean_cpu_ms": 1e3 * statistics.mean(cpu_s),
        "spaces": Counter(without_version(candidate.space) for candidate in proposals),
        "builds": len(built),
        "feasible": sum(status == Status.OK for status, *_ in answers) / max(len(answers), 1),
        "failures": dict(failures),
        "cpu_s_per_kernel": statistics.mean(spent_s for *_, spent_s in answers),
        "kernels_per_s": len(answers) / wall_s,
        "load": os.getloadavg()[0],
    }


def propose(task: Task, count: int) -> tuple[list[Candidate], list[float]]:
    """Candidates of a task's first drafts, and the CPU's seconds of each draft, also of those that
    gave none."""
    from spaces.design_space.task_space import TaskSpace
    from spaces.ir.schedules import InvalidCandidate

    space, found, cpu_s = TaskSpace(task), [], []
    for number in range(count):
        began_s = time.process_time()
        with suppress(InvalidCandidate):
            found.append(space.realize_draft(Draft(task.key, number + 1, number + 1)).candidate)
        cpu_s.append(time.process_time() - began_s)
    return found, cpu_s


def build(task: Task, candidate: Candidate) -> Build:
    """Build a candidate in this process."""
    child, before_s = _child(), spent_cpu_s()
    child.learn(task)
    answer = child.build(task.key, candidate)
    return str(answer.status), answer.error[:100], spent_cpu_s() - before_s


@cache
def _child() -> BuildChild:
    """A builder's, warm."""
    from actors.build_child import BuildChild
    from spaces.targets.target import resolve_target

    child = BuildChild()
    child.try_target(resolve_target('{"kind":"cuda","arch":"sm_80"}'))
    return child


if __name__ == "__main__":
    sys.exit(main())
