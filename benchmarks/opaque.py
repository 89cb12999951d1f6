"""One template searched as a trace and as an opaque function: does it matter which?

    python -m benchmarks.opaque --trials 64 --repeats 5 --out benchmarks/results/spaces/opaque.json

The template is in `benchmarks/tiled_space.py`; it draws the same either way. `valid`: the share of
fresh drafts, and of mutations, that are points; `cpu_ms`: of this process for each point. `trials`:
how many trials a search with each needed until it was within 5 % of the best of both, one row for
each seed; `best_ms` is of the search. The numbers end with ratios, opaque over trace.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks import our_side
from benchmarks.command import Rows, common_flags, cores_of, fresh, run_main, settings_of, workplace
from tuner import checks
from tuner.candidate import Draft
from tuner.task import SpaceSource, Task

_FILE = Path(__file__).with_name("tiled_space.py")
_MODEL = [str(Path(__file__).parents[1] / "examples" / "mixed_space.py") + ":program"]
_SIZES = {"m": 768, "n": 480, "k": 512}
_KINDS = ("AS_TRACE", "AS_OPAQUE")
_DRAFTS = 2000
_NEAR = 1.05


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Draft from both, then search with both, once for each seed."""
    target, cores = cores_of(options.target)
    settings = {**settings_of(options, target, cores), "sizes": _SIZES}
    drafted = {kind: _drafted(kind, str(settings["target"])) for kind in _KINDS}
    rows = Rows(options.out, settings)
    for number in range(options.repeats):
        if not rows.has({"repeat": number}):
            rows.add({"repeat": number, **_searched(number, options, str(settings["target"]))})
    return rows.finish({"drafts": drafted, **_summary(rows.rows, drafted)})


def _drafted(kind: str, target: str) -> dict[str, Any]:
    from examples.mixed_space import program
    from spaces.design_space.declared.spaces import find_declared
    from spaces.lowering.extract_tasks import task_of

    task = task_of(program(**_SIZES), target, name="program")
    source = SpaceSource(str(_FILE), _FILE.read_text(), kind, parts=("tiles",))
    (space,) = find_declared(replace(task, space=source))
    parents: list[Any] = []
    fresh_share, fresh_ms = _share(task, space, parents, mutate=False)
    mutated_share, mutated_ms = _share(task, space, parents, mutate=True)
    return {
        "valid": {"fresh": fresh_share, "mutated": mutated_share},
        "cpu_ms": {"fresh": fresh_ms, "mutated": mutated_ms},
    }


def _share(task: Task, space: Any, parents: list[Any], *, mutate: bool) -> tuple[float, float]:
    """The share of drafts that are points, and CPU milliseconds for each of these."""
    from spaces.ir.schedules import InvalidCandidate

    valid, began_s = 0, time.process_time()
    for number in range(_DRAFTS):
        parent = parents[number % len(parents)] if mutate else None
        try:
            point = space.realize_draft(Draft(task.key, number, 31 * number + mutate, parent))
        except InvalidCandidate:
            continue
        valid += 1
        if not mutate:
            parents.append(point.candidate)
    return valid / _DRAFTS, 1e3 * (time.process_time() - began_s) / max(1, valid)


def _searched(number: int, options: argparse.Namespace, target: str) -> dict[str, Any]:
    """Search with both, in turning order."""
    curves: dict[str, Sequence[float]] = {}
    for kind in _KINDS if number % 2 == 0 else reversed(_KINDS):
        with workplace(None) as folder:
            run = our_side.tune(
                [*_MODEL, *(f"--arg={n}={v}" for n, v in _SIZES.items()), *_space(kind)],
                fresh(folder, kind),
                limit_s=checks.duration_s(options.limit),
                trials=options.trials,
                target=target,
                seed=options.seed + number,
            )
        curves[kind] = [r.latency_s for r in run.trials if r.latency_s is not None]
    near_s = _NEAR * min(map(min, curves.values()))
    return {
        "trials": {kind: _reached(curve, near_s) for kind, curve in curves.items()},
        "best_ms": {kind: 1e3 * min(curve) for kind, curve in curves.items()},
    }


def _space(kind: str) -> list[str]:
    return ["--space", f"{_FILE}:{kind}"]


def _reached(curve: Sequence[float], near_s: float) -> int | None:
    """The number of the first trial that was as fast; None where none was."""
    return next((n for n, latency_s in enumerate(curve, start=1) if latency_s <= near_s), None)


def _summary(rows: Sequence[dict[str, Any]], drafted: dict[str, Any]) -> dict[str, Any]:
    trace, opaque = (drafted[kind]["valid"] for kind in _KINDS)
    best = [row["best_ms"]["AS_OPAQUE"] / row["best_ms"]["AS_TRACE"] for row in rows]
    return {
        "valid_ratio": {name: opaque[name] / trace[name] for name in trace},
        "best_ratio": statistics.median(best) if best else None,
        "trials_median": {
            kind: statistics.median([row["trials"][kind] or float("inf") for row in rows])
            for kind in _KINDS
            if rows
        },
    }


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.opaque")
    parser.add_argument("--trials", type=int, default=64)
    parser.add_argument("--repeats", type=int, default=5, help="searches with each, by seed")
    common_flags(parser, limit="10m")
    run_main(parser, measure)


if __name__ == "__main__":
    main()
