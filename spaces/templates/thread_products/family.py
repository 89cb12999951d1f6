"""The family of products that threads multiply."""

from __future__ import annotations

from collections.abc import Mapping

from spaces.targets.gpu import Gpu
from spaces.templates.families import Family
from spaces.templates.products.product import Product
from spaces.templates.products.template import Extents, ProductFamily
from spaces.templates.thread_products import costs, knobs
from spaces.templates.thread_products.program import write_thread_product
from tuner.task import Instance

NAME = "kernel:thread-product-4"
"""Of the space; it changes when the program does."""


def kinds_of(gpu: Gpu) -> tuple[str, ...]:
    """Types of elements that threads of a device multiply as fast as anything does; sums are in
    float32."""
    return ("float32",) if knobs.copies_ahead(gpu) else ("float32", "float16", "bfloat16")


def list_families(
    gpu: Gpu, product: Product, _extents: Mapping[Instance, Extents]
) -> list[ProductFamily]:
    """How a product of such a type is written for a device, also of windows; empty for others."""
    if product.kind not in kinds_of(gpu):
        return []
    family: ProductFamily = Family(
        NAME,
        lambda product: knobs.choices_of(product, gpu),
        knobs.tile_of,
        knobs.feasible,
        write_thread_product,
        costs.estimate_cycles,
        costs.traits,
    )
    return [family]
