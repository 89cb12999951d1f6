"""A run folder with results that nobody measured."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from tuner.candidate import Candidate
from tuner.precision import Precision
from tuner.record import Measurement, Record, Status, Trial
from tuner.request.model_spec import ModelSpec
from tuner.run_location import RunLocation
from tuner.runs.folder import Manifest, open_run
from tuner.runs.remote import open_store
from tuner.storage.base import begin_session
from tuner.storage.facts import Defaults, SessionEnded, Tasks
from tuner.task import Task


def made_run(
    folder: Path,
    text: str,
    target: str,
    faster: Callable[[Task], Candidate | None],
    precision: Precision | None = None,
) -> Path:
    """A run of the model that the function `network` in a text makes.

    Args:
        precision: types of its products; None for its own.
        faster: the candidate that won each task, in a quarter of its default's time; None where the
            default did.
    """
    from spaces.design_space.default_schedule import default_candidate
    from spaces.frontends.model import load_model
    from spaces.frontends.model_copy import save_model_copy
    from spaces.lowering.extract_tasks import extract
    from spaces.lowering.lower import lower
    from spaces.precision.convert import in_precision

    (folder / "network.py").write_text(text)
    model = load_model(ModelSpec(f"{folder}/network.py:network"))
    tasks = extract(lower(in_precision(model, precision).module, target), target)
    manifest = Manifest("network", model.content_hash, target, precision=precision)
    run, _ = open_run(folder / "run", manifest)
    save_model_copy(model, run.model_dir)
    with closing(open_store(RunLocation.of(run.root), run)) as store:
        defaults = {task.key: default_candidate(task) for task in tasks}
        store.put(Tasks(tasks), Defaults({key: c.key for key, c in defaults.items()}))
        session = begin_session(store, 100.0)
        for task in tasks:
            timed = [(defaults[task.key], 0.004)]
            if (candidate := faster(task)) is not None:
                timed.append((candidate, 0.001))
            for tried, latency_s in timed:
                measured = Measurement(Status.OK, (latency_s,))
                store.append_many([(Record(Trial(task.key, tried), measured), None)])
        store.put(SessionEnded(session, 104.0, "trials"))
    return run.root


def best_estimate(task: Task) -> Candidate | None:
    """What a template finds best before anything was measured."""
    from spaces.design_space.knob_space import KnobSpace
    from spaces.templates.registry import templates_of

    space = min((KnobSpace(task, t) for t in templates_of(task)), key=lambda s: s.least_s)
    return space.describe(space.ranked[0]).candidate
