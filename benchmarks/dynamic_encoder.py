"""One tuning of a transformer's layer for all lengths against one for each, and onnxruntime.

    python -m benchmarks.dynamic_encoder --json
    python -m benchmarks.dynamic_encoder --sequences 1..128 --sample 4 --out result.json

The model is `benchmarks.encoder`, a layer of BERT-base. Ours is one `tuner tune --dim sequence=...`
of the model, length symbolic; the other side is one `tuner tune` for each length of the model
with that length, `--trials` for each task on both sides (the default of `--effort normal`). Then
one process runs the two compiled models and onnxruntime in turns for each length; onnxruntime has
the model with its length symbolic, as it comes. `errors` are largest differences from onnxruntime's
output, over the largest value there, at these lengths and at some that nobody asked for.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks import our_side
from benchmarks.command import Rows, common_flags, cores_of, run_main, say, workplace
from benchmarks.dynamic import DIETCODE, sizes_alone
from benchmarks.figures import ratio, spread
from benchmarks.our_side import OurRun
from cluster.app.console import parse
from cluster.app.driver.export import export_library
from spaces.targets.cores import thread_variables
from tuner import checks
from tuner.errors import TunerError
from tuner.process.ask_once import ask_once
from tuner.process.outcome import Outcome, Returned

_OTHERS = (1, 2, 7, 31, 97, 127, 131, 200)
_READY_S = 120.0
_RACE_LIMIT_S = 900.0


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Tune both sides and compare them at each length."""
    _, sizes = parse.dimension(f"sequence={options.sequences}")
    alone = sizes_alone(sizes, options.sample)
    target, cores = cores_of(options.target)
    settings = {
        "sequences": options.sequences,
        "alone": alone,
        "trials": options.trials,
        "seed": options.seed,
        "cores": cores,
        "target": target,
    }
    rows = Rows(options.out, settings)
    with workplace(options.run) as folder:
        static = {}
        for length in alone:
            say(f"tuning for {length} tokens")
            static[length] = _tuned(length, options, folder, target, "")
        say("tuning for all of them")
        dims = f"sequence={options.sequences}"
        together = _tuned(None, options, folder, target, dims)
        for length, run in static.items():
            if not rows.has({"sequence": length}):
                rows.add(_row(length, run, together, folder, cores, options.rounds))
        errors = _errors(together, folder, cores)
        return rows.finish(summary(rows.rows, together, len(sizes), errors))


def _tuned(
    length: int | None, options: argparse.Namespace, folder: Path, target: str, dims: str
) -> OurRun:
    name = "open" if length is None else f"alone-{length}"
    model = folder / f"{name}.onnx"
    if not model.exists():
        _write(model, length)
    run = our_side.tune_once(
        [str(model), *(("--dim", dims) if dims else ())],
        folder / name,
        limit_s=checks.duration_s(options.limit),
        trials=options.trials * _task_count(model, dims, target),
        target=target,
        seed=options.seed,
    )
    if run.failure:
        raise TunerError(f"{name}: {run.failure}")
    library = _library(folder, name)
    if not library.exists():
        export_library(run.folder, library)
    return run


def _write(path: Path, length: int | None) -> None:
    import onnx

    from benchmarks.encoder import encoder

    onnx.save(encoder(length), str(path))


def _task_count(model: Path, dims: str, target: str) -> int:
    from spaces.frontends.model import load_model
    from spaces.lowering.extract_tasks import extract
    from spaces.lowering.lower import lower
    from tuner.request.model_spec import ModelSpec

    spec = ModelSpec(str(model), dims=(parse.dimension(dims),) if dims else ())
    found = load_model(spec)
    return len(extract(lower(found.module, target), target, None, found.shapes))


def _library(folder: Path, name: str) -> Path:
    return folder / f"{name}.so"


def _row(
    length: int, alone: OurRun, together: OurRun, folder: Path, cores: int, rounds: int
) -> dict[str, Any]:
    """The race at one length."""
    libraries = {
        "ours": _library(folder, together.folder.name),
        "again": _library(folder, together.folder.name),
        "static": _library(folder, alone.folder.name),
    }
    row: dict[str, Any] = {
        "sequence": length,
        "alone_wall_s": alone.watched.wall_s,
        "alone_trials": len(alone.trials),
        "failure": "",
    }
    arguments = (libraries, folder / "open.onnx", length, rounds)
    outcome = _in_child(folder, cores, "race", *arguments)
    if not isinstance(outcome, Returned):
        return {**row, "failure": str(outcome)}
    samples = outcome.value
    for name, seconds in samples.items():
        row[f"{name}_ms"] = spread(seconds, scale=1e3)
    for name in ("static", "onnxruntime"):
        row[f"over_{name}"] = ratio(samples["ours"], samples[name])
    row["unrest"] = abs(ratio(samples["again"], samples["ours"])["of_medians"] - 1)
    return row


def _errors(together: OurRun, folder: Path, cores: int) -> dict[str, float] | str:
    """By length; the child's failure, if it has one."""
    library = _library(folder, together.folder.name)
    sizes = [*map(int, DIETCODE.split(",")), *_OTHERS]
    outcome = _in_child(folder, cores, "errors", library, folder / "open.onnx", sizes)
    return outcome.value if isinstance(outcome, Returned) else str(outcome)


def _in_child(folder: Path, cores: int, call: str, *arguments: Any) -> Outcome:
    env = {**thread_variables(cores), "OMP_NUM_THREADS": str(cores)}
    log = folder / "race.log"
    return ask_once(
        "benchmarks.dynamic_encoder:Racer",
        (cores,),
        call,
        *arguments,
        ready_s=_READY_S,
        deadline_s=_RACE_LIMIT_S,
        env=env,
        log=log,
    )


class Racer:
    """Runs compiled models and onnxruntime, in a process of its own."""

    def __init__(self, cores: int) -> None:
        import onnxruntime

        self._settings = onnxruntime.SessionOptions()
        self._settings.intra_op_num_threads = cores
        self._settings.log_severity_level = 4

    def race(
        self, libraries: Mapping[str, Path], model: Path, length: int, rounds: int
    ) -> dict[str, list[float]]:
        """Samples in seconds by side."""
        from spaces.deploy.bench import Side, take_rounds

        x = _tokens(length)
        calls = {name: _call(path, x) for name, path in libraries.items()}
        session = self._session(model)
        calls["onnxruntime"] = lambda: session.run(None, {"x": x})
        sides = [Side(name, call, _RACE_LIMIT_S) for name, call in calls.items()]
        take_rounds(sides, rounds)
        return {side.name: side.samples_s for side in sides}

    def errors(self, library: Path, model: Path, lengths: Sequence[int]) -> dict[str, float]:
        """Largest difference over the largest value of onnxruntime's output, by length."""
        from spaces.deploy.bench import errors

        session = self._session(model)
        found = {}
        for length in lengths:
            x = _tokens(length)
            want = session.run(None, {"x": x})
            found[str(length)] = errors([_call(library, x)().numpy()], want)[1]
        return found

    def _session(self, model: Path) -> Any:
        import onnxruntime

        providers = ["CPUExecutionProvider"]
        return onnxruntime.InferenceSession(str(model), self._settings, providers=providers)


def _tokens(length: int) -> Any:
    import numpy as np

    return np.random.default_rng(length).standard_normal((1, length, 768), dtype=np.float32)


def _call(library: Path, x: Any) -> Any:
    import tvm
    from tvm import relax

    machine = relax.VirtualMachine(tvm.runtime.load_module(str(library)), tvm.cpu())
    main, data = machine["main"], tvm.runtime.tensor(x)
    return lambda: main(data)


def summary(
    rows: Sequence[Mapping[str, Any]],
    together: OurRun,
    lengths: int,
    errors: Mapping[str, float] | str,
) -> dict[str, Any]:
    """Wall time as if each length had been tuned alone; means and worst of the ratios."""
    good = [row for row in rows if not row["failure"]]
    told: dict[str, Any] = {
        "failed": len(rows) - len(good),
        "wall_s": together.watched.wall_s,
        "trials": len(together.trials),
        "errors": dict(errors) if isinstance(errors, Mapping) else errors,
    }
    if good:
        alone_s = statistics.fmean(row["alone_wall_s"] for row in good)
        told["wall_ratio"] = alone_s * lengths / together.watched.wall_s
    for name in ("over_static", "over_onnxruntime"):
        known = [row[name]["of_medians"] for row in good]
        told[f"{name}_mean"] = statistics.fmean(known) if known else None
        told[f"{name}_worst"] = max(known, default=None)
    return told


def main() -> None:
    """Run the comparison and print it."""
    parser = argparse.ArgumentParser(
        prog="benchmarks.dynamic_encoder",
        description="A transformer's layer with its length symbolic against one for each length.",
    )
    parser.add_argument("--sequences", default=DIETCODE, help="of tokens, as for --dim")
    parser.add_argument("--sample", type=int, default=4, help="lengths tuned alone, at most")
    parser.add_argument("--trials", type=int, default=128, help="for each task")
    parser.add_argument("--run", type=Path, help="folder for the runs; those there are continued")
    common_flags(parser, limit="1h")
    run_main(parser, measure)


if __name__ == "__main__":
    main()
