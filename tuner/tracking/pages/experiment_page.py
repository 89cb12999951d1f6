"""How MLflow's pages show the experiment of the tuner: its kind, its note, a view of its runs, and
the address that opens them so.

MLflow 3.17 has pages for applications with language models and pages for the training of models,
and opens the former unless an address, or the reader, says otherwise; other versions go by the
experiment's kind. Its named views are tags of the experiment, which its menu "Views" lists.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from urllib.parse import urlencode

from tuner.tracking.pages.metric_names import GAIN, LATENCY, TRIALS, UNTUNED

_log = logging.getLogger("tuner.tracker")

LEVEL_TAG = "tuner.level"
"""Tells the runs of models from those of tasks."""
OF_MODEL, OF_TASK = "model", "task"

_VIEW = "models"
_VIEW_TAG = f"mlflow.sharedViewState.{_VIEW}"
_COLUMNS = (
    *(("tags", name) for name in ("model", "target", "strategy")),
    *(("metrics", name) for name in (LATENCY, GAIN, UNTUNED, TRIALS)),
    *(("tags", name) for name in ("device", "toolchain", "git_revision")),
)
_NOTE = (
    "Each run tunes the kernels of one model. Sort and compare runs by `model/latency_ms` (all "
    "kernels of the model, each as often as it runs) and `model/gain` (untuned over tuned). Runs "
    "below a run are its heaviest tasks; `tasks.json` among its artifacts has all of them."
)


def kind_tags() -> dict[str, str]:
    """The tag that makes an experiment one of training."""
    return {"mlflow.experimentKind": "custom_model_development"}


def experiment_tags(now_s: float) -> dict[str, str]:
    """The tags of a new experiment; an old one gets those that it lacks.

    Args:
        now_s: seconds since the epoch.
    """
    return {**kind_tags(), "mlflow.note.content": _NOTE, _VIEW_TAG: _view(now_s)}


def _view(now_s: float) -> str:
    """A view of the runs of models alone, newest first, with columns that compare them."""
    state = {
        "searchFilter": f"tags.`{LEVEL_TAG}` = '{OF_MODEL}'",
        "orderByKey": "attributes.start_time",
        "orderByAsc": False,
        "selectedColumns": [
            "attributes.`Duration`",
            *(f"{group}.`{name}`" for group, name in _COLUMNS),
        ],
    }
    now_ms = int(now_s * 1e3)
    view = {"name": _VIEW, "createdAt": now_ms, "updatedAt": now_ms, "state": json.dumps(state)}
    return json.dumps(view)


def page_of(server: str, experiment: str, *, charts: bool = True) -> str:
    """The address of an experiment's page: charts of the models' runs, or a table of them.

    Args:
        server: address of MLflow's pages, as `http://127.0.0.1:5000`.
        experiment: MLflow's id of it.
    """
    asked: Mapping[str, str] = {
        "workflowType": "machine_learning",
        "viewStateShareKey": _VIEW,
        **({"compareRunsMode": "CHART"} if charts else {}),
    }
    return f"{server.rstrip('/')}/#/experiments/{experiment}/runs?{urlencode(asked)}"


@contextmanager
def decoration(what: str) -> Iterator[None]:
    """Do without what a server refuses, or answers in a way that nobody expected."""
    try:
        yield
    except Exception as error:
        _log.warning("the page does without %s: %s", what, error)
