"""The template for programs bound by memory on a GPU: reductions, softmax, normalisation, pooling,
elementwise chains, gathers.

A setting stands for a program that says what each thread does: it loads and stores vectors, joins
its sums with those of other threads, and holds a row of which several stages need each element.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from spaces.ir import tvm_compat
from spaces.ir.guard import Unsuitable, refusals
from spaces.ir.schedules import new_schedule, task_module
from spaces.targets.gpu import Gpu, gpu_of
from spaces.templates.base import Columns, Costs, Knobs
from spaces.templates.gpu_memory import knob_model
from spaces.templates.gpu_memory.facts import Extents, ExtentsOf, Facts, read_facts, stack
from spaces.templates.gpu_memory.program import read_program
from spaces.templates.gpu_memory.setting import setting_of
from spaces.templates.gpu_memory.writer import write_program
from spaces.templates.memory.shapes import stand_in
from spaces.templates.memory.stages import is_contraction, stages_of
from tuner.task import Instance, Task

NAME = "kernel:gpu-memory-1"
"""Of the space that it spans; the number changes with the programs that are written."""


@dataclass(frozen=True, slots=True)
class Shapes:
    """The sizes of a program.

    Attributes:
        largest: those of the largest shape.
        known: those of each shape that it is tuned for; empty where all sizes are known.
    """

    largest: Extents
    known: Mapping[Instance, Extents]


class GpuMemoryTemplate:
    """Vectors of a program's elements, shared out to threads.

    Args:
        values: sizes of the symbolic dimensions for which the structure is decided.
    """

    def __init__(self, facts: Facts, shapes: Shapes, gpu: Gpu, values: Mapping[str, int]) -> None:
        self._facts, self._shapes, self._gpu, self._values = facts, shapes, gpu, values
        self._looked_at = shapes.largest
        self._choices = knob_model.choices_of(facts)

    @property
    def name(self) -> str:
        return NAME

    @property
    def choices(self) -> Mapping[str, tuple[int, ...]]:
        return self._choices

    def at(self, instance: Instance) -> GpuMemoryTemplate:
        """See `spaces.templates.base.ShapedTemplate`."""
        shaped = copy.copy(self)
        shaped._looked_at = self._shapes.known[instance]
        return shaped

    def costs_s(self, columns: Columns) -> Costs:
        largest = self._shapes.largest
        return knob_model.costs_s(self._facts, self._looked_at, largest, self._gpu, columns)

    def shape_costs_s(self, knobs: Knobs) -> Costs:
        """See `spaces.templates.base.ShapedTemplate`."""
        extents, largest = stack([*self._shapes.known.values()]), self._shapes.largest
        setting = setting_of(_over(knobs, len(self._shapes.known)))
        found = knob_model.estimate(self._facts, extents, largest, self._gpu, setting)
        return np.asarray(found.cycles / self._gpu.hertz, dtype=np.float64)

    def layout(self, knobs: Knobs) -> str:
        """See `spaces.templates.base.ShapedTemplate`; nothing is packed."""
        return ""

    def traits(self, columns: Columns) -> npt.NDArray[np.float32]:
        """See `spaces.templates.gpu_memory.knob_model.traits`."""
        largest = self._shapes.largest
        return knob_model.traits(self._facts, self._looked_at, largest, self._gpu, columns)

    def shape_traits(self, knobs: Knobs) -> npt.NDArray[np.float32]:
        """See `spaces.features.knob_features.HasShapeTraits`."""
        extents, largest = stack([*self._shapes.known.values()]), self._shapes.largest
        columns = _over(knobs, len(self._shapes.known))
        return knob_model.traits(self._facts, extents, largest, self._gpu, columns)

    def apply(self, schedule: Any, knobs: Knobs) -> Any:
        parameters = [*schedule.mod["main"].params]
        program = read_program(schedule, self._values)
        setting = setting_of(knobs)
        held = int(knob_model.count_held(self._facts, self._shapes.largest, setting))
        written = write_program(program, parameters, setting, held)
        return new_schedule(tvm_compat.normalize(written))


def _over(knobs: Knobs, number: int) -> Columns:
    """A setting, once for each shape."""
    return {name: np.full(number, value, dtype=np.int64) for name, value in knobs.items()}


def gpu_memory_templates(task: Task) -> list[GpuMemoryTemplate]:
    """The template of a task; empty where it is not bound by memory, or no program of rows, columns
    or single elements."""
    with refusals(f"the template for what is bound by memory on GPUs, {task.name}"):
        return [_make(task)]
    return []


def _make(task: Task) -> GpuMemoryTemplate:
    """The template of a task.

    Raises:
        Unsuitable: it has none.
        Exception: whatever TVM throws on an odd program.
    """
    module, values = task_module(task.module), stand_in(task.shapes)
    schedule = new_schedule(module)
    stages = stages_of(schedule, values)
    if not stages or any(map(is_contraction, stages)):
        raise Unsuitable("bound by arithmetic, or no plain stages")
    parameters = [*module["main"].params]
    program = read_program(schedule, values)
    facts, extents = read_facts(program), ExtentsOf(program, parameters)
    instances = [instance for instance, _ in task.shapes]
    known = dict(zip(instances, extents.over(instances), strict=True))
    largest = max(known.values(), key=lambda e: (max(e.lanes), e.items), default=extents.at({}))
    return GpuMemoryTemplate(facts, Shapes(largest, known), gpu_of(task.target), values)
