"""The templates for attention on a device, one for each way to write it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from spaces.ir.guard import refusals
from spaces.ir.schedules import task_module
from spaces.lowering.attention.description import Attention
from spaces.templates.attention.heads import (
    Heads,
    count_scores,
    cover_heads,
    read_heads,
    size_heads,
    stack_heads,
)
from spaces.templates.attention.read import read_attention
from spaces.templates.base import Template
from spaces.templates.families import Family, FamilyKernels
from spaces.templates.program_template import ProgramTemplate
from tuner.task import Instance, Task

Device = TypeVar("Device")
WriteProgram = Callable[[Attention, Heads, Any, Sequence[Any]], Any]
"""Writes the PrimFunc of a setting: of an attention, the largest sizes, a tile, and parameters."""


def list_attention_templates(
    task: Task,
    families: Sequence[Family[Heads, WriteProgram, Device]],
    device: Device,
    hertz: float,
) -> list[Template]:
    """The templates of a task, one for each family; empty where it is no attention.

    Args:
        hertz: of the device, in whose cycles kernels are estimated.
    """
    with refusals(f"the template for attention, {task.name}"):
        attention = read_attention(task_module(task.module)["main"])
        heads = read_heads(attention)
        shapes = {i: size_heads(attention, heads, dict(i)) for i, _ in task.shapes}
        each = [*shapes.values()] or [size_heads(attention, heads, {})]
        return [_template(family, device, hertz, each, shapes) for family in families]
    return []


def _template(
    family: Family[Heads, WriteProgram, Device],
    device: Device,
    hertz: float,
    each: Sequence[Heads],
    shapes: Mapping[Instance, Heads],
) -> Template:
    largest = cover_heads(each)

    def write(schedule: Any, tile: Any) -> Any:
        function = schedule.mod["main"]
        return family.write(read_attention(function), largest, tile, [*function.params])

    kernels = FamilyKernels(family, largest, device, lambda heads: heads, stack_heads, write)
    # TVM's rules do not fit two products with a softmax between them onto a GPU: none of their
    # schedules gets past `VerifyGPUCode`, and some rules fail. On a CPU they write all scores.
    typical = max(each, key=count_scores)
    return ProgramTemplate(kernels, hertz, typical, shapes, hedged=False)
