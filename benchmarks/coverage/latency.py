"""How fast the networks are after a short tuning, beside onnxruntime and OpenVINO.

    pip install -e '.[coverage]'
    python -m benchmarks.coverage.latency --out benchmarks/results/coverage/latency.json
    python -m benchmarks.coverage.latency --only '*mini*' --time-budget 10m
    python -m benchmarks.coverage.latency --only '*, unseen' --time-budget 60s --base-model none

Each network is exported, tuned by `tuner tune` within the budget, and written as a library, as its
user would do it. Then each side runs in a process of its own, in turns with 0.15 s between them, on
the same number of threads; OpenVINO is told to compute with float32. Networks with open dimensions
run at five of their sizes. `error` is that of our outputs to PyTorch's, by the largest element;
`in_tasks` is the share of a static network's time that its tasks took when they were timed alone.
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.command import cores_of, say, workplace
from benchmarks.coverage.check_child import dims_of
from benchmarks.coverage.networks import TIMED
from benchmarks.coverage.side import race_sides
from benchmarks.figures import spread
from benchmarks.machine import about
from tuner import checks
from tuner.errors import TunerError
from tuner.request.options import SHIPPED

_ROOT = Path(__file__).parents[2]
_EXPORT_LIMIT_S, _MORE_S = 300.0, 900.0
_SIDES = ("ours", "onnxruntime", "openvino")
_SIZES = 5


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.coverage.latency")
    parser.add_argument("--only", default="*", help="glob on names")
    parser.add_argument("--time-budget", default="90s", metavar="90s", help="to tune each")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--base-model", default=SHIPPED, help="what the search begins with")
    parser.add_argument("--runs", type=Path, help="folder for the runs; those there are continued")
    parser.add_argument("--out", type=Path, help="goes on with what is there")
    options = parser.parse_args()
    known = json.loads(options.out.read_text()) if options.out and options.out.exists() else {}
    rows: dict[str, Any] = known.get("rows", {})
    for name in TIMED:
        if not fnmatch.fnmatchcase(name, options.only) or name in rows:
            continue
        rows[name] = _row(name, options)
        say(f"{name} {json.dumps(rows[name])[:300]}")
        if options.out:
            options.out.write_text(json.dumps({"machine": about(), "rows": rows}, indent=1) + "\n")


def _row(name: str, options: argparse.Namespace) -> dict[str, Any]:
    target, cores = cores_of("llvm")
    row: dict[str, Any] = {"time_budget": options.time_budget, "cores": cores}
    row["base_model"] = options.base_model
    with tempfile.TemporaryDirectory() as made, workplace(options.runs) as runs:
        folder, run = Path(made), runs / name.replace(", ", "-").replace(" ", "-")
        try:
            _done("benchmarks.coverage.export_child", name, "dynamo", made, limit_s=_EXPORT_LIMIT_S)
            row |= tune_file(folder, run, target, options.time_budget, options.base_model)
            row |= _raced(folder, cores, options.rounds)
        except TunerError as error:
            return {**row, "failure": str(error)}
        first = next(iter(row["sizes"].values()))
        if row["tasks_ms"] is not None and first["ours"] is not None:
            row["in_tasks"] = row["tasks_ms"] / first["ours"]["median"]
    return row


def tune_file(
    folder: Path,
    run: Path,
    target: str,
    budget: str,
    base_model: str = SHIPPED,
    more: Sequence[str] = (),
) -> dict[str, Any]:
    """Tune, and leave `model.so` in the folder.

    Args:
        more: flags of `tuner tune`.
    """
    model, limit_s = folder / "model.onnx", checks.duration_s(budget) + _MORE_S
    dims = dims_of(json.loads((folder / "about.json").read_text())["tuned"], model)
    flags = [f"--dim={name}={','.join(map(str, sizes))}" for name, sizes in dims]
    started_s = time.monotonic()
    common = ["--target", target, "--time-budget", budget, "--run", str(run)]
    common += ["--base-model", base_model, *more]
    _done("tuner", "tune", str(model), *flags, *common, limit_s=limit_s)
    wall_s = time.monotonic() - started_s
    _done("tuner", "export", str(run), "--lib", str(folder / "model.so"), limit_s=_MORE_S)
    tasks = json.loads(_done("tuner", "best", str(run), "--json", limit_s=_MORE_S))["tasks"]
    times = [task["latency_ms"] and task["weight"] * task["latency_ms"] for task in tasks]
    return {
        "wall_s": wall_s,
        "tasks": len(tasks),
        "trials": sum(task["trials"] for task in tasks),
        "tasks_ms": None if dims or None in times else sum(times),
    }


def _raced(folder: Path, cores: int, rounds: int) -> dict[str, Any]:
    """Milliseconds of each side at each size."""
    about_it = json.loads((folder / "about.json").read_text())
    numbers = _chosen(about_it["samples"], about_it["tuned"])
    raced = race_sides({name: (name, folder) for name in _SIDES}, cores, numbers, rounds)
    told = {
        _told(about_it["samples"][number]): {
            name: spread(raced.samples_ms[name][number]) if name in raced.samples_ms else None
            for name in _SIDES
        }
        for number in numbers
    }
    return {"error": raced.errors.get("ours"), "failed": raced.failed, "sizes": told}


def _chosen(samples: Sequence[Mapping[str, int]], tuned: Mapping[str, Sequence[int]]) -> list[int]:
    """Some of the samples: those within what was tuned for, from the smallest to the largest."""
    within = [n for n, sizes in enumerate(samples) if all(s in tuned[d] for d, s in sizes.items())]
    within.sort(key=lambda n: (sum(samples[n].values()), n))
    last = max(1, min(_SIZES, len(within)) - 1)
    return list(dict.fromkeys(within[i * (len(within) - 1) // last] for i in range(last + 1)))


def _told(sizes: Mapping[str, int]) -> str:
    return ", ".join(f"{name}={size}" for name, size in sizes.items())


def _done(module: str, *arguments: str, limit_s: float) -> str:
    """What a command prints.

    Raises:
        TunerError: it fails, or takes too long.
    """
    command = [sys.executable, "-m", module, *arguments]
    try:
        done = subprocess.run(command, cwd=_ROOT, capture_output=True, text=True, timeout=limit_s)
    except subprocess.TimeoutExpired as error:
        raise TunerError(f"{module} {arguments[0]} took longer than {limit_s:g} s") from error
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no word"])[-1]
        raise TunerError(f"{module} {arguments[0]}: {last[:200]}")
    return done.stdout


if __name__ == "__main__":
    main()
