"""The templates for products in halves on tensor cores."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from spaces.ir import tvm_compat
from spaces.ir.guard import refusals
from spaces.ir.schedules import new_schedule, task_module
from spaces.targets.gpu import Gpu, gpu_of
from spaces.templates.base import Columns, Costs, Knobs, Template
from spaces.templates.contraction.match import Match, extents_of_shapes, tidy_stages
from spaces.templates.contraction.shape import over_shapes
from spaces.templates.tensor_cores import costs
from spaces.templates.tensor_cores.family import Family, family_of
from spaces.templates.tensor_cores.product import KINDS, Product, find_product
from spaces.templates.tensor_cores.tile import Tile
from tuner.task import Instance, Task


class TensorCoreTemplate:
    """Tiles of a product, whose operands are copied into shared memory ahead of time.

    Args:
        extents: extents of the axes for each shape that it is tuned for.
    """

    def __init__(
        self,
        family: Family,
        product: Product,
        gpu: Gpu,
        extents: Mapping[Instance, Sequence[int]],
    ) -> None:
        self._family, self._product, self._gpu, self._extents = family, product, gpu, extents
        self._choices = family.choices_of(product)

    def at(self, instance: Instance) -> TensorCoreTemplate:
        """See `spaces.templates.base.ShapedTemplate`."""
        shaped = copy.copy(self)
        shaped._product = self._product.of(self._product.c.of_extents(self._extents[instance]))
        return shaped

    def shape_costs_s(self, knobs: Knobs) -> Costs:
        """See `spaces.templates.base.ShapedTemplate`."""
        product, tile = self._over_shapes(knobs)
        cycles = costs.estimate(product, self._gpu, tile).cycles
        return np.asarray(cycles / self._gpu.hertz)

    def layout(self, knobs: Knobs) -> str:
        """See `spaces.templates.base.ShapedTemplate`: these kernels take operands as they are."""
        return ""

    @property
    def name(self) -> str:
        return self._family.name

    @property
    def choices(self) -> Mapping[str, tuple[int, ...]]:
        return self._choices

    def costs_s(self, columns: Columns) -> Costs:
        tile = self._family.tile_of(columns)
        seconds = costs.estimate(self._product, self._gpu, tile).cycles / self._gpu.hertz
        return np.where(self._family.feasible(self._product, self._gpu, tile), seconds, np.inf)

    def traits(self, columns: Columns) -> npt.NDArray[np.float32]:
        """See `spaces.templates.tensor_cores.costs.traits`."""
        return costs.traits(self._product, self._gpu, self._family.tile_of(columns))

    def shape_traits(self, knobs: Knobs) -> npt.NDArray[np.float32]:
        """See `spaces.features.knob_features.HasShapeTraits`."""
        product, tile = self._over_shapes(knobs)
        return costs.traits(product, self._gpu, tile)

    def apply(self, schedule: Any, knobs: Knobs) -> Any:
        match = Match(schedule.mod["main"], schedule, tidy_stages(schedule))
        tile = self._family.tile_of(knobs)
        program = self._family.write(match, self._product, tile, self._gpu.multiprocessors)
        return new_schedule(tvm_compat.normalize(program))

    def _over_shapes(self, knobs: Knobs) -> tuple[Product, Tile]:
        c, columns = over_shapes(self._product.c, self._extents, knobs)
        return self._product.of(c), self._family.tile_of(columns)


def takes_halves(task: Task) -> bool:
    """Whether a task may have such a template, which to find takes longer: its device has the
    instructions, and a parameter the type."""
    parameters = task_module(task.module)["main"].params
    has_type = any(tvm_compat.param_dtype(p) in KINDS for p in parameters)
    return has_type and family_of(gpu_of(task.target)) is not None


def tensor_core_templates(task: Task, match: Match | None) -> list[Template]:
    """The template of a task; empty where it is no product in halves."""
    gpu = gpu_of(task.target)
    family = family_of(gpu)
    if match is None or family is None:
        return []
    found = None
    extents, largest = extents_of_shapes(match, task.shapes)
    with refusals(f"the template for products on tensor cores, {task.name}"):
        found = find_product(match, largest)
    return [] if found is None else [TensorCoreTemplate(family, found, gpu, extents)]
