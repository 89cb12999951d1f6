"""What a run claims of its winners, as its records say it."""

from __future__ import annotations

import pytest

from tuner.candidate import Candidate, CandidateKind
from tuner.dynamic.dispatch_tree import Leaf
from tuner.dynamic.kernel_set import KernelSet, ShapeTimes
from tuner.record import Measurement, Provenance, Record, Status, Trial
from tuner.report.trust.claims import claims, count_misfiled
from tuner.storage.base import RecordStore
from tuner.storage.facts import Defaults, Tasks
from tuner.storage.sqlite_store import MemoryStore
from tuner.task import Instance, Task

DESK = Provenance("runner-1", "a desk", "tvm=1")
DEFAULT, OTHER, FAST = (
    Candidate(CandidateKind.TRACE, text, "test") for text in ("[]", "[1]", "[2]")
)
SHAPES = tuple((("T", size),) for size in range(1, 9))


def kept(task: Task, *timed: tuple[Candidate, Instance, int, float]) -> RecordStore:
    store = MemoryStore()
    store.put(Tasks([task]), Defaults({task.key: DEFAULT.key}))
    for candidate, instance, rung, latency_s in timed:
        measured = Measurement(Status.OK, (latency_s,) * 3)
        trial = Trial(task.key, candidate, instance, rung)
        store.append_many(
            [(Record(trial, measured, DESK, code_hash=f"hash of {candidate.payload}"), None)]
        )
    return store


def test_the_time_of_a_winner_is_the_one_that_the_run_reports() -> None:
    store = kept(
        Task("key", "gemm", "{}", "{}"),
        (DEFAULT, (), 0, 4.0),
        (OTHER, (), 0, 1.5),
        (FAST, (), 0, 0.9),
        (FAST, (), 1, 1.2),
        (OTHER, (), 1, 1.6),
        (FAST, (), 2, 1.0),
    )
    (claim,) = claims(store)
    assert (claim.candidate, claim.record.code_hash) == (FAST, "hash of [2]")
    assert (claim.latency_s, claim.again_s) == (1.0, (1.2, 1.0))
    assert claim.default is not None
    assert (claim.default.trial.candidate, claim.default_s) == (DEFAULT, 4.0)
    assert claim.record.provenance == DESK
    assert claims(store, only=["other"]) == []


def test_a_default_schedule_that_won_has_none_beside_it() -> None:
    (claim,) = claims(kept(Task("key", "gemm", "{}", "{}"), (DEFAULT, (), 0, 4.0)))
    assert (claim.candidate, claim.default, claim.default_s) == (DEFAULT, None, None)


@pytest.mark.parametrize(("most", "expected"), [(3, 3), (100, 4)])
def test_kernels_for_many_shapes_are_claimed_on_shapes_that_they_serve(
    most: int, expected: int
) -> None:
    """One serves the first half, and was not measured on one of them; another the rest."""
    task = Task("key", "dense", "{}", "{}", shapes=tuple((shape, 1.0) for shape in SHAPES))
    times = [(OTHER, shape, 0, 1.0) for shape in SHAPES[1:]]
    times += [(FAST, shape, 0, 2.0) for shape in SHAPES]
    times += [(FAST, shape, 1, 0.5) for shape in SHAPES[4:]]
    store = kept(task, (DEFAULT, SHAPES[-1], 0, 9.0), *times)
    served = tuple(
        ShapeTimes(shape, 1.0, int(n >= 4), 1.0, 1.0, True) for n, shape in enumerate(SHAPES)
    )
    chosen = KernelSet((OTHER, FAST), Leaf(0), (1.0,), 1.0, served, None, 0)
    found = claims(store, {task.key: chosen}, most=most)
    by = {c: [claim for claim in found if claim.candidate == c] for c in (OTHER, FAST)}
    assert len(by[OTHER]) == 3
    assert {claim.record.trial.instance for claim in by[OTHER]} <= set(SHAPES[1:4])
    assert len(by[FAST]) == expected
    assert {claim.record.trial.instance for claim in by[FAST]} <= set(SHAPES[4:])
    assert {claim.latency_s for claim in by[FAST]} == {0.5}
    assert [c.default_s for c in by[FAST] if c.record.trial.instance == SHAPES[-1]] == [9.0]
    assert all(c.default is None for c in found if c.record.trial.instance != SHAPES[-1])


def test_records_that_are_filed_as_they_are_made_are_in_order() -> None:
    store = kept(Task("key", "gemm", "{}", "{}"), (DEFAULT, (), 0, 4.0), (FAST, (), 0, 1.0))
    assert count_misfiled(store, "key") == 0
