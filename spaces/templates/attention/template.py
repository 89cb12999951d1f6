"""The template for attention on tensor cores."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from spaces.ir.guard import refusals
from spaces.ir.schedules import task_module
from spaces.ir.symbolic import value_of
from spaces.lowering.attention.description import Attention
from spaces.targets import gpu as gpus
from spaces.targets.gpu import Gpu, gpu_of
from spaces.templates.attention import costs, hopper_knobs, knobs
from spaces.templates.attention.ampere import write_ampere_attention
from spaces.templates.attention.causal import find_limit
from spaces.templates.attention.groups import find_group
from spaces.templates.attention.hopper import write_hopper_attention
from spaces.templates.attention.knobs import Heads
from spaces.templates.attention.read import read_attention
from spaces.templates.attention.write import WriteKernel, write_program
from spaces.templates.base import Columns, Knobs, Template
from spaces.templates.thread_template import ThreadTemplate
from tuner.task import Task

_SEEN_CAUSAL = 0.5
"""The share of rows by keys of which a causal mask leaves something."""


@dataclass(frozen=True, slots=True)
class Family:
    """One way to write attention. A tile is what follows from a setting, or from many as arrays.

    Attributes:
        name: of the space; it changes when `write` does.
        choices_of: gives the values of each knob.
        tile_of: gives the sizes of a setting, or of many.
        feasible: tells which keep to the limits of the hardware.
        write: writes what the threads of a setting do.
    """

    name: str
    choices_of: Callable[[Heads], Mapping[str, tuple[int, ...]]]
    tile_of: Callable[[Mapping[str, Any]], Any]
    feasible: Callable[[Heads, Gpu, Any], npt.NDArray[np.bool_]]
    write: WriteKernel


AMPERE = Family(
    "kernel:ampere-attention-1",
    knobs.choices_of,
    knobs.tile_of,
    knobs.feasible,
    write_ampere_attention,
)
HOPPER = Family(
    "kernel:hopper-attention-1",
    hopper_knobs.choices_of,
    hopper_knobs.tile_of,
    hopper_knobs.feasible,
    write_hopper_attention,
)


@dataclass(frozen=True, slots=True)
class AttentionKernels:
    """See `spaces.templates.thread_template.Kernels`; sizes are `Heads`.

    Attributes:
        heads: the largest sizes of all shapes; in all of them heads are as wide.
    """

    family: Family
    heads: Heads
    gpu: Gpu

    @property
    def name(self) -> str:
        return self.family.name

    @property
    def choices(self) -> Mapping[str, tuple[int, ...]]:
        return self.family.choices_of(self.heads)

    def feasible(self, columns: Columns) -> npt.NDArray[np.bool_]:
        """See `Kernels`."""
        return self.family.feasible(self.heads, self.gpu, self.family.tile_of(columns))

    def cycles(self, sizes: Heads, columns: Columns) -> Any:
        """See `Kernels`."""
        return costs.estimate(sizes, self.gpu, self.family.tile_of(columns)).cycles

    def traits(self, sizes: Heads, columns: Columns) -> npt.NDArray[np.float32]:
        """See `Kernels`."""
        return costs.traits(sizes, self.gpu, self.family.tile_of(columns))

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
        told = (attention, group, self.heads, self.family.tile_of(knobs), [*function.params])
        return write_program(*told, self.family.write)


def attention_templates(task: Task) -> list[Template]:
    """The templates of a task, best first; empty where it is no attention."""
    gpu = gpu_of(task.target)
    with refusals(f"the template for attention, {task.name}"):
        attention = read_attention(task_module(task.module)["main"])
        shapes = {i: _sizes_of(attention, dict(i)) for i, _ in task.shapes}
        each = [*shapes.values()] or [_sizes_of(attention, {})]
        families = (HOPPER, AMPERE) if gpu.architecture == gpus.HOPPER else (AMPERE,)
        typical, largest = max(each, key=_work), _cover(each)
        return [
            ThreadTemplate(AttentionKernels(family, largest, gpu), gpu, typical, shapes)
            for family in families
        ]
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


def _cover(each: Sequence[Heads]) -> Heads:
    """The largest sizes of several shapes."""
    batch, rows, keys = (
        max(sizes) for sizes in zip(*((h.batch, h.rows, h.keys) for h in each), strict=True)
    )
    return replace(each[0], batch=batch, rows=rows, keys=keys)


def _work(heads: Heads) -> int:
    return int(heads.batch * heads.rows * heads.keys)
