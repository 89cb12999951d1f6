"""The micro-kernel template: dense, batched matrix products and convolutions on a CPU."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from spaces.cpu import Cpu, cpu_of
from spaces.knobs import Columns, Costs, Knobs, Template
from spaces.realize import new_schedule, task_module
from spaces.templates import contraction_knobs
from spaces.templates.contraction_match import describe, tidy
from spaces.templates.contraction_schedule import write_contraction
from spaces.templates.contraction_shape import Contraction
from tuner.task import Task

_VERSION = 1
_FLOAT_BITS = (32, 64)


class ContractionTemplate:
    """A register-tiled, packed kernel with blocked loops around it.

    Args:
        contraction: what is computed, and which axes are rows and columns.
        variant: number of this choice of rows and columns.
    """

    def __init__(self, contraction: Contraction, cpu: Cpu, variant: int) -> None:
        self._contraction = contraction
        self._cpu = cpu
        self._choices = contraction_knobs.choices_of(contraction, cpu)
        self._name = f"kernel:contraction-{_VERSION}.{variant}"

    @property
    def name(self) -> str:
        return self._name

    @property
    def choices(self) -> Mapping[str, tuple[int, ...]]:
        return self._choices

    def costs_s(self, columns: Columns) -> Costs:
        return contraction_knobs.costs_s(self._contraction, self._cpu, columns)

    def traits(self, columns: Columns) -> npt.NDArray[np.float32]:
        """See `contraction_knobs.traits`."""
        return contraction_knobs.traits(self._contraction, self._cpu, columns)

    def apply(self, schedule: Any, knobs: Knobs) -> None:
        write_contraction(schedule, self._contraction, knobs)


def contraction_templates(task: Task) -> list[Template]:
    """Micro-kernel templates for a task, best choice of rows and columns first.

    Empty where the task is no contraction, or one in numbers that have no multiply-add.
    """
    module = task_module(task.module)
    schedule = new_schedule(module)
    try:
        stages = tidy(schedule)
        found = [] if stages is None else describe(module["main"], schedule, stages)
    except Exception:  # TVM raises whatever its C++ side threw; then the rules remain
        return []
    cpu = cpu_of(task.target)
    return [
        ContractionTemplate(contraction, cpu, variant)
        for variant, contraction in enumerate(found)
        if contraction.out_bits in _FLOAT_BITS
        and all(o.bits == contraction.out_bits for o in contraction.operands)
        and all(contraction_knobs.choices_of(contraction, cpu).values())
    ]
