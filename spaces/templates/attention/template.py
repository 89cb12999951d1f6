"""The template for attention on tensor cores."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import prod
from typing import Any

import numpy as np

from spaces.ir import tvm_compat
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
from spaces.templates.base import Template
from spaces.templates.families import Family, FamilyKernels
from spaces.templates.thread_template import ThreadTemplate
from tuner.task import Instance, Task

_SEEN_CAUSAL = 0.5
"""The share of rows by keys of which a causal mask leaves something."""


AttentionFamily = Family[Heads, WriteKernel]
AMPERE: AttentionFamily = Family(
    "kernel:ampere-attention-1",
    knobs.choices_of,
    knobs.tile_of,
    knobs.feasible,
    write_ampere_attention,
    costs.estimate_cycles,
    costs.traits,
)
HOPPER: AttentionFamily = Family(
    "kernel:hopper-attention-1",
    hopper_knobs.choices_of,
    hopper_knobs.tile_of,
    hopper_knobs.feasible,
    write_hopper_attention,
    costs.estimate_cycles,
    costs.traits,
)


def attention_templates(task: Task) -> list[Template]:
    """The templates of a task, best first; empty where it is no attention."""
    gpu = gpu_of(task.target)
    with refusals(f"the template for attention, {task.name}"):
        attention = read_attention(task_module(task.module)["main"])
        heads = _read_heads(attention)
        shapes = {i: _size_heads(attention, heads, dict(i)) for i, _ in task.shapes}
        each = [*shapes.values()] or [_size_heads(attention, heads, {})]
        families = (HOPPER, AMPERE) if gpu.architecture == gpus.HOPPER else (AMPERE,)
        return [_template(family, gpu, each, shapes) for family in families]
    return []


def _template(
    family: AttentionFamily, gpu: Gpu, each: Sequence[Heads], shapes: Mapping[Instance, Heads]
) -> Template:
    largest = _cover(each)

    def stack(several: Sequence[Heads]) -> Heads:
        sizes = np.array([(heads.batch, heads.rows, heads.keys) for heads in several]).T
        return replace(largest, batch=sizes[0], rows=sizes[1], keys=sizes[2])

    def write(schedule: Any, tile: Any) -> Any:
        function = schedule.mod["main"]
        attention = read_attention(function)
        told = (attention, find_group(attention), largest, tile, [*function.params])
        return write_program(*told, family.write)

    kernels = FamilyKernels(family, largest, gpu, lambda heads: heads, stack, write)
    # TVM's rules do not fit two products with a softmax between them onto a device: none of their
    # schedules gets past `VerifyGPUCode`, and some rules fail.
    return ThreadTemplate(kernels, gpu, max(each, key=_count_scores), shapes, hedged=False)


def _read_heads(attention: Attention) -> Heads:
    """What is the same in every shape."""
    width, columns = (
        tvm_compat.as_int(a.extent) or 0 for a in (attention.width, attention.columns)
    )
    seen = 1.0 if find_limit(attention) is None else _SEEN_CAUSAL
    return Heads(1, 1, 1, width, columns, seen, find_group(attention).heads)


def _size_heads(attention: Attention, heads: Heads, values: Mapping[str, int]) -> Heads:
    """The sizes of an attention in a shape."""
    batch, rows, keys = (
        prod(value_of(axis.extent, values) or 0 for axis in axes)
        for axes in (attention.batch, [attention.rows], [attention.keys])
    )
    return replace(heads, batch=batch, rows=rows, keys=keys)


def _cover(each: Sequence[Heads]) -> Heads:
    """The largest sizes of several shapes."""
    batch, rows, keys = (
        max(sizes) for sizes in zip(*((h.batch, h.rows, h.keys) for h in each), strict=True)
    )
    return replace(each[0], batch=batch, rows=rows, keys=keys)


def _count_scores(heads: Heads) -> int:
    return int(heads.batch * heads.rows * heads.keys)
