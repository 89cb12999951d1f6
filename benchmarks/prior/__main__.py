"""Makes a prior that ships: `tuner/cost_models/shipped/`.

    python -m benchmarks.prior --target TARGET --work DIR [--models 5] [--layers 60] [--trials 24]
        [--form FORM ...]

Draws models of layers (`benchmarks.prior.drawn_layers`), tunes each for some trials a layer on this
machine without a prior, and trains a base model on all of them, as `tuner train` does. The same
command goes on with what is in `--work`. A form of template ships where its prior makes the first
trials better (`benchmarks.prior.first_picks`). Layers whose program is one of a benchmark's network
would make the prior look better than it is: `benchmarks.prior.overlap` lists those.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
from pathlib import Path

import tuner
from benchmarks.command import say
from benchmarks.prior.drawn_layers import draw_model
from benchmarks.prior.equal_turns import EqualTurns
from cluster.app.commands.train import train_on
from cluster.app.driver.warm_start import NONE, find_shipped
from spaces.targets.target import resolve_target
from tuner.effort import EFFORTS
from tuner.files.atomic import output_file
from tuner.run_location import RunLocation
from tuner.view.progress import Snapshot


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.prior")
    parser.add_argument("--target", default="llvm")
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--models", type=int, default=5)
    parser.add_argument("--layers", type=int, default=60)
    parser.add_argument("--trials", type=int, default=24, help="of each layer")
    parser.add_argument("--form", action="append", help="that ships; default: all")
    options = parser.parse_args()
    runs = [_tune(seed, options) for seed in range(options.models)]
    base = train_on(tuple(RunLocation.of(run) for run in runs), options.form)
    path = find_shipped(resolve_target(options.target))
    path.parent.mkdir(exist_ok=True)
    with output_file(path) as file:
        file.write(base.to_json())
    said = f"{base.records} records of {base.tasks} tasks, {path.stat().st_size >> 10} kB"
    say(f"{path}: {said}, {base.accuracy:.1%} of pairs of other tasks ordered rightly")


def _tune(seed: int, options: argparse.Namespace) -> Path:
    """The run of one drawn model, gone on with where it was."""
    import onnx

    model: Path = options.work / f"drawn-{seed}.onnx"
    run: Path = options.work / f"run-{seed}"
    options.work.mkdir(parents=True, exist_ok=True)
    if not model.exists():
        onnx.save(draw_model(seed, options.layers), model)
    tuner.tune(
        model,
        run=run,
        target=options.target,
        trials=options.trials * options.layers,
        time_budget="60m",
        effort=replace(EFFORTS["quick"], finalists=0),
        until=0.0,
        allocator=EqualTurns,
        base_model=NONE,
        seed=seed,
        watch=_tell,
    )
    return run


def _tell(snapshot: Snapshot) -> None:
    print(f"\r{snapshot.trials} trials", end="", file=sys.stderr)


if __name__ == "__main__":
    main()
