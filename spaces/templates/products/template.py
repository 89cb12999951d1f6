"""A template of products, whose family says how they are written and what they take."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from spaces.ir import tvm_compat
from spaces.ir.schedules import new_schedule
from spaces.targets.gpu import Gpu
from spaces.templates.base import Columns, Costs, Knobs
from spaces.templates.contraction.match import Match, tidy_stages
from spaces.templates.contraction.shape import over_shapes
from spaces.templates.products.family import Family
from spaces.templates.products.product import Product
from tuner.task import Instance


class ProductTemplate:
    """A product, written by a family for each of its settings.

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

    def at(self, instance: Instance) -> ProductTemplate:
        """See `spaces.templates.base.ShapedTemplate`."""
        shaped = copy.copy(self)
        shaped._product = self._product.of(self._product.c.of_extents(self._extents[instance]))
        return shaped

    def shape_costs_s(self, knobs: Knobs) -> Costs:
        """See `spaces.templates.base.ShapedTemplate`."""
        product, tile = self._over_shapes(knobs)
        return np.asarray(self._family.cycles(product, self._gpu, tile) / self._gpu.hertz)

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
        seconds = self._family.cycles(self._product, self._gpu, tile) / self._gpu.hertz
        return np.where(self._family.feasible(self._product, self._gpu, tile), seconds, np.inf)

    def traits(self, columns: Columns) -> npt.NDArray[np.float32]:
        """See `Family.traits`."""
        return self._family.traits(self._product, self._gpu, self._family.tile_of(columns))

    def shape_traits(self, knobs: Knobs) -> npt.NDArray[np.float32]:
        """See `spaces.features.knob_features.HasShapeTraits`."""
        product, tile = self._over_shapes(knobs)
        return self._family.traits(product, self._gpu, tile)

    def apply(self, schedule: Any, knobs: Knobs) -> Any:
        match = Match(schedule.mod["main"], schedule, tidy_stages(schedule))
        tile = self._family.tile_of(knobs)
        program = self._family.write(match, self._product, tile, self._gpu)
        return new_schedule(tvm_compat.normalize(program))

    def _over_shapes(self, knobs: Knobs) -> tuple[Product, Any]:
        c, columns = over_shapes(self._product.c, self._extents, knobs)
        return self._product.of(c), self._family.tile_of(columns)
