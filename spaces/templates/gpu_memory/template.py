"""The template for programs bound by memory on a GPU: reductions, softmax, normalisation, pooling,
elementwise chains, gathers, transposes.

A setting stands for a program that says what each thread does: it loads and stores vectors, joins
its sums with those of other threads, and holds a row of which several stages need each element.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from spaces.ir import tvm_compat
from spaces.ir.guard import Unsuitable, refusals
from spaces.ir.schedules import new_schedule, task_module
from spaces.passes.cuda.thread_programs import in_block
from spaces.targets.gpu import Gpu, gpu_of
from spaces.templates.base import Columns, Costs, Knobs
from spaces.templates.gpu_memory.facts import Extents, ExtentsOf, read_facts, stack
from spaces.templates.gpu_memory.kernels import Kernels, kernels_of
from spaces.templates.gpu_memory.reader import read_program
from spaces.templates.memory.shapes import stand_in
from spaces.templates.memory.stages import is_contraction, stages_of
from tuner.task import Instance, Task


class GpuMemoryTemplate:
    """Vectors of a program's elements, shared out to threads.

    Args:
        extents: the sizes of each shape that it is tuned for; of no instance those of a program
            without symbolic dimensions.
        largest: the sizes of the largest shape.
        values: sizes of the symbolic dimensions for which the structure is decided.
    """

    def __init__(
        self,
        kernels: Kernels,
        gpu: Gpu,
        extents: Mapping[Instance, Extents],
        largest: Extents,
        values: Mapping[str, int],
    ) -> None:
        self._kernels, self._gpu, self._extents, self._values = kernels, gpu, extents, values
        self._looked_at = largest
        self._choices = kernels.choices

    @property
    def name(self) -> str:
        return self._kernels.name

    @property
    def choices(self) -> Mapping[str, tuple[int, ...]]:
        return self._choices

    def at(self, instance: Instance) -> GpuMemoryTemplate:
        """See `spaces.templates.base.ShapedTemplate`."""
        shaped = copy.copy(self)
        shaped._looked_at = self._extents[instance]
        return shaped

    def costs_s(self, columns: Columns) -> Costs:
        seconds = self._kernels.cycles(self._looked_at, columns) / self._gpu.hertz
        return np.where(self._kernels.feasible(columns), seconds, np.inf)

    def shape_costs_s(self, knobs: Knobs) -> Costs:
        """See `spaces.templates.base.ShapedTemplate`."""
        return self._kernels.cycles(*self._over_shapes(knobs)) / self._gpu.hertz

    def layout(self, knobs: Knobs) -> str:
        """See `spaces.templates.base.ShapedTemplate`; nothing is packed."""
        return ""

    def traits(self, columns: Columns) -> npt.NDArray[np.float32]:
        """See `spaces.features.knob_features.HasTraits`."""
        return self._kernels.traits(self._looked_at, columns)

    def shape_traits(self, knobs: Knobs) -> npt.NDArray[np.float32]:
        """See `spaces.features.knob_features.HasShapeTraits`."""
        return self._kernels.traits(*self._over_shapes(knobs))

    def apply(self, schedule: Any, knobs: Knobs) -> Any:
        parameters = [*schedule.mod["main"].params]
        program = read_program(schedule, self._values)
        written = self._kernels.write(program, parameters, knobs)
        return new_schedule(tvm_compat.normalize(in_block(written)))

    def _over_shapes(self, knobs: Knobs) -> tuple[Extents, Columns]:
        """The sizes of all shapes, and a setting once for each of them."""
        number = len(self._extents)
        columns = {name: np.full(number, value, np.int64) for name, value in knobs.items()}
        return stack([*self._extents.values()]), columns


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
    program, gpu = read_program(schedule, values), gpu_of(task.target)
    facts, extents = read_facts(program), ExtentsOf(program, parameters)
    instances = [instance for instance, _ in task.shapes] or [()]
    known = {instance: extents.at(dict(instance)) for instance in instances}
    largest = max(known.values(), key=lambda sizes: (max(sizes.lanes), sizes.items))
    kernels = kernels_of(program, facts, largest, gpu)
    return GpuMemoryTemplate(kernels, gpu, known, largest, values)
