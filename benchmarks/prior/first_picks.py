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
from typing import Any

import numpy as np

from benchmarks.command import say
from benchmarks.kernel_timer import KernelTimer, start_timer
from benchmarks.machine import about
from benchmarks.prior.drawn_layers import draw_model
from cluster.app.driver.warm_start import base_for
from tuner.candidate import Draft, form_of
from tuner.cost_models.prior import NO_PRIORS, Priors, load_priors
from tuner.effort import EFFORTS
from tuner.request.model_spec import ModelSpec
from tuner.request.options import SHIPPED
from tuner.search.pool.settings_pool import SettingsPool
from tuner.task import Task

_UNSEEN_SEED = 1000
_PICKS = (1, 2, 4)


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.prior.first_picks")
    parser.add_argument("--target", default="llvm")
    parser.add_argument("--layers", type=int, default=60)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--base", default=SHIPPED, help="a base model")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    from spaces.targets.target import resolve_target

    target = resolve_target(options.target)
    priors = load_priors(base_for(options.base, target, None).priors)
    rows: dict[str, Any] = {}
    with start_timer(target) as timer, tempfile.TemporaryDirectory() as name:
        for task in _tasks(Path(name) / "drawn.onnx", target, options.layers):
            if row := _compare(task, priors, timer, options.rounds):
                rows[task.name] = row
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


def _compare(task: Task, priors: Priors, timer: KernelTimer, rounds: int) -> dict[str, Any] | None:
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
    candidates = {c.key: c for of_order in picks.values() for c in of_order}
    timed = timer.time(task, candidates, EFFORTS["normal"].timing, rounds)
    times_s = {key: min(times, default=math.inf) for key, times in timed.items()}
    found = {order: [times_s[c.key] for c in chosen] for order, chosen in picks.items()}
    if not all(math.isfinite(min(times)) for times in found.values()):
        return None
    say(f"{task.name} {found}")
    return {"form": form_of(picks["estimate"][0].space), **found}


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
