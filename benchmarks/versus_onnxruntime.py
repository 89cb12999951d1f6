"""A whole model, batch 1: ours against onnxruntime.

    python -m benchmarks.versus_onnxruntime squeezenet --time-budget 30m --json
    python -m benchmarks.versus_onnxruntime model.onnx --time-budget 30m --run runs/model --json
    python -m benchmarks.versus_onnxruntime model.onnx --run runs/model --bench-only --json

MODEL is an ONNX file, or `squeezenet` or `resnet50` (test networks of the `onnx` package with
seeded weights), or `encoder` (one layer of BERT-base, sequence 128, see `benchmarks.encoder`), or
`encoder-2048` (the same of that sequence).
It is tuned by `tuner tune` within the time budget. Then one process runs the untuned model, the
tuned one and onnxruntime in turns, at least 20 rounds, with the same number of threads, and
compares their outputs: what `tuner bench` does, with more rounds. onnxruntime gets the file as it
is, all its graph optimisations (its default), one thread pool of the target's cores.

`ratio` is the latency of ours over onnxruntime's; below 1 ours is faster. `tasks` are the winners:
`share_ms` is latency times how often the model calls the task.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks import our_side
from benchmarks.command import common_flags, cores_of, finished, run_main, say, workplace
from benchmarks.figures import quotient
from tuner import checks
from tuner.errors import TunerError, UsageError
from tuner.process.ask_once import ask_once
from tuner.process.outcome import Returned
from tuner.runs.folder import RunFolder
from tuner.view.as_json import to_ms
from tuner.view.task_view import TaskView

_ROOT = Path(__file__).parent.parent
_NETWORKS = ("squeezenet", "resnet50")
_READY_S = 60.0
_BENCH_LIMIT_S = 1800.0
_WRITE_LIMIT_S = 300.0


class Bencher:
    """Made in a process of its own, since a kernel may crash."""

    def bench(self, run: Path, rounds: int) -> dict[str, Any]:
        """What `tuner bench` reports."""
        from cluster.app.driver.export import bench

        return bench(run, rounds=rounds)


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Tune and compare."""
    target, cores = cores_of(options.target)
    budget_s = checks.duration_s(options.time_budget)
    settings = {
        "model": Path(options.model).name,
        "time_budget_s": budget_s,
        "trials": options.trials,
        "seed": options.seed,
        "cores": cores,
        "target": target,
        "onnxruntime": _version(),
    }
    if options.bench_only and options.run is None:
        raise UsageError("--bench-only needs the --run that is to be compared")
    with workplace(options.run and options.run.parent) as folder:
        run = folder / (options.run.name if options.run else "run")
        tuning = {} if options.bench_only else _tuned(options, run, target, budget_s)
        say("comparing")
        compared = _compared(run, options.rounds, log=folder / f"{run.name}-bench.log")
        known = RunFolder(run).store.exists()
        tasks = task_rows(our_side.best_of_tasks(run)) if known else []
    total_ms = sum(task["share_ms"] or 0.0 for task in tasks)
    return finished(options.out, settings, {**tuning, **compared, "tasks_ms": total_ms}, tasks)


def _tuned(options: argparse.Namespace, run: Path, target: str, budget_s: float) -> dict[str, Any]:
    with workplace(None) as folder:
        model = model_file(options.model, folder)
        say(f"tuning {model.name}")
        ours = our_side.tune(
            [str(model)],
            run,
            limit_s=budget_s + checks.duration_s(options.limit),
            trials=options.trials or 1_000_000,
            time_budget_s=budget_s,
            target=target,
            seed=options.seed,
        )
    return {
        "tuning_failure": ours.failure,
        "wall_s": ours.watched.wall_s,
        "trials": len(ours.trials),
        "memory_mb": our_side.memory_mb(ours.watched.seen),
    }


def _compared(run: Path, rounds: int, *, log: Path) -> dict[str, Any]:
    outcome = ask_once(
        "benchmarks.versus_onnxruntime:Bencher",
        (),
        "bench",
        run,
        rounds,
        ready_s=_READY_S,
        deadline_s=_BENCH_LIMIT_S,
        log=log,
    )
    if not isinstance(outcome, Returned):
        return {"failure": str(outcome), "ratio": None}
    report: dict[str, Any] = outcome.value
    return {
        "failure": "",
        "ratio": quotient(report["tuned_ms"], report["onnxruntime_ms"]),
        **report,
    }


def task_rows(tasks: Sequence[TaskView]) -> list[dict[str, Any]]:
    """The winners, the one that the model spends most time in first."""
    rows: list[dict[str, Any]] = [
        {
            "task": t.name,
            "weight": t.weight,
            "trials": t.trials,
            "default_ms": to_ms(t.default_s),
            "latency_ms": to_ms(t.best_s),
            "gflops": t.gflops,
            "share_ms": None if t.best_s is None else t.best_s * t.weight * 1e3,
        }
        for t in tasks
    ]
    return sorted(rows, key=_share, reverse=True)


def _share(row: Mapping[str, Any]) -> float:
    return float(row["share_ms"] or 0.0)


def model_file(name: str, folder: Path) -> Path:
    """The file of a model: the one named, or one that is written into `folder`.

    Raises:
        TunerError: no such file, or it cannot be written.
    """
    kind, _, sequence = name.partition("-")
    if kind not in (*_NETWORKS, "encoder") or (sequence and not sequence.isdigit()):
        if not Path(name).is_file():
            known = ", ".join((*_NETWORKS, "encoder", "encoder-2048"))
            raise TunerError(f"{name}: no such file; it may also be one of {known}")
        return Path(name).resolve()
    path = folder / f"{name}.onnx"
    maker = ["-m", "benchmarks.encoder", str(path), *([f"--sequence={sequence}"] * bool(sequence))]
    if name in _NETWORKS:
        maker = [str(_ROOT / "examples" / "squeezenet.py"), str(path), name]
    made = subprocess.run(
        [sys.executable, *maker],
        cwd=_ROOT,
        capture_output=True,
        text=True,
        timeout=_WRITE_LIMIT_S,
        check=False,
    )
    if made.returncode:
        raise TunerError(f"{name} cannot be written: {made.stderr.strip().splitlines()[-1:]}")
    return path


def _version() -> str:
    try:
        import onnxruntime
    except ImportError:
        return ""
    return str(onnxruntime.__version__)


def main() -> None:
    """Run the comparison and print it."""
    parser = argparse.ArgumentParser(
        prog="benchmarks.versus_onnxruntime", description="A model against onnxruntime."
    )
    parser.add_argument("model", metavar="MODEL.onnx|squeezenet|resnet50|encoder|encoder-N")
    parser.add_argument("--time-budget", default="30m", metavar="30m", help="for tuning")
    parser.add_argument("--trials", type=int, help="default: only the time budget ends it")
    parser.add_argument("--run", type=Path, help="the run folder; one that exists is continued")
    parser.add_argument("--bench-only", action="store_true", help="tune no more: --run has a run")
    common_flags(parser, limit="10m")
    run_main(parser, measure)


if __name__ == "__main__":
    main()
