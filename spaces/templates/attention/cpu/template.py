"""The templates for attention on CPUs."""

from __future__ import annotations

from functools import partial

from spaces.targets.cpu import Cpu, cpu_of
from spaces.templates.attention.cpu import few_costs, few_knobs, many_costs, many_knobs
from spaces.templates.attention.cpu.few_rows import write_few_rows
from spaces.templates.attention.cpu.many_rows import write_many_rows
from spaces.templates.attention.cpu.pieces import BITS
from spaces.templates.attention.heads import Heads
from spaces.templates.attention.template import WriteProgram, list_attention_templates
from spaces.templates.base import Template
from spaces.templates.contraction.register_tile import HERTZ
from spaces.templates.families import Family
from tuner.task import Task

AttentionFamily = Family[Heads, WriteProgram, Cpu]


def cpu_attention_templates(task: Task) -> list[Template]:
    """The templates of a task, for many rows and, where vectors divide heads, for few; empty where
    it is no attention."""
    cpu = cpu_of(task.target)
    lanes = cpu.lanes(BITS)
    families: list[AttentionFamily] = [
        Family(
            "kernel:many-rows-attention-1",
            many_knobs.choices_of,
            many_knobs.tile_of,
            many_knobs.feasible,
            partial(write_many_rows, lanes),
            many_costs.estimate_cycles,
            many_costs.traits,
        ),
        Family(
            "kernel:few-rows-attention-1",
            partial(few_knobs.choices_of, lanes),
            few_knobs.tile_of,
            few_knobs.feasible,
            partial(write_few_rows, lanes),
            few_costs.estimate_cycles,
            few_costs.traits,
        ),
    ]
    found = list_attention_templates(task, families, cpu, HERTZ)
    return [template for template in found if all(template.choices.values())]
