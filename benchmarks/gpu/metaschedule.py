"""MetaSchedule on a workload of the comparison: it tunes in a process of its own, and our builder
and runner time what it found as they time ours."""

from __future__ import annotations

import os
from collections.abc import Mapping
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

from actors.runner import Runner
from benchmarks import metaschedule_side
from benchmarks.gpu import ours
from benchmarks.race import MetaSchedules
from benchmarks.suites import Workload as Named
from spaces.codegen.cuda.nvcc import find_nvcc
from spaces.ir.cuda_runtime import package_folders
from tuner.effort import EFFORTS
from tuner.errors import TunerError, first_line

_BUILD_S = 300.0


def tune(
    side: ours.Side,
    folder: Path,
    pool: ProcessPoolExecutor,
    runner: Runner,
    *,
    trials: int,
    limit_s: float,
) -> dict[str, Any]:
    """Have it tune, and time its best.

    Args:
        pool: builds the best.
        limit_s: after which it is ended; what it found stays.
    """
    if side.workload.rows:
        return {"failure": "left out: it tunes known sizes"}
    cores = len(os.sched_getaffinity(0))
    order = metaschedule_side.order_for(
        Named(side.workload.name, ()),
        folder / f"metaschedule-{side.workload.name.replace(' ', '-')}",
        target=side.target,
        cores=cores,
        trials=trials,
        seed=0,
        as_shipped=False,
        timing=EFFORTS["normal"].timing,
        module=side.workload.task(side.target).module,
    )
    theirs = metaschedule_side.tune(
        order, cores=cores, limit_s=limit_s, variables=variables_for_cuda(os.environ)
    )
    said = metaschedule_side.facts(theirs)
    kept = ("failure", "wall_s", "trials", "trials_ok", "failed_builds", "errors")
    own_us = None if theirs.best_s is None else theirs.best_s * 1e6
    facts = {key: said[key] for key in kept} | {"by_its_own_clock_us": own_us}
    sample = pool.submit(build_best, side.workload.name, theirs.database, side.target)
    return facts | ours.time_other(runner, side, sample.result(_BUILD_S))


def variables_for_cuda(environ: Mapping[str, str]) -> dict[str, str]:
    """With these TVM by itself finds the compiler and the runtime that ours find by their paths."""
    folders = {"LD_LIBRARY_PATH": package_folders()}
    with suppress(TunerError):
        folders["PATH"] = [find_nvcc(environ).parent]
    return {
        name: os.pathsep.join([*map(str, added), *filter(None, [environ.get(name)])])
        for name, added in folders.items()
    }


def build_best(name: str, database: Path, target: str) -> ours.Sample:
    """The best of a database, built as our kernels are. In a process of the pool."""
    from spaces.codegen.artifact import build_artifact

    try:
        scheduled = MetaSchedules(database, target).scheduled()
        return ours.Sample(name, artifact=build_artifact(scheduled, target))
    except Exception as error:  # TVM raises whatever its C++ side threw
        return ours.Sample(name, error=first_line(error))
