"""The template of 8-bit products on a CPU with VNNI: matrix products and NHWC convolutions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from spaces.ir.guard import refusals
from spaces.targets.cpu import Cpu, cpu_of
from spaces.templates.base import Columns, Costs, Knobs, Template
from spaces.templates.contraction.canonical import canonical
from spaces.templates.contraction.match import Match
from spaces.templates.int8 import knob_model
from spaces.templates.int8.schedule import write_products
from spaces.templates.int8.shape import Products, products
from tuner.task import Task

_VERSION = 1


class Int8Template:
    """A register tile done by one intrinsic of `spaces.intrinsics.vnni`, packed panels, blocked
    loops.

    Args:
        found: the computation, with its axes of rows and columns.
        variant: number of this choice of rows and columns.
    """

    def __init__(self, found: Products, cpu: Cpu, variant: int) -> None:
        self._products = found
        self._cpu = cpu
        self._choices = knob_model.choices_of(found, cpu)
        self._name = f"kernel:int8-{_VERSION}.{variant}"

    @property
    def name(self) -> str:
        return self._name

    @property
    def choices(self) -> Mapping[str, tuple[int, ...]]:
        return self._choices

    def canonical(self, columns: Columns) -> Columns:
        """See `spaces.templates.base.HasTwins`."""
        tiling = knob_model.tiling(self._products, columns)
        return canonical(self._products.contraction, tiling, columns)

    def costs_s(self, columns: Columns) -> Costs:
        return knob_model.costs_s(self._products, self._cpu, columns)

    def apply(self, schedule: Any, knobs: Knobs) -> Any:
        write_products(schedule, self._products, knobs)
        return schedule


def int8_templates(task: Task, match: Match | None) -> list[Template]:
    """Templates of an int8 matrix product, best choice of rows and columns first.

    Empty for any other task, and where the target's CPU has no VNNI.
    """
    cpu = cpu_of(task.target)
    if match is None or not cpu.vnni:
        return []
    found: list[Products] = []
    with refusals(f"the template for int8 matrix products, {task.name}"):
        found = products(match)
    return [
        Int8Template(p, cpu, variant)
        for variant, p in enumerate(found)
        if all(knob_model.choices_of(p, cpu).values())
    ]
