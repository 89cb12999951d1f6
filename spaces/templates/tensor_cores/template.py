"""The templates for products on tensor cores."""

from __future__ import annotations

from spaces.ir import tvm_compat
from spaces.ir.guard import refusals
from spaces.ir.schedules import task_module
from spaces.targets.gpu import gpu_of
from spaces.templates.base import Template
from spaces.templates.contraction.match import Match, extents_of_shapes
from spaces.templates.products.kernels import product_template
from spaces.templates.products.product import Product, find_product
from spaces.templates.tensor_cores.elements.single_fragments import LEAST_TERMS
from spaces.templates.tensor_cores.family import family_of, has_tensor_cores
from spaces.templates.tensor_cores.tile import HALVES, KINDS, SINGLES
from tuner.task import Task


def may_multiply(task: Task) -> bool:
    """Whether a task may have such a template, which to find takes longer: its device has the
    instructions, and parameters have such types."""
    parameters = task_module(task.module)["main"].params
    has_types = sum(tvm_compat.param_dtype(p) in KINDS for p in parameters) >= 2
    return has_types and has_tensor_cores(gpu_of(task.target))


def tensor_core_templates(task: Task, match: Match | None) -> list[Template]:
    """The template of a task; empty where it is no product of a type that tensor cores take."""
    gpu = gpu_of(task.target)
    if match is None or not has_tensor_cores(gpu):
        return []
    found = None
    extents, largest = extents_of_shapes(match, task.shapes)
    with refusals(f"the template for products on tensor cores, {task.name}"):
        found = find_product(match, KINDS, largest)
    if found is None or not _is_taken(found):
        return []
    return [product_template(family_of(gpu, found), found, gpu, extents)]


def _is_taken(product: Product) -> bool:
    """Whether rows may lie as they do, which of halves may be windows, and errors are within
    bounds, see `spaces.templates.tensor_cores.elements.single_fragments`."""
    if product.kind in HALVES.names:
        return True
    known = not any(product.c.axes[axis].symbolic for axis in product.terms)
    is_precise = product.kind not in SINGLES.names or (known and product.depth >= LEAST_TERMS)
    return product.plain and bool(is_precise)
