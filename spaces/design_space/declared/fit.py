"""Which declared spaces apply to which tasks: found by trying, before anything else starts."""

from __future__ import annotations

import fnmatch
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from spaces.design_space.declared.load import load_parts
from spaces.design_space.declared.rules import applications_noted
from spaces.design_space.declared.spaces import DeclaredSpace, space_of
from spaces.design_space.trace_space import MOST_DRAWS, ConstraintRefused
from spaces.intrinsics.registration import stub_intrinsics
from spaces.ir.lean_tvm import import_tvm_lean
from spaces.ir.schedules import InvalidCandidate, task_module
from spaces.ir.tvm_compat import sblocks
from tuner.candidate import Draft
from tuner.errors import TunerError
from tuner.space.parts import Ours, Part, Rule, Template
from tuner.task import SpaceSource, Task
from tuner.user_code.load import complaint

_NAMED, _BLOCKS = 3, 8
"""The number of tasks and of blocks that a message names."""
_LEAST_TRIES, _TRIES = 4, 25
"""Drafts by which a predicate is tried where it holds, and where it does not."""


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
        parts = load_parts(source)
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
        unused = [rule for rule in _rules_of(part) if rule.name not in applied]
        told = [_no_block(rule, part, source, tasks) for rule in unused]
        if (
            told
            and len(told) == len(getattr(part, "members", ()))
            and not getattr(part, "stock", 1)
        ):
            return Fit({}, error=told[0])
        notes += told
    return Fit({key: names for key, names in applying.items() if names}, tuple(notes))


def _rules_of(part: Part) -> list[Rule]:
    return [m for m in getattr(part, "members", ()) if isinstance(m, Rule)]


def _no_block(rule: Rule, part: Part, source: SpaceSource, tasks: Sequence[Task]) -> str:
    """A line about a rule that applies to no block, with the blocks that there are."""
    named = [task for task in tasks if fnmatch.fnmatchcase(task.name, part.tasks)]
    blocks = dict.fromkeys(
        str(block.name_hint)
        for task in named
        for block in sblocks(task_module(task.module)["main"])
    )
    blocks.pop("root", None)
    shown = ", ".join([*blocks][:_BLOCKS]) + (", ..." if len(blocks) > _BLOCKS else "")
    annotated = f" with the annotation {rule.annotation}" if rule.annotation else ""
    return (
        f"{_place(rule.function, source)}: {part.name}: no block is one of rule {rule.name}'s "
        f"({rule.blocks}{annotated}); there are {shown}"
    )


def _place(function: Any, source: SpaceSource) -> str:
    """The file and the line of a function of a user's."""
    code = getattr(function, "__code__", None)
    return f"{source.file}:{code.co_firstlineno}" if code is not None else source.file


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
        space = space_of(task, part, source)
        points = space.points
        if points is None and isinstance(part, Template) and part.where is not None:
            return _never(part, part.where, space, source, task)
    except Exception as error:  # a user's code may raise anything
        return f"{complaint(error, source.file)} ({part.name}, {task.name})"
    if isinstance(part, Template) and part.manual and points is None:
        return f"{source.file}: {part.name} draws decisions: declare it with space.template"
    return "" if points != 0 else f"{source.file}: {part.name} gives no schedule for {task.name}"


def _never(
    part: Template, where: Any, space: DeclaredSpace, source: SpaceSource, task: Task
) -> str:
    """A line about a predicate that refused all of many draws; empty where it let one through, or
    where something else refused it.

    Raises:
        Exception: whatever the predicate raises.
    """
    let_through = False
    for number in range(1, _TRIES + 1):
        try:
            space.realize_draft(Draft(task.key, number, number))
        except ConstraintRefused:
            continue
        except InvalidCandidate:
            pass
        let_through = True
        if number >= _LEAST_TRIES:
            break
    if let_through:
        return ""
    draws = _TRIES * MOST_DRAWS
    return (
        f"{_place(where, source)}: {part.name}: where= held for none of {draws} draws for "
        f"{task.name}"
    )


class FitChild:
    """`fit`, in a process of its own, which registers no intrinsics that nobody asked for."""

    def __init__(self) -> None:
        import_tvm_lean()
        stub_intrinsics()

    def fit(self, source: SpaceSource, tasks: Sequence[Task]) -> Fit:
        """See `fit`."""
        return fit(source, tasks)
