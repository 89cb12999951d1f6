"""The template for attention on CPUs."""

from __future__ import annotations

from functools import partial

from spaces.targets.cpu import Cpu, cpu_of
from spaces.templates.attention.cpu import costs, knobs
from spaces.templates.attention.cpu.program import write_program
from spaces.templates.attention.heads import Heads
from spaces.templates.attention.template import WriteProgram, list_attention_templates
from spaces.templates.base import Template
from spaces.templates.contraction.register_tile import HERTZ
from spaces.templates.families import Family
from tuner.task import Task

_NAME = "kernel:rows-attention-1"


def cpu_attention_templates(task: Task) -> list[Template]:
    """The template of a task; empty where it is no attention."""
    cpu = cpu_of(task.target)
    family: Family[Heads, WriteProgram, Cpu] = Family(
        _NAME,
        knobs.choices_of,
        knobs.tile_of,
        knobs.feasible,
        partial(write_program, cpu.lanes(knobs.BITS)),
        costs.estimate_cycles,
        costs.traits,
    )
    return list_attention_templates(task, [family], cpu, HERTZ)
