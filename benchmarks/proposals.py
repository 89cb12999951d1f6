"""How many proposals of TVM's own rules for a GPU are valid, and what each valid one costs.

    python -m benchmarks.proposals --out benchmarks/results/spaces/proposals.json
    python -m benchmarks.proposals --count 100 --binaries 10

For each program: fresh samples and mutations of them, as a search drafts them, and as stock
MetaSchedule's do (random decisions, TVM's mutators, its post-processors). `valid` is the share that
all post-processors take; of these `--binaries` are compiled by nvcc, `compiled` says how many are.
`refused_though_valid` is the share of stock's valid points that the analysis of decisions refuses,
since the sums of a thread do not fit its registers, which TVM does not count.
Costs are CPU seconds of this process for each valid proposal. No GPU is needed.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.machine import about
from spaces.codegen.artifact import build_artifact
from spaces.design_space.point import Point
from spaces.design_space.schedule_rules import postprocess, task_rules
from spaces.design_space.trace_space import TraceSpace
from spaces.ir.schedules import InvalidCandidate, code_hash, new_schedule, task_module
from spaces.lowering.extract_tasks import task_of
from spaces.targets.target import resolve_target
from tuner.candidate import Draft
from tuner.errors import first_line
from tuner.task import Task

TARGET = (
    '{"kind":"cuda","arch":"sm_80","max_threads_per_block":1024,'
    '"max_shared_memory_per_block":49152,"thread_warp_size":32,"registers_per_block":65536}'
)
_PROGRAMS = {
    "gemm float32 1024": (1024, 1024, 1024, "float32"),
    "gemm float32 1000x333x517": (1000, 333, 517, "float32"),
    "gemm float16 1024": (1024, 1024, 1024, "float16"),
}
_STOCK_TRIES = 60
"""Stock's proposals for each valid one that is wanted, at most."""


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Both kinds of proposals for each program."""
    target = resolve_target(TARGET)
    rows = {}
    for name, (m, n, k, dtype) in _PROGRAMS.items():
        task = task_of(_gemm(m, n, k, dtype), target, name=name)
        rows[name] = _row(task, options)
        print(name, json.dumps(rows[name]), flush=True)
    return {"machine": about(), "count": options.count, "rows": rows}


def _row(task: Task, options: argparse.Namespace) -> dict[str, Any]:
    space = TraceSpace(task)
    sketches = space.sketches  # rules are applied outside of what is timed
    fresh = _drafted(space, options.count, lambda n: Draft(task.key, n, n))
    parents = [point.candidate for point in fresh.points]
    mutated = _drafted(
        space, options.count, lambda n: Draft(task.key, n, n, parents[n % len(parents)])
    )
    stock = _stock(task, sketches, options.stock)
    refused = [trace for trace in stock.points if space.why_not(trace)]
    known = {point.code_hash for point in (*fresh.points, *mutated.points)}
    return {
        "fresh": fresh.told(),
        "mutated": mutated.told(),
        "stock": stock.told(),
        "distinct": len(known) / max(1, len(fresh.points) + len(mutated.points)),
        "refused_though_valid": len(refused) / max(1, len(stock.points)),
        "cost_over_stock": fresh.cpu_ms / stock.cpu_ms,
        "compiled": _compiled(task, space, fresh.points, mutated.points, options.binaries),
    }


@dataclass(frozen=True, slots=True)
class Proposals:
    """Proposals of one kind: how many were tried, the valid ones, and what all cost."""

    tried: int
    points: list[Any]
    cpu_s: float

    @property
    def cpu_ms(self) -> float:
        """For each valid one."""
        return 1e3 * self.cpu_s / max(1, len(self.points))

    def told(self) -> dict[str, Any]:
        """As plain data."""
        valid = len(self.points) / self.tried
        return {"tried": self.tried, "valid": valid, "cpu_ms_per_valid": self.cpu_ms}


def _drafted(space: TraceSpace, count: int, draft: Callable[[int], Draft]) -> Proposals:
    made: list[Point] = []
    began_s = time.process_time()
    for number in range(count):
        try:
            made.append(space.realize_draft(draft(number)))
        except InvalidCandidate:
            continue
    cpu_s = time.process_time() - began_s
    return Proposals(count, [point for point in made if _is_valid(space, point)], cpu_s)


def _is_valid(space: TraceSpace, point: Point) -> bool:
    """Whether all post-processors take a point, those included that are left to builders."""
    try:
        space.write(point.candidate)
    except InvalidCandidate:
        return False
    return True


def _stock(task: Task, sketches: Any, wanted: int) -> Proposals:
    """Traces with random decisions of TVM's, checked by its post-processors alone."""
    from tvm.s_tir.schedule import Trace

    rules, rng = task_rules(task.module, task.target), random.Random(0)
    traces: list[Any] = []
    tried, began_s = 0, time.process_time()
    while len(traces) < wanted and tried < _STOCK_TRIES * wanted:
        tried += 1
        schedule = new_schedule(task_module(task.module), rng.randrange(1, 2**31 - 1))
        try:
            Trace(rng.choice(sketches).insts, {}).apply_to_schedule(schedule, True)
            trace = schedule.trace
            postprocess(schedule, rules)
        except Exception:  # TVM raises whatever its C++ side threw
            continue
        code_hash(schedule.mod)  # ours is told, too
        traces.append(trace)
    return Proposals(tried, traces, time.process_time() - began_s)


def _compiled(
    task: Task, space: TraceSpace, fresh: list[Point], mutated: list[Point], count: int
) -> dict[str, Any]:
    chosen = [*fresh[: count // 2], *mutated[: count - count // 2]]
    failed = []
    for point in chosen:
        try:
            build_artifact(space.write(point.candidate).mod, task.target)
        except Exception as error:  # TVM and nvcc raise what they like
            failed.append(first_line(error))
    share = 1 - len(failed) / len(chosen) if chosen else None
    return {"tried": len(chosen), "share": share, "failed": failed[:3]}


def _gemm(m: int, n: int, k: int, dtype: str) -> Any:
    from tvm import te, topi

    a, b = te.placeholder((m, k), dtype, name="a"), te.placeholder((k, n), dtype, name="b")
    return te.create_prim_func([a, b, topi.nn.matmul(a, b)])


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.proposals")
    parser.add_argument("--count", type=int, default=1000, help="fresh ones, and mutations")
    parser.add_argument("--stock", type=int, default=500, help="valid points of stock's to look at")
    parser.add_argument("--binaries", type=int, default=40, help="proposals that nvcc compiles")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    # As builders do: code stays source until nvcc compiles it, with a device or without.
    os.environ["TVM_COMPILE_FORCE_FALLBACK"] = "1"
    result = measure(options)
    if options.out:
        options.out.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
