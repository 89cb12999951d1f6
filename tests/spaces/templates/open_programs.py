"""Programs whose dimensions may be open, as tasks; what is asked of their settings."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from spaces.design_space.knob_space import KnobSpace
from spaces.lowering.extract_tasks import task_of
from spaces.templates.base import Template, draw, every, setting
from spaces.templates.registry import template_named, templates_of
from tuner.task import Instance, Task

Size = int | str
"""Of a dimension; the name of an open one."""


@dataclass(frozen=True, slots=True)
class Program:
    """A program, and the sizes of its open dimensions that it is run on.

    Attributes:
        instances: the first is not tuned for, where dimensions are open.
    """

    write: Callable[[], Any]
    instances: tuple[Instance, ...] = ((),)


def extent(size: Size) -> Any:
    """The extent of a dimension."""
    from tvm import te, tirx

    return te.var(size, "int64") if isinstance(size, str) else tirx.const(size, "int64")


def task_of_program(program: Program, target: str, name: str) -> Task:
    """The task of a program."""
    task = task_of(program.write(), target, name=name)
    return replace(task, shapes=tuple((known, 1.0) for known in program.instances[1:]))


def names(task: Task) -> list[str]:
    """Of a task's templates."""
    return [template.name for template in templates_of(task)]


def space_named(task: Task, name: str) -> KnobSpace:
    """The space of this name of a task."""
    template = template_named(task, name)
    assert template is not None
    return KnobSpace(task, template)


def list_feasible(
    template: Template, step: int
) -> tuple[dict[str, set[int]], list[dict[str, int]]]:
    """The values that knobs have in settings within the limits, and one of so many of these."""
    columns = every(template)
    feasible = np.isfinite(template.costs_s(columns))
    used = {knob: {*columns[knob][feasible].tolist()} for knob in template.choices}
    return used, [setting(columns, int(row)) for row in np.flatnonzero(feasible)[::step]]


def draw_feasible(template: Template, number: int, **fixed: int) -> list[dict[str, int]]:
    """So many settings within the limits, any one equally likely, with some values fixed."""
    columns = dict(draw(template, 1 << 15, np.random.default_rng(number)))
    columns |= {knob: np.full_like(columns[knob], value) for knob, value in fixed.items()}
    (good,) = np.nonzero(np.isfinite(template.costs_s(columns)))
    assert len(good) >= number
    return [setting(columns, int(row)) for row in good[:number]]


def all_values(template: Template) -> dict[str, set[int]]:
    """The values of each knob."""
    return {knob: {*values} for knob, values in template.choices.items()}
