"""Whether a user gets what was measured: a run's figure, `tuner bench`'s and a new process's.

    python -m benchmarks.as_user --trials 64 --time-budget 2m --json

Three are tuned briefly: a matrix product, squeezenet, and a matrix product with symbolic rows.
Then, in turns, each time in a new process:

- `run`: the winners are timed as a run times finalists, in a runner's child process. Of a model
  that is the sum over its tasks, each as often as it is called;
- `bench`: `tuner bench` says how long the tuned model takes;
- `user`: the exported library is loaded and called as the README says, in an environment that
  sets nothing for TVM or OpenMP (`benchmarks/as_user_child.py`).

`apart` is by how much the largest of the three medians exceeds the least. Of a model it leaves
`run` out: there every task is timed alone, with its data in the caches. `recorded_ms` is what the
run itself wrote down, at another time.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from actors.builder import Builder, Built
from actors.runner import Runner
from benchmarks import our_side
from benchmarks.command import Rows, cores_of, say, workplace
from benchmarks.figures import ratio, spread
from benchmarks.versus_onnxruntime import model_file
from tuner import checks
from tuner.candidate import Candidate
from tuner.effort import EFFORTS
from tuner.errors import TunerError
from tuner.record import Status
from tuner.runs.folder import read_run
from tuner.task import Instance, Task

_ROOT = Path(__file__).parent.parent
_CHILD = Path(__file__).with_name("as_user_child.py")
_GEMM = str(_ROOT / "examples" / "gemm.py:gemm")
_SIZES = (64, 300, 512)
"""Of the symbolic rows."""
SIDES = ("run", "bench", "user")
PROGRAMS = ("gemm", "model", "dynamic")
_PROCESS_LIMIT_S = 900.0


@dataclass(frozen=True, slots=True)
class Winner:
    """A kernel that a run chose for a task and shape; `latency_s` is what it wrote down of it."""

    task: Task
    candidate: Candidate
    instance: Instance
    weight: float
    latency_s: float


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Tune and compare each program."""
    target, cores = cores_of(options.target)
    settings = {
        "trials": options.trials,
        "time_budget": options.time_budget,
        "processes": options.processes,
        "seed": options.seed,
        "cores": cores,
        "target": target,
    }
    rows = Rows(options.out, settings)
    with workplace(options.run) as folder:
        for program in options.program or PROGRAMS:
            sizes: list[Instance] = [()]
            if program == "dynamic":
                sizes = [(("M", size),) for size in _SIZES]
            key = {"program": program}
            missing = [i for i in sizes if not rows.has({**key, "shape": _text(i)})]
            try:
                for found in _compared(program, missing, options, target, folder):
                    rows.add(found)
            except TunerError as error:
                rows.add({**key, "shape": "", "failure": str(error)})
    return rows.finish(summary(rows.rows))


def _text(instance: Instance) -> str:
    return ", ".join(f"{name}={size}" for name, size in instance)


def _compared(
    program: str,
    instances: Sequence[Instance],
    options: argparse.Namespace,
    target: str,
    folder: Path,
) -> Iterator[dict[str, Any]]:
    """A row of a program for each shape, as it is there.

    Raises:
        TunerError: there is no more to come.
    """
    if not instances:
        return
    say(f"{program}: tuning")
    model, budget = _model(program, options, folder)
    limit_s = checks.duration_s(options.limit)
    settings = {**budget, "target": target, "seed": options.seed, "limit_s": limit_s}
    tuned = our_side.tune_once(model, folder / program, **settings)
    if tuned.failure:
        raise TunerError(tuned.failure)
    from cluster.app.driver.export import export_library

    library = folder / f"{program}.so"
    export_library(tuned.folder, library)
    for instance in instances:
        yield _row(program, tuned.folder, library, instance, options.processes)


def _model(
    program: str, options: argparse.Namespace, folder: Path
) -> tuple[list[str], dict[str, Any]]:
    """What names it to `tuner tune`, and its budget."""
    if program == "gemm":
        return [_GEMM], {"trials": options.trials}
    if program == "dynamic":
        return [_GEMM, f"--dim=M={','.join(map(str, _SIZES))}"], {"trials": options.trials}
    network = folder / "squeezenet.onnx"
    if not network.exists():
        network = model_file("squeezenet", folder)
    return [str(network)], {"time_budget_s": checks.duration_s(options.time_budget)}


def _row(
    program: str, run: Path, library: Path, instance: Instance, processes: int
) -> dict[str, Any]:
    """Samples of all sides, in turns. Raises TunerError."""
    said = _text(instance)
    say(f"{program} {said}: {processes} times each")
    winners = winners_of(run, instance)
    rerun = _Rerun(run, winners)
    inputs = _written_inputs(run, library, instance)
    name = "" if program == "model" else "gemm"
    threads = []

    def as_user() -> float:
        told = _json_of([sys.executable, "-P", str(_CHILD), str(library), name, str(inputs)])
        threads.append(told["threads"])
        return float(told["ms"])

    def as_bench() -> float:
        dims = [f"--dim={name}={size}" for name, size in instance]
        told = _json_of([sys.executable, "-m", "tuner", "bench", str(run), "--json", *dims])
        return float(told["tuned_ms"])

    sides: dict[str, Callable[[], float]] = {
        "run": rerun.ms,
        "bench": as_bench,
        "user": as_user,
    }
    samples_ms: dict[str, list[float]] = {name: [] for name in SIDES}
    for number in range(processes):
        for side in turned(SIDES, number):
            samples_ms[side].append(sides[side]())
    recorded_ms = 1e3 * sum(w.latency_s * w.weight for w in winners)
    return row(program, said, samples_ms, recorded_ms, threads)


def row(
    program: str,
    shape: str,
    samples_ms: Mapping[str, Sequence[float]],
    recorded_ms: float,
    threads: Sequence[int],
) -> dict[str, Any]:
    """What to say of the samples, one for each process."""
    alike = SIDES[1:] if program == "model" else SIDES
    medians = [statistics.median(samples_ms[side]) for side in alike]
    return {
        "program": program,
        "shape": shape,
        "failure": "",
        **{f"{side}_ms": spread(samples_ms[side]) for side in SIDES},
        "user_over_run": ratio(samples_ms["user"], samples_ms["run"]),
        "user_over_bench": ratio(samples_ms["user"], samples_ms["bench"]),
        "apart": max(medians) / min(medians) - 1,
        "recorded_ms": recorded_ms,
        "threads": sorted(set(threads)),
    }


def summary(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The worst of the rows."""
    good = [row for row in rows if not row["failure"]]
    return {
        "failed": len(rows) - len(good),
        "apart": max((row["apart"] for row in good), default=None),
    }


def turned(sides: Sequence[str], number: int) -> list[str]:
    """All sides, each of them first as often as the others over the rounds."""
    first = number % len(sides)
    return [*sides[first:], *sides[:first]]


def plain(environ: Mapping[str, str]) -> dict[str, str]:
    """An environment that says nothing of threads, and leads Python to nothing of ours."""
    told = ("TVM_", "OMP_", "OPENBLAS_", "MKL_")
    return {
        name: value
        for name, value in environ.items()
        if not name.startswith(told) and name != "PYTHONPATH"
    }


def winners_of(run: Path, instance: Instance) -> list[Winner]:
    """The kernels that run for a shape, `()` of a model without symbolic dimensions.

    Raises:
        TunerError: one of the tasks has none.
    """
    from cluster.app.driver.kernel_sets import kernel_set
    from tuner.storage.sqlite_store import SqliteStore
    from tuner.view.winners import choose_best

    folder, manifest = read_run(run)
    found = []
    with closing(SqliteStore(folder.store, read_only=True)) as store:
        for task in store.tasks():
            if (chosen := kernel_set(store, task, manifest.max_kernels)) is not None:
                (times,) = (s for s in chosen.shapes if s.instance == instance)
                kernel = times.copy or chosen.kernels[times.kernel]
                found.append(Winner(task, kernel, instance, 1.0, times.latency_s))
            elif (best := choose_best(store, task.key)) is not None and best.latency_s:
                found.append(Winner(task, best.trial.candidate, (), task.weight, best.latency_s))
            else:
                raise TunerError(f"{run}: {task.name} has no winner")
    return found


class _Rerun:
    """Winners, built once, to be timed as a run does it: each time in a new child process."""

    def __init__(self, run: Path, winners: Sequence[Winner]) -> None:
        self._effort = EFFORTS["normal"]
        self._folder, manifest = read_run(run)
        self._target, self._winners = manifest.target, winners
        self._artifacts: list[bytes] = []
        builder = Builder(log_dir=self._folder.root)
        try:
            for winner in winners:
                built = builder.build(winner.task, winner.candidate, self._effort.build_deadline_s)
                if not isinstance(built, Built):
                    raise TunerError(f"{winner.task.name} is not built again: {built.error}")
                self._artifacts.append(built.artifact)
        finally:
            builder.close()

    def ms(self) -> float:
        """What they take together."""
        folder = self._folder
        runner = Runner(target=self._target, log_dir=folder.root, scratch=folder.scratch)
        try:
            pairs = zip(self._winners, self._artifacts, strict=True)
            return 1e3 * sum(self._taken_s(runner, *pair) for pair in pairs)
        finally:
            runner.close()

    def _taken_s(self, runner: Runner, winner: Winner, artifact: bytes) -> float:
        measured = runner.run(
            winner.task,
            artifact,
            timing=self._effort.finalist_timing,
            cutoff_s=None,
            deadline_s=self._effort.run_deadline_s,
            instance=winner.instance,
        )
        if measured.status is not Status.OK:
            raise TunerError(f"{winner.task.name} is not timed again: {measured.error}")
        return winner.weight * statistics.median(measured.samples_s)


def _written_inputs(run: Path, library: Path, instance: Instance) -> Path:
    """A file with the inputs that `tuner bench` takes."""
    import numpy as np

    from spaces.frontends.inputs import make_inputs
    from spaces.frontends.model_copy import load_input_values, load_model_copy

    folder, _ = read_run(run)
    specs = [spec.at(dict(instance)) for spec in load_model_copy(folder.model_dir).inputs]
    arrays = make_inputs(specs, load_input_values(folder.model_dir), seed=0)
    sizes = [str(size) for _, size in instance]
    path = library.with_name("-".join([library.stem, *sizes, "inputs.npz"]))
    np.savez(path, *arrays)
    return path


def _json_of(command: Sequence[str]) -> dict[str, Any]:
    """What a process of its own prints last, as JSON. Raises TunerError."""
    ours = "-m" in command
    env = {**plain(os.environ), **({"PYTHONPATH": str(_ROOT)} if ours else {})}
    try:
        done = subprocess.run(
            command, env=env, capture_output=True, text=True, timeout=_PROCESS_LIMIT_S, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise TunerError(f"{command[1:3]} took more than {_PROCESS_LIMIT_S:g} s") from error
    if done.returncode != 0:
        said = done.stderr.strip().splitlines()[-1:] or ["nothing"]
        raise TunerError(f"{command[1:3]} ended with {done.returncode}: {said[0]}")
    result: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return result


def main() -> None:
    """Run the comparison and print it."""
    parser = argparse.ArgumentParser(
        prog="benchmarks.as_user", description="Whether a user gets what a run measured."
    )
    parser.add_argument("--program", action="append", choices=PROGRAMS, help="default: all")
    parser.add_argument("--trials", type=int, default=64, help="for each of the products")
    parser.add_argument("--time-budget", default="2m", metavar="2m", help="for the model")
    parser.add_argument("--processes", type=int, default=9, help="for each side")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--target", default="llvm", help="as for `tuner tune`; a CPU")
    parser.add_argument("--limit", default="30m", help="wall time of one tuning")
    parser.add_argument("--run", type=Path, help="folder for the runs; those there are continued")
    parser.add_argument("--out", type=Path, help="file for the JSON, written after each row")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args()
    try:
        result = measure(options)
    except TunerError as error:
        print(f"{parser.prog}: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
    print(json.dumps(result) if options.json else json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
