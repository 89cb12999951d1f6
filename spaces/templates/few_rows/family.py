"""The family of products with few rows, whose sums are in float32."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from spaces.targets.gpu import Gpu
from spaces.templates.families import Family
from spaces.templates.few_rows import costs, knobs
from spaces.templates.few_rows.program import write_few_rows
from spaces.templates.few_rows.roles import find_roles
from spaces.templates.products.product import FLOATS, Product
from spaces.templates.products.template import Extents, ProductFamily
from tuner.task import Instance

NAME = "kernel:few-rows-2"
"""Of the space; it changes when the program does."""


def list_families(
    _gpu: Gpu, product: Product, extents: Mapping[Instance, Extents]
) -> list[ProductFamily]:
    """How a product with few rows for some shape is written; empty for others."""
    roles = find_roles(product, extents) if product.kind in FLOATS else None
    if roles is None:
        return []
    family: ProductFamily = Family(
        NAME,
        lambda _: knobs.choices_of(roles),
        partial(knobs.tile_of, roles),
        knobs.feasible,
        write_few_rows,
        costs.estimate_cycles,
        costs.traits,
    )
    return [family]
