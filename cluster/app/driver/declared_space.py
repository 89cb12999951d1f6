"""A user's space, tried on the tasks of a model before anything else is started."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from tuner.errors import TunerError, UsageError
from tuner.process.ask_once import ask_once
from tuner.process.outcome import Returned
from tuner.request.options import TuneOptions
from tuner.space.source import read_source
from tuner.task import SpaceSource, Task

if TYPE_CHECKING:
    from spaces.design_space.declared.fit import Fit

_CHILD = "spaces.design_space.declared.fit:FitChild"
_START_S = 120.0
_DEADLINE_S, _PER_TASK_S = 60.0, 5.0
_MEMORY_LIMIT_BYTES = 4 << 30


def find_space(options: TuneOptions) -> SpaceSource | None:
    """The file of the space that a request names; None where it names none.

    Raises:
        TunerError: it cannot be read.
    """
    asked = options.space
    return read_source(asked, options.space_arguments) if isinstance(asked, str) else asked


def refuse_pickled(options: TuneOptions) -> None:
    """Refuse a space that no file has, which other machines could not read.

    Raises:
        UsageError: it is one.
    """
    if isinstance(options.space, SpaceSource) and options.space.pickled:
        raise UsageError(
            "space: on a cluster other machines must be able to find it: give it a name at the top "
            "of a Python file, SPACE = space.union(...)"
        )


def with_space(
    tasks: Sequence[Task], space: SpaceSource | None
) -> tuple[tuple[Task, ...], tuple[str, ...]]:
    """Tasks that know what to search, and lines for the user on what does not apply.

    The file runs in a process of its own, as a user's code may do anything.

    Raises:
        TunerError: the space cannot be used.
    """
    if space is None:
        return tuple(tasks), ()
    found = _try_out(tasks, space)
    if found.error:
        raise TunerError(found.error)
    parts = found.parts
    fitted = tuple(
        replace(task, space=replace(space, parts=parts[task.key])) if task.key in parts else task
        for task in tasks
    )
    return fitted, found.notes


def _try_out(tasks: Sequence[Task], space: SpaceSource) -> Fit:
    outcome = ask_once(
        _CHILD,
        (),
        "fit",
        space,
        list(tasks),
        ready_s=_START_S,
        deadline_s=_DEADLINE_S + _PER_TASK_S * len(tasks),
        env={"CUDA_VISIBLE_DEVICES": ""},
        memory_limit_bytes=_MEMORY_LIMIT_BYTES,
    )
    if not isinstance(outcome, Returned):
        raise TunerError(f"{space.file}: {outcome}")
    found: Fit = outcome.value
    return found
