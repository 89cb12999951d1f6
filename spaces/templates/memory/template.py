"""The template for programs bound by memory: reductions, softmax, normalisation, pooling,
elementwise chains, transposes, concatenations.

All stages of a program run row by row, so that intermediate rows stay in the nearest cache; rows
are shared out to the cores; the inner loops are vectors. Exponentials, and the ragged ends of
loops, are left to `spaces.passes.cpu_passes`, right before the program is compiled.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np

from spaces.ir import tvm_compat
from spaces.ir.guard import Unsuitable, refusals
from spaces.ir.schedules import new_schedule, task_module
from spaces.ir.symbolic import NO_VALUES
from spaces.targets.cpu import Cpu, cpu_of
from spaces.templates.base import Columns, Costs, Knobs, one_by_one
from spaces.templates.memory import cost
from spaces.templates.memory.cost import Form, form_of
from spaces.templates.memory.inline import inline
from spaces.templates.memory.schedule import write_nests
from spaces.templates.memory.shapes import forms_of, stand_in
from spaces.templates.memory.stages import is_contraction, stages_of
from tuner.task import Instance, Task

Forms = tuple[Form, ...]
"""A program with its optional stages inlined; then, where there are any, with them kept."""

NO_SHAPES: Mapping[Instance, Forms] = MappingProxyType({})
"""The shapes given for a program without symbolic dimensions."""

NAME = "kernel:memory-4"
"""Of the space that it spans; the number changes with the schedules that are written."""


class MemoryTemplate:
    """A template that computes all stages row by row, in vectors.

    Args:
        forms: the program, in the shape that stands for all where it has symbolic dimensions.
        choices: values of each knob.
        values: sizes of the symbolic dimensions in that shape.
        shapes: the program in each shape that it is tuned for; see `ShapedTemplate`.
    """

    def __init__(
        self,
        forms: Forms,
        cpu: Cpu,
        lanes: int,
        choices: Mapping[str, tuple[int, ...]],
        values: Mapping[str, int] = NO_VALUES,
        shapes: Mapping[Instance, Forms] = NO_SHAPES,
    ) -> None:
        self._forms = forms
        self._cpu = cpu
        self._lanes = lanes
        self._choices = choices
        self._values = values
        self._shapes = shapes
        self._looked_at = max(shapes.values(), key=_points, default=forms)
        self._known: dict[tuple[int, ...], Costs] = {}

    @property
    def name(self) -> str:
        return NAME

    @property
    def choices(self) -> Mapping[str, tuple[int, ...]]:
        return self._choices

    def at(self, instance: Instance) -> MemoryTemplate:
        """See `spaces.templates.base.ShapedTemplate`."""
        shaped = copy.copy(self)
        shaped._looked_at = self._shapes[instance]
        return shaped

    def shape_costs_s(self, knobs: Knobs) -> Costs:
        """See `spaces.templates.base.ShapedTemplate`."""
        key = tuple(knobs[name] for name in self._choices)
        if key not in self._known:
            costs = (self._cost_s(knobs, forms) for forms in self._shapes.values())
            self._known[key] = np.array([np.inf if c is None else c for c in costs])
        return self._known[key]

    def layout(self, knobs: Knobs) -> str:
        """See `spaces.templates.base.ShapedTemplate`; nothing is packed."""
        return ""

    def costs_s(self, columns: Columns) -> Costs:
        # There are far fewer settings than draws.
        table = np.stack([columns[name] for name in self._choices], axis=1)
        settings, place = np.unique(table, axis=0, return_inverse=True)
        distinct = {name: settings[:, n] for n, name in enumerate(self._choices)}
        costs = one_by_one(distinct, lambda knobs: self._cost_s(knobs, self._looked_at))
        return costs[place.reshape(-1)]

    def _cost_s(self, knobs: Knobs, forms: Forms) -> float | None:
        if not cost.is_distinct(self._forms[knobs["keep"]], knobs):
            return None
        return cost.cost_s(forms[knobs["keep"]], self._cpu, self._lanes, knobs)

    def apply(self, schedule: Any, knobs: Knobs) -> Any:
        write_nests(schedule, knobs, self._lanes, self._values)
        return schedule


def memory_template(task: Task, *, tried: bool = True) -> MemoryTemplate | None:
    """The template for a task that is bound by memory; None where its loops are not plain ones.

    None also for a sum of products of two tensors that uses each element often, unless its sizes
    are symbolic and small ones are among those it is tuned for.

    Args:
        tried: whether choices that TVM refuses are left out, for which some are scheduled. Whoever
            writes a given setting can do without.
    """
    module = task_module(task.module)
    values = stand_in(task.shapes)
    instances = [instance for instance, _ in task.shapes]
    forms: Forms = ()
    with refusals(f"the template for what is bound by memory, {task.name}"):
        inlined, optional, shapes = _forms_of(module, values, instances, keep=False)
        forms = (inlined,)
        if optional:
            kept, _, others = _forms_of(module, values, instances, keep=True)
            forms, shapes = (inlined, kept), {i: shapes[i] + others[i] for i in instances}
    if not forms:
        return None
    tuned = [form for some in shapes.values() for form in some] or list(forms)
    if all(any(map(is_contraction, form.stages)) for form in tuned):
        return None
    cpu = cpu_of(task.target)
    lanes = cpu.lanes(_bits(inlined))
    choices = cost.choices_of(inlined, cpu, lanes, optional=optional)
    if tried:
        working = _working(module, choices, lanes, values)
        if working is None:
            return None
        choices = dict(working)
    return MemoryTemplate(forms, cpu, lanes, choices, values, shapes)


def _forms_of(
    module: Any, values: Mapping[str, int], instances: Sequence[Instance], *, keep: bool
) -> tuple[Form, bool, dict[Instance, Forms]]:
    """A program after inlining, whether it has stages that may be kept, and its form in each shape.

    Raises:
        Unsuitable: it has a block that is no plain stage, or no block at all.
        Exception: whatever TVM throws on an odd program.
    """
    schedule, buffers = new_schedule(module), list[Any]()
    optional = inline(schedule, keep=keep, values=values)
    stages = stages_of(schedule, values, buffers)
    if not stages:
        raise Unsuitable("no plain stages")
    form = form_of(stages)
    blocks = [schedule.get(block) for block in tvm_compat.stage_blocks(schedule)]
    shapes = forms_of(form, blocks, buffers, instances)
    return form, optional, {instance: (shaped,) for instance, shaped in shapes.items()}


def _working(
    module: Any,
    choices: Mapping[str, tuple[int, ...]],
    lanes: int,
    values: Mapping[str, int],
) -> Mapping[str, tuple[int, ...]] | None:
    """The choices without those that TVM refuses for this program; None if it refuses all."""
    base = {name: known[-1] for name, known in choices.items()} | {"keep": 0, "stream": 0}
    for vectors in (choices["vectors"], (0,)):
        tried = {**base, "vectors": vectors[-1], "tree": base["tree"] if vectors[-1] else 0}
        if not _applies(module, tried, lanes, values):
            continue
        left = {**choices, "vectors": vectors}
        for name in ("keep", "stream", "parts"):
            trials = ((v, {**tried, name: v}) for v in choices[name])
            found = [v for v, knobs in trials if _applies(module, knobs, lanes, values)]
            left[name] = tuple(found) or choices[name][:1]
        return left
    return None


def _applies(module: Any, knobs: Knobs, lanes: int, values: Mapping[str, int]) -> bool:
    schedule = new_schedule(module)
    with refusals("a choice of the template for what is bound by memory"):
        write_nests(schedule, knobs, lanes, values)
        return True
    return False


def _points(forms: Forms) -> int:
    """The number of times that the bodies of a program's stages run."""
    return sum(stage.points for stage in forms[0].stages)


def _bits(form: Form) -> int:
    """The size in bits of the widest elements of the largest tensors."""
    accesses = [a for s in form.stages for a in (*s.reads, *s.writes)]
    most = max(access.elements for access in accesses)
    return max(access.bits for access in accesses if access.elements == most)
