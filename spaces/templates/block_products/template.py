"""The template of products of bytes in blocks, on a CPU with VNNI."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from spaces.ir.unchecked_schedule import Unchecked
from spaces.targets.cpu import Cpu, cpu_of
from spaces.templates.base import Columns, Costs, Knobs, Template
from spaces.templates.block_products import knobs as model
from spaces.templates.block_products.schedule import write_product
from spaces.templates.block_products.shape import BlockProduct, count_rows, find_block_product
from spaces.templates.contraction import register_tile as k
from tuner.task import Instance, Task

_NAME = "kernel:block-product-3"


class BlockTemplate:
    """A register tile of products of bytes, sums of blocks scaled and added in float32.

    Args:
        product: of the largest shape.
        rows: matrices and rows of each shape that a symbolic program is tuned for.
    """

    def __init__(
        self, product: BlockProduct, cpu: Cpu, rows: Mapping[Instance, tuple[int, int]]
    ) -> None:
        self._product = product
        self._cpu = cpu
        self._rows = rows
        self._choices = model.choices_of(product, cpu)

    @property
    def name(self) -> str:
        return _NAME

    @property
    def choices(self) -> Mapping[str, tuple[int, ...]]:
        return self._choices

    def costs_s(self, columns: Columns) -> Costs:
        return model.costs_s(self._product, self._cpu, columns)

    def traits(self, columns: Columns) -> npt.NDArray[np.float32]:
        """See `spaces.templates.block_products.knobs.traits`."""
        return model.traits(self._product, self._cpu, columns)

    def at(self, instance: Instance) -> BlockTemplate:
        """See `spaces.templates.base.ShapedTemplate`."""
        shaped = copy.copy(self)
        batches, rows = self._rows[instance]
        shaped._product = replace(self._product, batches=batches, rows=rows)
        return shaped

    def shape_costs_s(self, knobs: Knobs) -> Costs:
        """See `spaces.templates.base.ShapedTemplate`."""
        one = {name: np.array([value]) for name, value in knobs.items()}
        return np.concatenate([self.at(instance).costs_s(one) for instance in self._rows])

    def shape_traits(self, knobs: Knobs) -> npt.NDArray[np.float32]:
        """See `spaces.features.knob_features.HasShapeTraits`."""
        one = {name: np.array([value]) for name, value in knobs.items()}
        return np.concatenate([self.at(instance).traits(one) for instance in self._rows])

    def layout(self, knobs: Knobs) -> str:
        """See `spaces.templates.base.ShapedTemplate`."""
        return f"{knobs[k.VECTORS]}"

    def apply(self, schedule: Any, knobs: Knobs) -> Any:
        lanes = self._cpu.lanes(model.BITS)
        write_product(Unchecked(schedule), self._product, knobs, lanes)
        return schedule


def block_templates(task: Task) -> list[Template]:
    """The template of a product of bytes in blocks; empty for any other task, and where the
    target's CPU has no VNNI."""
    cpu = cpu_of(task.target)
    if not cpu.vnni or (found := find_block_product(task)) is None:
        return []
    product, function = found
    rows = {instance: count_rows(function, instance) for instance, _ in task.shapes}
    template = BlockTemplate(product, cpu, rows)
    return [template] if all(template.choices.values()) else []
