"""The template for attention on tensor cores."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from spaces.ir.guard import refusals
from spaces.ir.schedules import task_module
from spaces.ir.symbolic import value_of
from spaces.lowering.attention.description import Attention
from spaces.targets.gpu import Gpu, gpu_of
from spaces.templates.attention import costs, knobs
from spaces.templates.attention.causal import find_limit
from spaces.templates.attention.groups import find_group
from spaces.templates.attention.knobs import Heads, tile_of
from spaces.templates.attention.read import read_attention
from spaces.templates.attention.write import write_program
from spaces.templates.base import Columns, Knobs, Template
from spaces.templates.thread_template import ThreadTemplate
from tuner.task import Task

_SEEN_CAUSAL = 0.5
"""The share of rows by keys of which a causal mask leaves something."""


@dataclass(frozen=True, slots=True)
class AttentionKernels:
    """See `spaces.templates.thread_template.Kernels`; sizes are `Heads`.

    Attributes:
        heads: the sizes of some shape: of all of them heads are as wide.
    """

    heads: Heads
    gpu: Gpu
    name: str = "kernel:attention-2"

    @property
    def choices(self) -> Mapping[str, tuple[int, ...]]:
        return knobs.choices_of(self.heads)

    def feasible(self, columns: Columns) -> npt.NDArray[np.bool_]:
        """See `Kernels`."""
        return knobs.feasible(self.heads, self.gpu, tile_of(columns))

    def cycles(self, sizes: Heads, columns: Columns) -> Any:
        """See `Kernels`."""
        return costs.estimate(sizes, self.gpu, tile_of(columns)).cycles

    def traits(self, sizes: Heads, columns: Columns) -> npt.NDArray[np.float32]:
        """See `Kernels`."""
        return costs.traits(sizes, self.gpu, tile_of(columns))

    def stack(self, each: Sequence[Heads]) -> Heads:
        """See `Kernels`."""
        return replace(
            self.heads,
            batch=np.array([heads.batch for heads in each]),
            rows=np.array([heads.rows for heads in each]),
            keys=np.array([heads.keys for heads in each]),
        )

    def write(self, schedule: Any, knobs: Knobs) -> Any:
        """See `Kernels`."""
        function = schedule.mod["main"]
        attention = read_attention(function)
        group = find_group(attention)
        return write_program(attention, group, self.heads, tile_of(knobs), [*function.params])


def attention_templates(task: Task) -> list[Template]:
    """The template of a task; empty where it is no attention."""
    gpu = gpu_of(task.target)
    with refusals(f"the template for attention, {task.name}"):
        attention = read_attention(task_module(task.module)["main"])
        shapes = {i: _sizes_of(attention, dict(i)) for i, _ in task.shapes}
        heads = max(shapes.values(), key=_work, default=None) or _sizes_of(attention, {})
        return [ThreadTemplate(AttentionKernels(heads, gpu), gpu, heads, shapes)]
    return []


def _sizes_of(attention: Attention, values: Mapping[str, int]) -> Heads:
    """The sizes of an attention in a shape."""
    a = attention
    batch, rows, keys, width, columns = (
        prod(value_of(axis.extent, values) or 0 for axis in axes)
        for axes in (a.batch, [a.rows], [a.keys], [a.width], [a.columns])
    )
    seen = 1.0 if find_limit(a) is None else _SEEN_CAUSAL
    return Heads(batch, rows, keys, width, columns, seen, find_group(a).heads)


def _work(heads: Heads) -> int:
    return int(heads.batch * heads.rows * heads.keys)
