"""The templates for products in halves on tensor cores."""

from __future__ import annotations

from spaces.ir import tvm_compat
from spaces.ir.guard import refusals
from spaces.ir.schedules import task_module
from spaces.targets.gpu import gpu_of
from spaces.templates.base import Template
from spaces.templates.contraction.match import Match, extents_of_shapes
from spaces.templates.products.kernels import product_template
from spaces.templates.products.product import find_product
from spaces.templates.tensor_cores.family import family_of
from spaces.templates.tensor_cores.tile import KINDS
from tuner.task import Task


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
        found = find_product(match, KINDS, largest)
    return [] if found is None else [product_template(family, found, gpu, extents)]
