"""The templates of a product: one for each family that takes it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from spaces.ir import tvm_compat
from spaces.ir.guard import refusals
from spaces.ir.schedules import task_module
from spaces.targets.gpu import Gpu, gpu_of
from spaces.templates.base import Template
from spaces.templates.contraction.match import Match, extents_of_shapes, tidy_stages
from spaces.templates.families import Family, FamilyKernels
from spaces.templates.products.product import KINDS, Product, find_product
from spaces.templates.products.roles import join_extents
from spaces.templates.program_template import ProgramTemplate
from tuner.task import Instance, Task

Extents = Sequence[Any]
"""Of the axes of a contraction's block."""
WriteProduct = Callable[[Match, Product, Any, Gpu], Any]
"""Gives the PrimFunc of a setting: of a program that is tidied up, its product, and a tile."""
ProductFamily = Family[Product, WriteProduct, Gpu]
ListFamilies = Callable[[Gpu, Product, Mapping[Instance, Extents]], Sequence[ProductFamily]]
"""Lists a room's families that take a product, by the extents of each shape."""


def may_be_product(task: Task) -> bool:
    """Whether a task may have such templates, which to find takes longer: it has operands of such
    types."""
    parameters = task_module(task.module)["main"].params
    return sum(tvm_compat.param_dtype(p) in KINDS for p in parameters) >= 2


def product_templates(
    task: Task, match: Match | None, rooms: Sequence[ListFamilies]
) -> list[Template]:
    """The templates of a task, in the order of the rooms; none where it is no product."""
    if match is None:
        return []
    gpu, product, found = gpu_of(task.target), None, list[Template]()
    extents, largest = extents_of_shapes(match, task.shapes)
    with refusals(f"a product, {task.name}"):
        product = find_product(match, largest)
    if product is None:
        return []
    for list_families in rooms:
        with refusals(f"a template for products, {task.name}"):
            families = list_families(gpu, product, extents)
            found += [_template(family, product, gpu, extents) for family in families]
    return found


def _template(
    family: ProductFamily, product: Product, gpu: Gpu, extents: Mapping[Instance, Extents]
) -> Template:
    def write(schedule: Any, tile: Any) -> Any:
        match = Match(schedule.mod["main"], schedule, tidy_stages(schedule))
        return family.write(match, product, tile, gpu)

    def stack(each: Sequence[Extents]) -> Extents:
        return list(np.array(each, dtype=np.int64).T)

    kernels = FamilyKernels(family, product, gpu, product.of, stack, write)
    return ProgramTemplate(kernels, gpu.hertz, join_extents(product.c), extents)
