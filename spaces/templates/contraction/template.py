"""The micro-kernel template: dense, batched matrix products and convolutions on a CPU."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt

from spaces.ir.guard import refusals
from spaces.ir.unchecked_schedule import Unchecked
from spaces.targets.cpu import Cpu, cpu_of
from spaces.templates.base import Columns, Costs, Knobs, Template, draw
from spaces.templates.contraction import knob_model
from spaces.templates.contraction import register_tile as k
from spaces.templates.contraction.canonical import canonical
from spaces.templates.contraction.match import Match, describe, extents_of_shapes
from spaces.templates.contraction.product_form import product_of
from spaces.templates.contraction.schedule import write_contraction
from spaces.templates.contraction.shape import Contraction, over_shapes
from tuner.task import Instance, Shapes, Task

NO_EXTENTS: Mapping[Instance, Sequence[int]] = MappingProxyType({})
"""The extents given for a program without symbolic dimensions."""

_VERSIONS = {"shapes": 4}
"""Versions of the schedules that are written, by form; 1 for the forms that are not listed."""
_SUM_BITS = (32, 64)
_WHOLE = "int32"
_DRAWN = 1 << 13
_MOST = 3
_MOST_SLOWER = 1.2
_ACROSS = 1.15


class ContractionTemplate:
    """A register-tiled, packed kernel with blocked loops around it.

    Args:
        contraction: the computation, with its axes of rows and columns.
        variant: number of this choice of rows and columns.
        extents: extents of the axes for each shape that a symbolic program is tuned for; see
            `spaces.templates.base.ShapedTemplate`.
    """

    def __init__(
        self,
        contraction: Contraction,
        cpu: Cpu,
        variant: int,
        extents: Mapping[Instance, Sequence[int]] = NO_EXTENTS,
    ) -> None:
        self._contraction = contraction
        self._cpu = cpu
        self._extents = extents
        self._choices = knob_model.choices_of(contraction, cpu)
        form = "product" if contraction.product else "contraction"
        form = "shapes" if contraction.symbolic else form
        form = form if contraction.groups is None else f"{form}-of-groups"
        self._name = f"kernel:{form}-{_VERSIONS.get(form, 1)}.{variant}"

    def at(self, instance: Instance) -> ContractionTemplate:
        """See `spaces.templates.base.ShapedTemplate`."""
        shaped = copy.copy(self)
        shaped._contraction = self._contraction.of_extents(self._extents[instance])
        shaped._choices = knob_model.choices_within(shaped._contraction, self._choices)
        return shaped

    def shape_costs_s(self, knobs: Knobs) -> Costs:
        """See `spaces.templates.base.ShapedTemplate`."""
        shapes, columns = over_shapes(self._contraction, self._extents, knobs)
        return np.asarray(knob_model.estimate(shapes, self._cpu, columns).cycles / k.HERTZ)

    def padding(self, knobs: Knobs) -> Costs:
        """See `spaces.templates.base.PadsShapes`."""
        shapes, columns = over_shapes(self._contraction, self._extents, knobs)
        return knob_model.padding(shapes, columns)

    @property
    def shape_work(self) -> Costs:
        """See `spaces.templates.base.PadsShapes`."""
        shapes, _ = over_shapes(self._contraction, self._extents, {})
        done = shapes.row_extent * shapes.column_extent * shapes.depth * shapes.outer_extent
        return np.asarray(done, dtype=np.float64) * np.ones(len(self._extents))

    def layout(self, knobs: Knobs) -> str:
        """See `spaces.templates.base.ShapedTemplate`."""
        return knob_model.layout(self._contraction, knobs)

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

    def canonical(self, columns: Columns) -> Columns:
        """See `spaces.templates.base.HasTwins`."""
        return canonical(self._contraction, knob_model.tiling(self._contraction, columns), columns)

    def costs_s(self, columns: Columns) -> Costs:
        return knob_model.costs_s(self._contraction, self._cpu, columns)

    def traits(self, columns: Columns) -> npt.NDArray[np.float32]:
        """See `spaces.templates.contraction.knob_model.traits`."""
        return knob_model.traits(self._contraction, self._cpu, columns)

    def shape_traits(self, knobs: Knobs) -> npt.NDArray[np.float32]:
        """See `spaces.features.knob_features.HasShapeTraits`."""
        shapes, columns = over_shapes(self._contraction, self._extents, knobs)
        return knob_model.traits(shapes, self._cpu, columns)

    def apply(self, schedule: Any, knobs: Knobs) -> Any:
        write_contraction(Unchecked(schedule), self._contraction, knobs)
        return schedule


def contraction_templates(task: Task, match: Match | None) -> list[Template]:
    """Micro-kernel templates for a task, best choice of rows and columns first.

    Empty where the task is no contraction, or one in numbers that have no multiply-add. Where the
    CPU has no instruction for bytes, those of known sizes are widened as they are read.
    """
    summed = "" if match is None else str(match.main.writes[0].source.dtype)
    whole = summed == _WHOLE
    if match is None or not (whole or summed.startswith("float")):
        return []
    cpu = cpu_of(task.target)
    found: list[tuple[Contraction, Mapping[Instance, Sequence[int]]]] = []
    with refusals(f"the template for contractions, {task.name}"):
        found += _ways(match, task.shapes)
    if not task.shapes:
        with refusals(f"the template for products of another form, {task.name}"):
            found += _ways(product_of(match), ())
    templates = (
        ContractionTemplate(contraction, cpu, variant, extents)
        for variant, (seen, extents) in enumerate(found)
        if (contraction := _suit(seen, cpu, whole=whole)) is not None
        and (contraction.plain or contraction.exact_but_rows)
        and contraction.operands[contraction.rows_of].packed_bits is None
    )
    return _promising([t for t in templates if all(t.choices.values())])


def _ways(
    match: Match | None, shapes: Shapes
) -> list[tuple[Contraction, Mapping[Instance, Sequence[int]]]]:
    """The ways to see a program as rows and columns.

    One with symbolic dimensions is described for the largest of its shapes.
    """
    if match is None:
        return []
    extents, largest = extents_of_shapes(match, shapes)
    return [(contraction, extents) for contraction in describe(match, largest)]


def _suit(c: Contraction, cpu: Cpu, *, whole: bool) -> Contraction | None:
    """A contraction as a CPU does it: without groups where it has no instruction for them; None
    where the numbers have no multiply-add."""
    if c.out_bits not in _SUM_BITS:
        return None
    if c.groups is not None and (cpu.vnni if whole else cpu.dots_bf16):
        return c
    if whole:
        return None if c.symbolic else replace(c, groups=None)
    return c if all(o.bits == c.out_bits for o in c.operands) else None


def _promising(templates: list[ContractionTemplate]) -> list[Template]:
    """The few templates that an estimate does not rule out, best first."""
    ranked = sorted(
        ((_best_s(template), number) for number, template in enumerate(templates)),
    )
    limit = _MOST_SLOWER * min((cost for cost, _ in ranked), default=0.0)
    return [templates[n] for cost, n in ranked[:_MOST] if np.isfinite(cost) and cost <= limit]


def _best_s(template: ContractionTemplate) -> float:
    """The least estimate of random settings; raised where the result is written across its rows."""
    columns = draw(template, _DRAWN, np.random.default_rng(0))
    least = float(template.costs_s(columns).min())
    return least * (1.0 if template.writes_along_rows else _ACROSS)
