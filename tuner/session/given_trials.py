"""The trials of a default schedule and of libraries, when they have their turn, and which count."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tuner.candidate import LIBRARIES, Candidate, family, library_name
from tuner.dynamic.shapes import choose_measured
from tuner.record import Trial
from tuner.storage.base import RecordStore
from tuner.storage.facts import Sizes
from tuner.storage.tallies import count_by_space
from tuner.task import Task

BEFORE_LIBRARIES, BEFORE_DEFAULT = 2, 8
"""Trials of a task before those of libraries, and before that of its default schedule: a program
without a schedule is slow to build and to run, and where time is short it goes into good kernels.
Of a task that never gets so far the gain is not known."""


def make_given_trial(task: Task, candidate: Candidate) -> Trial:
    """The trial of a candidate that no search makes; where there are many shapes, on the middle one
    of those that are measured (the lower of two)."""
    measured = choose_measured(task.shapes)
    instance = measured[(len(measured) - 1) // 2][0] if measured else ()
    return Trial(task.key, candidate, instance)


def note_libraries(store: RecordStore, libraries: Mapping[str, Sequence[Candidate]]) -> None:
    """Note which texts of libraries count from now on: their spaces have a point, those of other
    texts none, as under their names another function is called by now.

    Args:
        libraries: candidates that call them, by task key.
    """
    known, sizes = count_by_space(store.tallies()), {}
    for task_key, candidates in libraries.items():
        named = {candidate.space for candidate in candidates}
        names = {library_name(space) for space in named}
        tried = (space for space in known.get(task_key, {}) if family(space) == LIBRARIES)
        old = [space for space in tried if space not in named and library_name(space) in names]
        sizes[task_key] = {**dict.fromkeys(old, 0), **dict.fromkeys(named, 1)}
    if sizes:
        store.put(Sizes(sizes))
