r"""Runs of an earlier commit: they go on, measure nothing twice, and seed others.

`tests/golden/run` holds the records of two small runs, a matrix product of known size and a layer
with symbolic rows. It is made anew only with a new version of what is in it:

    tuner tune examples/gemm.py:gemm --arg m=64 --arg n=48 --arg k=80 --trials 12 --run static
    tuner tune examples/dense.py:dense --dim T=1,2 --arg features=16 --arg layers=1 --trials 14 \
        --max-kernels 2 --run dynamic

each with `--effort quick --base-model none --until 0` and one core of an x86-64-v3 as its target.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from actors.builder import Builder
from actors.runner import Runner
from spaces.design_space.task_space import TaskSpace
from spaces.templates.registry import templates_of
from tests.actors.inline_measurer import InlineMeasurer
from tests.actors.inline_space_pool import InlineSpacePool
from tests.contracts.programs import gemm_task
from tuner.candidate import Candidate, CandidateKind, Draft, knobs_of
from tuner.cost_models.learner import InlineLearner
from tuner.effort import EFFORTS
from tuner.measure import MeasuredPrograms
from tuner.record import Record
from tuner.search.dynamic.kernel_selection import choose_kernels
from tuner.search.registry import search_maker
from tuner.search.transfer import gather
from tuner.session.limits import Limits
from tuner.session.machines import Machines
from tuner.session.session import Session
from tuner.storage.base import RecordStore
from tuner.storage.sqlite_store import SqliteStore
from tuner.task import Task

pytestmark = [pytest.mark.tvm, pytest.mark.slow]

GOLDEN = Path(__file__).parents[1] / "golden" / "run"


@pytest.fixture(params=["static", "dynamic"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[RecordStore]:
    path = tmp_path / "records.sqlite"
    shutil.copy(GOLDEN / request.param / "records.sqlite", path)
    with closing(SqliteStore(path)) as opened:
        yield opened


def go_on(store: RecordStore, folder: Path, trials: int) -> None:
    """Go on with a run, on this process's own workers."""
    (task,) = store.tasks()
    known = next(r for r in store.scan() if r.trial.candidate.space == "default").trial.candidate
    measurer = InlineMeasurer(
        [task],
        Builder(log_dir=folder),
        Runner(target=task.target, log_dir=folder, scratch=folder),
        effort=EFFORTS["quick"],
        programs=MeasuredPrograms(store.scan()),
    )
    with closing(measurer):
        Session(
            [task],
            {task.key: known},
            machines=Machines(measurer, InlineSpacePool([task]), InlineLearner()),
            store=store,
            limits=Limits(trials, 1e9, 1e6),
            effort=EFFORTS["quick"],
            make_search=search_maker("evolutionary", max_kernels=2),
            seed=0,
        ).run()


def settings(records: list[Record]) -> list[tuple[object, ...]]:
    """What the search tried of templates: space, settings, shape."""
    found = []
    for record in records:
        knobs = knobs_of(record.trial.candidate)
        if knobs is not None and not record.trial.rung:
            space = record.trial.candidate.space
            found.append((space, *sorted(knobs.items()), record.trial.instance))
    return found


def test_they_go_on_and_measure_nothing_twice(store: RecordStore, tmp_path: Path) -> None:
    before = list(store.scan())
    spent = sum(r.measurement.status.spends_budget for r in before if not r.trial.rung)
    go_on(store, tmp_path, spent + 5)
    after = list(store.scan())
    assert after[: len(before)] == before
    new = [r for r in after[len(before) :] if not r.trial.rung]
    assert sum(r.measurement.status.spends_budget for r in new) == 5
    assert CandidateKind.KNOBS in {r.trial.candidate.kind for r in new}
    tried = settings(after)
    assert len(tried) == len(set(tried))


def test_their_winners_seed_similar_tasks() -> None:
    with closing(SqliteStore(GOLDEN / "static" / "records.sqlite", read_only=True)) as store:
        (theirs,) = store.tasks()
        task = gemm_task(theirs.target, 96)
        parents = gather([task], None, [store]).seeds(task).parents
    mine = [p for p in parents if p.space == templates_of(task)[0].name]
    assert mine
    space = TaskSpace(task)
    for number, parent in enumerate(mine):
        child = space.realize_draft(Draft(task.key, number, number, parent)).candidate
        assert child.kind is CandidateKind.KNOBS
        assert child.space == parent.space


def test_their_kernel_sets_are_those_that_were_chosen(tmp_path: Path) -> None:
    with closing(SqliteStore(GOLDEN / "dynamic" / "records.sqlite", read_only=True)) as store:
        (task,) = store.tasks()
        records = tuple(store.scan())
    chosen = choose_kernels(task, records, TaskSpace(task).kernel, 2)
    assert chosen is not None
    assert {c.kind for c in chosen.kernels} == {CandidateKind.KNOBS}
    copies = [r.trial.candidate for r in records if r.trial.candidate.kind == "closed"]
    assert copies
    assert all(_runs(task, copy) for copy in copies)


def _runs(task: Task, candidate: Candidate) -> bool:
    from spaces.design_space.realize import realize

    return realize(task, candidate).mod is not None
