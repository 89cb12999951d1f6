"""The micro-kernel template: dense, batched matrix products and convolutions on a CPU."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from spaces.cpu import Cpu, cpu_of
from spaces.knobs import Columns, Costs, Knobs, Template, draw
from spaces.realize import new_schedule, task_module
from spaces.templates import contraction_knobs
from spaces.templates.contraction_match import describe, tidy
from spaces.templates.contraction_product import as_product
from spaces.templates.contraction_schedule import write_contraction
from spaces.templates.contraction_shape import Contraction
from spaces.unchecked import Unchecked
from tuner.task import Task

_VERSION = 1
_FLOAT_BITS = (32, 64)
_DRAWN = 1 << 13
_MOST = 3
_MOST_SLOWER = 1.2
_ACROSS = 1.15


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
        form = "product" if contraction.product else "contraction"
        self._name = f"kernel:{form}-{_VERSION}.{variant}"

    @property
    def name(self) -> str:
        return self._name

    @property
    def choices(self) -> Mapping[str, tuple[int, ...]]:
        return self._choices

    @property
    def writes_along_rows(self) -> bool:
        """Whether the vectors of a result lie next to one another in memory."""
        return self._contraction.column_is_last

    def costs_s(self, columns: Columns) -> Costs:
        return contraction_knobs.costs_s(self._contraction, self._cpu, columns)

    def traits(self, columns: Columns) -> npt.NDArray[np.float32]:
        """See `contraction_knobs.traits`."""
        return contraction_knobs.traits(self._contraction, self._cpu, columns)

    def apply(self, schedule: Any, knobs: Knobs) -> None:
        write_contraction(Unchecked(schedule), self._contraction, knobs)


def contraction_templates(task: Task) -> list[Template]:
    """Micro-kernel templates for a task, best choice of rows and columns first.

    Empty where the task is no contraction, or one in numbers that have no multiply-add.
    """
    module = task_module(task.module)
    found = [*_found(module, product=False), *_found(module, product=True)]
    cpu = cpu_of(task.target)
    return _promising(
        [
            template
            for variant, contraction in enumerate(found)
            if contraction.out_bits in _FLOAT_BITS
            and all(o.bits == contraction.out_bits for o in contraction.operands)
            and all((template := ContractionTemplate(contraction, cpu, variant)).choices.values())
        ]
    )


def _found(module: Any, *, product: bool) -> list[Contraction]:
    """The ways to see a program as it is, or brought into the form of a product."""
    schedule = new_schedule(module)
    try:
        stages = tidy(schedule)
        if stages is not None and product:
            stages = as_product(schedule, stages)
        if stages is None or not _is_float(schedule.get(stages.main)):
            return []
        return describe(module["main"], schedule, stages, product=product)
    except Exception:  # TVM raises whatever its C++ side threw; then the rules remain
        return []


def _is_float(block: Any) -> bool:
    return str(block.writes[0].source.dtype).startswith("float")


def _promising(templates: list[ContractionTemplate]) -> list[Template]:
    """Those few that an estimate does not rule out, the best first."""
    ranked = sorted(
        ((_best_s(template), number) for number, template in enumerate(templates)),
    )
    limit = _MOST_SLOWER * min((cost for cost, _ in ranked), default=0.0)
    return [templates[n] for cost, n in ranked[:_MOST] if np.isfinite(cost) and cost <= limit]


def _best_s(template: ContractionTemplate) -> float:
    """The least estimate of some settings; more where the result is written across its rows."""
    columns = draw(template, _DRAWN, np.random.default_rng(0))
    least = float(template.costs_s(columns).min())
    return least * (1.0 if template.writes_along_rows else _ACROSS)
