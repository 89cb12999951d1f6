"""The best schedules of a run are put into modules, lowered or not; nothing is measured here."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import tuner
from cluster.app.driver.export import apply_to
from tuner.errors import TunerError
from tuner.record import Measurement, Record, Status, Trial
from tuner.request.model_spec import ModelSpec
from tuner.run_location import RunLocation
from tuner.runs.folder import Manifest, open_run
from tuner.runs.remote import open_store
from tuner.storage.base import begin_session
from tuner.storage.facts import Defaults, SessionEnded, Tasks

pytestmark = pytest.mark.tvm

LLVM = '{"kind":"llvm","num-cores":1}'
DENSE = f"{Path(__file__).parents[4] / 'examples' / 'dense.py'}:dense"


def dense(**args: int) -> Any:
    from examples.dense import dense as made

    return made(**args)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of a small network in Relax, one of whose tasks has a result."""
    from spaces.design_space.default_schedule import default_candidate
    from spaces.frontends.model import load_model
    from spaces.frontends.model_copy import save_model_copy
    from spaces.lowering.extract_tasks import extract
    from spaces.lowering.lower import lower

    model = load_model(ModelSpec(DENSE))
    task = extract(lower(model.module, LLVM), LLVM)[0]
    folder, _ = open_run(
        tmp_path_factory.mktemp("runs") / "dense", Manifest("dense", model.content_hash, LLVM)
    )
    save_model_copy(model, folder.model_dir)
    default = default_candidate(task)
    with closing(open_store(RunLocation.of(folder.root), folder)) as store:
        store.put(Tasks([task]), Defaults({task.key: default.key}))
        session = begin_session(store, 100.0)
        store.append_many(
            [(Record(Trial(task.key, default), Measurement(Status.OK, (0.004,))), None)]
        )
        store.put(SessionEnded(session, 104.0, "trials"))
    return folder.root


@pytest.mark.parametrize(
    "module",
    [lambda: None, dense, lambda: tuner.lower(dense(), LLVM)],
    ids=["the run's own", "the same", "one that was lowered already"],
)
def test_programs_of_the_run_have_its_schedules(run: Path, module: Callable[[], Any]) -> None:
    applied = apply_to(run, module())
    assert any("tirx.is_scheduled" in (f.attrs or {}) for f in applied.functions.values())


def test_a_network_of_other_shapes_is_refused(run: Path) -> None:
    with pytest.raises(TunerError, match="dimension 0 is 3 in the model") as refused:
        apply_to(run, dense(batch=3))
    assert "\n" not in str(refused.value)
