"""The template for products with few rows."""

from __future__ import annotations

from functools import partial

from spaces.ir import tvm_compat
from spaces.ir.guard import refusals
from spaces.ir.schedules import task_module
from spaces.targets.gpu import gpu_of
from spaces.templates.base import Template
from spaces.templates.contraction.match import Match, extents_of_shapes
from spaces.templates.few_rows import costs, knobs
from spaces.templates.few_rows.program import write_few_rows
from spaces.templates.few_rows.roles import Roles, find_roles
from spaces.templates.products.family import Family
from spaces.templates.products.kernels import product_template
from spaces.templates.products.product import find_product
from tuner.task import Task

NAME = "kernel:few-rows-2"
"""Of the space; it changes when the program does."""
KINDS = ("float32", "float16", "bfloat16")
"""Types of elements that are multiplied; sums are in float32."""


def family_of(roles: Roles) -> Family:
    """How a product is written whose operands have some roles."""
    return Family(
        NAME,
        lambda _: knobs.choices_of(roles),
        partial(knobs.tile_of, roles),
        knobs.feasible,
        write_few_rows,
        costs.estimate_cycles,
        costs.traits,
    )


def may_have_few_rows(task: Task) -> bool:
    """Whether a task may have such a template, which to find takes longer: it has operands of one
    of the types."""
    parameters = task_module(task.module)["main"].params
    return sum(tvm_compat.param_dtype(p) in KINDS for p in parameters) >= 2


def few_rows_templates(task: Task, match: Match | None) -> list[Template]:
    """The template of a task; empty where it is no product with few rows."""
    if match is None:
        return []
    extents, largest = extents_of_shapes(match, task.shapes)
    with refusals(f"the template for products with few rows, {task.name}"):
        product = find_product(match, KINDS, largest)
        roles = None if product is None else find_roles(product, extents if task.shapes else {})
        if product is not None and roles is not None:
            return [product_template(family_of(roles), product, gpu_of(task.target), extents)]
    return []
