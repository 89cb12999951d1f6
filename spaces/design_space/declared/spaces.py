"""The declared spaces of a task."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import Protocol

from spaces.design_space.base import Space
from spaces.design_space.declared.load import load_parts
from spaces.design_space.declared.opaque import OpaqueSpace
from spaces.design_space.declared.programs import ProgramSpace
from spaces.design_space.declared.rules import rules_of
from spaces.design_space.trace_space import TraceSpace
from spaces.ir.schedules import InvalidCandidate, task_module
from tuner.source import Source
from tuner.space.parts import Ours, Part, Program, Template
from tuner.task import SpaceSource, Task


class DeclaredSpace(Space, Protocol):
    """A space that its user declared."""

    @property
    def points(self) -> int | None:
        """The number of points where nothing is drawn, else None.

        Raises:
            Exception: whatever the user's code raises.
        """


def space_of(
    task: Task, part: Part, source: SpaceSource, mutators: tuple[Source, ...] = ()
) -> DeclaredSpace:
    """The space that a part of a file spans over a task.

    Args:
        mutators: a user's own, for spaces of traces.
    """
    if isinstance(part, Program):
        return ProgramSpace(task, part, source.space_name(part.name))
    module = task_module(task.module)
    rules = rules_of(part, source.space_name(part.name), module, task.target)
    if isinstance(part, Template) and part.opaque:
        return OpaqueSpace(task, part.function, rules)
    return TraceSpace(task, rules, mutators)


def find_declared(task: Task, mutators: tuple[Source, ...] = ()) -> tuple[DeclaredSpace, ...]:
    """The declared spaces that apply to a task, made once; see `space_of`."""
    return _spaces(task, task.space, mutators) if task.space is not None else ()


@lru_cache(maxsize=64)
def _spaces(
    task: Task, source: SpaceSource, mutators: tuple[Source, ...]
) -> tuple[DeclaredSpace, ...]:
    return tuple(
        space_of(task, part, source, mutators)
        for part in load_parts(_whole(source))
        if part.name in source.parts and not isinstance(part, Ours)
    )


def with_ours(task: Task) -> bool:
    """Whether what is known here is searched as well."""
    source = task.space
    return source is None or any(isinstance(p, Ours) for p in load_parts(_whole(source)))


def find_declared_by_name(task: Task, name: str) -> DeclaredSpace:
    """The declared space of a task that candidates of this name come from.

    Raises:
        InvalidCandidate: the task has none of this name.
    """
    for space in find_declared(task):
        if space.name == name:
            return space
    raise InvalidCandidate(f"{task.name} has no space {name}")


def _whole(source: SpaceSource) -> SpaceSource:
    """A file as it is for all tasks."""
    return replace(source, parts=())
