"""The template for attention on tensor cores."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import replace
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from spaces.ir import tvm_compat
from spaces.ir.guard import refusals
from spaces.ir.schedules import new_schedule, task_module
from spaces.ir.symbolic import value_of
from spaces.lowering.attention.description import Attention
from spaces.targets.gpu import Gpu, gpu_of
from spaces.templates.attention import costs
from spaces.templates.attention import knobs as k
from spaces.templates.attention.causal import find_limit
from spaces.templates.attention.knobs import Heads, tile_of
from spaces.templates.attention.read import read_attention
from spaces.templates.attention.write import write_program
from spaces.templates.base import Columns, Costs, Knobs, Template
from tuner.task import Instance, Task

_NAME = "kernel:attention-1"
_SEEN_CAUSAL = 0.5
"""The share of rows by keys of which a causal mask leaves something."""


class AttentionTemplate:
    """Rows of queries that go through all keys and values.

    Args:
        heads: the sizes that it is estimated for; `shapes` those of each shape it is tuned for.
    """

    def __init__(
        self, attention: Attention, heads: Heads, gpu: Gpu, shapes: Mapping[Instance, Heads]
    ) -> None:
        self._attention, self._heads, self._gpu, self._shapes = attention, heads, gpu, shapes

    @property
    def name(self) -> str:
        return _NAME

    @property
    def choices(self) -> Mapping[str, tuple[int, ...]]:
        return k.choices_of()

    def at(self, instance: Instance) -> AttentionTemplate:
        """See `spaces.templates.base.ShapedTemplate`."""
        shaped = copy.copy(self)
        shaped._heads = self._shapes[instance]
        return shaped

    def shape_costs_s(self, knobs: Knobs) -> Costs:
        """See `spaces.templates.base.ShapedTemplate`."""
        cycles = costs.estimate(self._over_shapes(), self._gpu, tile_of(knobs)).cycles
        return np.asarray(cycles / self._gpu.hertz)

    def layout(self, knobs: Knobs) -> str:
        """See `spaces.templates.base.ShapedTemplate`: these kernels take operands as they are."""
        return ""

    def costs_s(self, columns: Columns) -> Costs:
        tile = tile_of(columns)
        seconds = costs.estimate(self._heads, self._gpu, tile).cycles / self._gpu.hertz
        return np.where(k.feasible(self._heads, self._gpu, tile), seconds, np.inf)

    def traits(self, columns: Columns) -> npt.NDArray[np.float32]:
        """See `spaces.templates.attention.costs.traits`."""
        return costs.traits(self._heads, self._gpu, tile_of(columns))

    def shape_traits(self, knobs: Knobs) -> npt.NDArray[np.float32]:
        """See `spaces.features.knob_features.HasShapeTraits`."""
        return costs.traits(self._over_shapes(), self._gpu, tile_of(knobs))

    def apply(self, schedule: Any, knobs: Knobs) -> Any:
        function = schedule.mod["main"]
        attention = read_attention(function)
        program = write_program(attention, self._heads, tile_of(knobs), [*function.params])
        return new_schedule(tvm_compat.normalize(program))

    def _over_shapes(self) -> Heads:
        """The sizes of all shapes at once."""
        every = [*self._shapes.values()]
        return replace(
            self._heads,
            batch=np.array([heads.batch for heads in every]),
            rows=np.array([heads.rows for heads in every]),
            keys=np.array([heads.keys for heads in every]),
        )


def attention_templates(task: Task) -> list[Template]:
    """The template of a task; empty where it is no attention."""
    gpu = gpu_of(task.target)
    with refusals(f"the template for attention, {task.name}"):
        attention = read_attention(task_module(task.module)["main"])
        shapes = {i: _sizes_of(attention, dict(i)) for i, _ in task.shapes}
        heads = max(shapes.values(), key=_work, default=None) or _sizes_of(attention, {})
        return [AttentionTemplate(attention, heads, gpu, shapes)]
    return []


def _sizes_of(attention: Attention, values: Mapping[str, int]) -> Heads:
    """The sizes of an attention in a shape."""
    a = attention
    batch, rows, keys, width, columns = (
        prod(value_of(axis.extent, values) or 0 for axis in axes)
        for axes in (a.batch, [a.rows], [a.keys], [a.width], [a.columns])
    )
    seen = 1.0 if find_limit(a) is None else _SEEN_CAUSAL
    return Heads(batch, rows, keys, width, columns, seen)


def _work(heads: Heads) -> int:
    return int(heads.batch * heads.rows * heads.keys)
