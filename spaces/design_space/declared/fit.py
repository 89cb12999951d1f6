"""Which declared spaces apply to which tasks: found by trying, before anything else starts."""

from __future__ import annotations

import fnmatch
from collections.abc import Sequence
from dataclasses import dataclass

from spaces.design_space.declared.load import declared
from spaces.design_space.declared.rules import applications_noted
from spaces.design_space.declared.spaces import space_of
from spaces.intrinsics.registration import stub_intrinsics
from spaces.ir.lean_tvm import import_tvm_lean
from tuner.errors import TunerError
from tuner.space.parts import Ours, Part, Rule, Template
from tuner.task import SpaceSource, Task
from tuner.user_code.load import complaint

_NAMED = 3
"""The number of tasks that a message names."""


@dataclass(frozen=True, slots=True)
class Fit:
    """What came of trying.

    Attributes:
        parts: names of the spaces that apply, by task key.
        notes: lines for the user on spaces that do not apply to some tasks that they name.
        error: in one line, why the file cannot be used; empty if it can.
    """

    parts: dict[str, tuple[str, ...]]
    notes: tuple[str, ...] = ()
    error: str = ""


def fit(source: SpaceSource, tasks: Sequence[Task]) -> Fit:
    """Try each declared space on each task that its glob names.

    A space that applies to none of these is an error, and so is a file that declares none.
    """
    try:
        parts = declared(source)
        with applications_noted() as applied:
            found = [_fits(part, source, tasks) for part in parts]
    except TunerError as error:
        return Fit({}, error=str(error))
    fitting = [(part.name, keys) for part, (keys, _) in zip(parts, found, strict=True)]
    applying = {
        task.key: tuple(name for name, keys in fitting if task.key in keys) for task in tasks
    }
    notes = [note for _, note in found if note]
    for part in parts:
        rules = [m for m in getattr(part, "members", ()) if isinstance(m, Rule)]
        unused = [rule.name for rule in rules if rule.name not in applied]
        notes += [f"{part.name}: no block is one of rule {name}'s" for name in unused]
    return Fit({key: names for key, names in applying.items() if names}, tuple(notes))


def _fits(part: Part, source: SpaceSource, tasks: Sequence[Task]) -> tuple[set[str], str]:
    """Keys of the tasks that a space applies to, and a note on those that it should but does not.

    Raises:
        TunerError: it applies to none.
    """
    named = [task for task in tasks if fnmatch.fnmatchcase(task.name, part.tasks)]
    if isinstance(part, Ours):
        return set(), ""
    if not named:
        some = ", ".join(task.name for task in tasks[:_NAMED])
        more = ", ..." if len(tasks) > _NAMED else ""
        raise TunerError(
            f"{source.file}: {part.name}: no task is called {part.tasks}; there are {some}{more}"
        )
    refused = {task.key: why for task in named if (why := _why_not(part, source, task))}
    first = next(iter(refused.values()), "")
    if len(refused) == len(named):
        raise TunerError(first)
    note = f"{part.name} applies to {len(named) - len(refused)} of {len(named)} tasks: {first}"
    return {t.key for t in named} - refused.keys(), note if refused else ""


def _why_not(part: Part, source: SpaceSource, task: Task) -> str:
    """Why a space does not apply to a task, in one line; empty if it does."""
    if task.shapes:
        return (
            f"{source.file}: {part.name}: {task.name} has symbolic dimensions, for which "
            "declared spaces are not searched"
        )
    try:
        points = space_of(task, part, source).points
    except Exception as error:  # a user's code may raise anything
        return f"{complaint(error, source.file)} ({part.name}, {task.name})"
    if isinstance(part, Template) and part.manual and points is None:
        return f"{source.file}: {part.name} draws decisions: declare it with space.template"
    return "" if points != 0 else f"{source.file}: {part.name} gives no schedule for {task.name}"


class FitChild:
    """`fit`, in a process of its own, which registers no intrinsics that nobody asked for."""

    def __init__(self) -> None:
        import_tvm_lean()
        stub_intrinsics()

    def fit(self, source: SpaceSource, tasks: Sequence[Task]) -> Fit:
        """See `fit`."""
        return fit(source, tasks)
