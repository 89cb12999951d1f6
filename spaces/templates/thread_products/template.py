"""The template for products that threads multiply."""

from __future__ import annotations

from spaces.ir.guard import refusals
from spaces.targets.gpu import Gpu, gpu_of
from spaces.templates.base import Template
from spaces.templates.contraction.match import Match, extents_of_shapes
from spaces.templates.products.family import Family
from spaces.templates.products.kernels import product_template
from spaces.templates.products.product import find_product
from spaces.templates.thread_products import costs, knobs
from spaces.templates.thread_products.program import write_thread_product
from tuner.task import Task

NAME = "kernel:thread-product-1"
"""Of the space; it changes when the program does."""


def kinds_of(gpu: Gpu) -> tuple[str, ...]:
    """Types of elements that threads of a device multiply as fast as anything does; sums are in
    float32."""
    return ("float32",) if knobs.copies_ahead(gpu) else ("float32", "float16", "bfloat16")


def family_of(gpu: Gpu) -> Family:
    """How a product is written for a device."""
    return Family(
        NAME,
        lambda product: knobs.choices_of(product, gpu),
        knobs.tile_of,
        knobs.feasible,
        write_thread_product,
        costs.estimate_cycles,
        costs.traits,
    )


def thread_product_templates(task: Task, match: Match | None) -> list[Template]:
    """The template of a task; empty where it is no product of such a type."""
    if match is None:
        return []
    gpu = gpu_of(task.target)
    found = None
    extents, largest = extents_of_shapes(match, task.shapes)
    with refusals(f"the template for products that threads multiply, {task.name}"):
        found = find_product(match, kinds_of(gpu), largest)
    if found is None or not found.plain:
        return []
    return [product_template(family_of(gpu), found, gpu, extents)]
