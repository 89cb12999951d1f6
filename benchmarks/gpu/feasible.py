"""Proposals for a GPU: what one costs, how many are right before anything is lowered, and how many
kernels are built in a second.

    python -m benchmarks.gpu.feasible --out benchmarks/results/gpu/feasible.json

Of programs for all of our spaces and of each architecture, `--count` drafts are carried out as a
search's first ones are, from all of the task's spaces; CPU time is given apart for the first, with
which templates rank their settings. `--builds` of those that came out are built as builders build
them, on all cores: a build that is refused, by TVM, by the compiler, for what a launch wants, or
because registers are spilled, was not feasible; rows name its space. Kernels in a second say little
where `load`, the processes that want a core, is above the number of cores. No GPU is needed.
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
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.gpu.workloads import ON_A_DEVICE
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
    programs = list_programs()
    chosen = [options.only] if options.only else [*programs]
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(cores, mp_context=context) as pool:
        rows = [
            measure(pool, name, arch, programs[name](arch), options.count, options.builds)
            for name in chosen
            for arch in _ARCHES
        ]
    said = {**about(), "cores": cores, "rows": rows}
    text = json.dumps(said, indent=1) + "\n"
    print(text, end="")
    if options.out is not None:
        write_bytes(options.out, text.encode())
    return 0


def list_programs() -> dict[str, Callable[[str], Task]]:
    """What makes the task of a program for an architecture, by the program's name: programs of
    `benchmarks.gpu`, and some for spaces that those have nothing to do with."""
    from spaces.targets.target import resolve_target
    from tests.spaces.templates.gpu_memory.programs import TRANSPOSE
    from tests.spaces.templates.gpu_memory.programs import task_for as memory_task
    from tests.spaces.templates.tensor_cores import byte_products, convolutions, grouped_products
    from tests.spaces.templates.tensor_cores.products import Sizes, task_with
    from tuner.request.target_text import tf32

    def target(arch: str) -> str:
        return resolve_target(f'{{"kind":"cuda","arch":"{arch}"}}')

    def bytes_nt(sizes: Sizes) -> Any:
        return byte_products.matmul(sizes, nt=True)

    def of(name: str) -> Callable[[str], Task]:
        return lambda arch: by_name[name].task(target(arch))

    by_name = {workload.name: workload for workload in ON_A_DEVICE}
    large, experts = Sizes(2048, 2048, 2048), Sizes(4096, 1024, 1024, 8)
    layer = convolutions.LAYER
    return {name: of(name) for name in _NAMES} | {
        "product tf32 2048": lambda arch: by_name["product f32 2048"].task(tf32(target(arch))),
        "product int8 NT 2048": lambda arch: task_with(bytes_nt, large, target(arch)),
        "experts bf16 4096x1024x1024": lambda arch: task_with(
            grouped_products.turned, experts, target(arch)
        ),
        "convolution f16 3x3": lambda arch: convolutions.task_of_convolution(layer, target(arch)),
        "transpose 4096x4096": lambda arch: memory_task(TRANSPOSE, target(arch)),
    }


def measure(
    pool: ProcessPoolExecutor, name: str, arch: str, task: Task, count: int, builds: int
) -> dict[str, Any]:
    """The row of a program on an architecture."""
    proposals, cpu_s = propose(task, count)
    distinct = [*dict.fromkeys(proposals)]
    built = distinct[:: max(len(distinct) // builds, 1)][:builds]
    began_s = time.perf_counter()
    answers = list(pool.map(build, [task] * len(built), built))
    wall_s = time.perf_counter() - began_s
    failures = Counter(
        f"{without_version(candidate.space)}: {said}"
        for candidate, (status, said, _) in zip(built, answers, strict=True)
        if status != Status.OK
    )
    return {
        "program": name,
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
    builder, before_s = child(), spent_cpu_s()
    builder.learn(task)
    answer = builder.build(task.key, candidate)
    return str(answer.status), answer.error[:100], spent_cpu_s() - before_s


@cache
def child() -> BuildChild:
    """A builder's, warm."""
    from actors.build_child import BuildChild
    from spaces.targets.target import resolve_target

    child = BuildChild()
    child.try_target(resolve_target('{"kind":"cuda","arch":"sm_80"}'))
    return child


if __name__ == "__main__":
    sys.exit(main())
