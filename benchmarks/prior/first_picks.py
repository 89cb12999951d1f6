"""What a prior is worth in the first trials: `python -m benchmarks.prior.first_picks`.

Of drawn layers that it was not learned from, the first settings by the analytic estimate and those
by the prior are built and timed in turns on this machine, for some rounds; the fastest of a
setting's times counts. Printed is how much faster the best of the prior's first 1, 2 and 4 is than
the best of the estimate's: geometric means, over all tasks and over those of one form.
"""

from __future__ import annotations

import argparse
import json
import math
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.command import say
from benchmarks.machine import about
from benchmarks.prior.drawn_layers import draw_model
from cluster.driver.warm_start import base_for
from tuner.candidate import Candidate, Draft, form_of
from tuner.cost_models.prior import NO_PRIORS, Priors, load_priors
from tuner.effort import EFFORTS
from tuner.options import SHIPPED, ModelSpec
from tuner.search.pool.settings_pool import SettingsPool
from tuner.task import Task

if TYPE_CHECKING:
    from actors.builder import Builder
    from actors.runner import Runner

_UNSEEN_SEED = 1000
_PICKS = (1, 2, 4)
_DEADLINE_S = 60.0


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.prior.first_picks")
    parser.add_argument("--target", default="llvm")
    parser.add_argument("--layers", type=int, default=60)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--base", default=SHIPPED, help="a base model")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    from actors.builder import Builder
    from actors.runner import Runner
    from spaces.targets.target import resolve_target

    target = resolve_target(options.target)
    priors = load_priors(base_for(options.base, target, None).priors)
    rows: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        builder = Builder(log_dir=folder)
        runner = Runner(target=target, log_dir=folder, scratch=folder)
        builder.ready()
        runner.ready()
        for task in _tasks(folder / "drawn.onnx", target, options.layers):
            if row := _compare(task, priors, builder, runner, options.rounds):
                rows[task.name] = row
        builder.close()
        runner.close()
    means = _means(rows)
    if options.out:
        report = {"machine": about(), "means": means, "tasks": rows}
        options.out.write_text(json.dumps(report, indent=1) + "\n")
    print(json.dumps(means, indent=1))


def _tasks(path: Path, target: str, layers: int) -> list[Task]:
    import onnx

    from spaces.frontends.model import load_model
    from spaces.lowering.extract_tasks import extract
    from spaces.lowering.lower import lower

    onnx.save(draw_model(_UNSEEN_SEED, layers), path)
    model = load_model(ModelSpec(str(path)))
    return list(extract(lower(model.module, target), target, None, model.shapes))


def _compare(
    task: Task, priors: Priors, builder: Builder, runner: Runner, rounds: int
) -> dict[str, Any] | None:
    """The form of a task's settings and, of both orders, the seconds of the first ones."""
    from spaces.design_space.task_space import TaskSpace

    listed = TaskSpace(task).settings(Draft(task.key, 1, 1, listing=True))
    if sum(map(len, listed)) < 2 * max(_PICKS):
        return None
    picks = {}
    for order, known in (("estimate", NO_PRIORS), ("prior", priors)):
        pool = SettingsPool(known)
        pool.add(listed)
        first = np.argsort(pool.estimates_s, kind="stable")[: max(_PICKS)]
        picks[order] = [pool.candidate(int(number)) for number in first]
    times_s = _time(
        {c.key: c for of_order in picks.values() for c in of_order}, task, builder, runner, rounds
    )
    found = {order: [times_s[c.key] for c in chosen] for order, chosen in picks.items()}
    if not all(math.isfinite(min(times)) for times in found.values()):
        return None
    say(f"{task.name} {found}")
    return {"form": form_of(picks["estimate"][0].space), **found}


def _time(
    candidates: dict[str, Candidate], task: Task, builder: Builder, runner: Runner, rounds: int
) -> dict[str, float]:
    """The least seconds of each candidate; infinite where it failed."""
    from actors.builder import Built

    built = {key: builder.build(task, c, _DEADLINE_S) for key, c in candidates.items()}
    times_s = dict.fromkeys(candidates, math.inf)
    runner.learn(task, (), _DEADLINE_S)
    for _ in range(rounds):
        for key, made in built.items():
            if isinstance(made, Built):
                timing = EFFORTS["normal"].timing
                done = runner.run(
                    task, made.artifact, timing=timing, cutoff_s=None, deadline_s=_DEADLINE_S
                )
                times_s[key] = min([times_s[key], *done.samples_s])
    return times_s


def _means(rows: dict[str, Any]) -> dict[str, Any]:
    """The best of the prior's first ones over the best of the estimate's, by form."""
    found: dict[str, Any] = {}
    for form in ("all", *sorted({row["form"] for row in rows.values()})):
        of_form = [row for row in rows.values() if form in ("all", row["form"])]
        found[form] = {"tasks": len(of_form)}
        for count in _PICKS:
            ratios = [
                math.log(min(r["prior"][:count]) / min(r["estimate"][:count])) for r in of_form
            ]
            found[form][f"first {count}"] = math.exp(math.fsum(ratios) / len(ratios))
    return found


if __name__ == "__main__":
    main()
