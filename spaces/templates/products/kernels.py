"""The kernels of products, whose family says how they are written and what they take."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from spaces.targets.gpu import Gpu
from spaces.templates.base import Columns, Knobs
from spaces.templates.contraction.match import Match, tidy_stages
from spaces.templates.products.family import Family
from spaces.templates.products.product import Product
from spaces.templates.products.roles import join_extents
from spaces.templates.thread_template import ThreadTemplate
from tuner.task import Instance

Extents = Sequence[Any]
"""Of the axes of the contraction."""


@dataclass(frozen=True, slots=True)
class ProductKernels:
    """See `spaces.templates.thread_template.Kernels`; sizes are extents."""

    family: Family
    product: Product
    gpu: Gpu

    @property
    def name(self) -> str:
        return self.family.name

    @property
    def choices(self) -> Mapping[str, tuple[int, ...]]:
        return self.family.choices_of(self.product)

    def feasible(self, columns: Columns) -> npt.NDArray[np.bool_]:
        """See `Kernels`."""
        found = self.family.feasible(self.product, self.gpu, self.family.tile_of(columns))
        return np.asarray(found, dtype=np.bool_)

    def cycles(self, sizes: Extents, columns: Columns) -> Any:
        """See `Kernels`."""
        return self.family.cycles(self._at(sizes), self.gpu, self.family.tile_of(columns))

    def traits(self, sizes: Extents, columns: Columns) -> npt.NDArray[np.float32]:
        """See `Kernels`."""
        return self.family.traits(self._at(sizes), self.gpu, self.family.tile_of(columns))

    def stack(self, each: Sequence[Extents]) -> Extents:
        """See `Kernels`."""
        return list(np.array(each, dtype=np.int64).T)

    def write(self, schedule: Any, knobs: Knobs) -> Any:
        """See `Kernels`."""
        match = Match(schedule.mod["main"], schedule, tidy_stages(schedule))
        return self.family.write(match, self.product, self.family.tile_of(knobs), self.gpu)

    def _at(self, extents: Extents) -> Product:
        return self.product.of(extents)


def product_template(
    family: Family, product: Product, gpu: Gpu, extents: Mapping[Instance, Extents]
) -> ThreadTemplate:
    """The template of a product.

    Args:
        extents: of each shape that it is tuned for.
    """
    own = join_extents(product.c)
    return ThreadTemplate(ProductKernels(family, product, gpu), gpu, own, extents)
