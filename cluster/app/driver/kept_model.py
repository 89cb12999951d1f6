"""The copy of the model that a run keeps, to go on without the original."""

from __future__ import annotations

from collections.abc import Iterable

from tuner.errors import TunerError, UsageError
from tuner.request.model_spec import ModelSpec
from tuner.run_location import RunLocation


def check_kept(run: object, said: Iterable[str]) -> None:
    """Check that a run is named in place of a model, and that no option of a model is given.

    Args:
        said: the given options of the model, by the user's names.

    Raises:
        UsageError: no run is named, or such an option is given.
    """
    for name in said:
        raise UsageError(f"{name}: a run keeps its model, so nothing can be said beside it")
    if run is None:
        raise UsageError("give a model, or the run whose model is to be tuned further")


def load_kept_model(run: RunLocation) -> ModelSpec:
    """The model of a run.

    Raises:
        TunerError: there is no run, or its copy of the model is missing or damaged.
    """
    from spaces.frontends.model_copy import load_model_copy
    from tuner.runs.folder import read_run
    from tuner.runs.remote import local

    folder, manifest = read_run(local(run, model=True))
    if not folder.model_dir.exists():
        raise TunerError(f"{run} keeps no model yet: name the model once more")
    return ModelSpec(manifest.model, program=load_model_copy(folder.model_dir, manifest.model_hash))
