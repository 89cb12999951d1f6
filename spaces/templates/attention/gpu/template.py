"""The templates for attention on tensor cores."""

from __future__ import annotations

from functools import partial

from spaces.targets import gpu as gpus
from spaces.targets.gpu import Gpu, gpu_of
from spaces.templates.attention.gpu import costs, hopper_knobs, knobs
from spaces.templates.attention.gpu.ampere import write_ampere_attention
from spaces.templates.attention.gpu.hopper import write_hopper_attention
from spaces.templates.attention.gpu.write import write_program
from spaces.templates.attention.heads import Heads
from spaces.templates.attention.template import WriteProgram, list_attention_templates
from spaces.templates.base import Template
from spaces.templates.families import Family
from tuner.task import Task

AttentionFamily = Family[Heads, WriteProgram, Gpu]
AMPERE: AttentionFamily = Family(
    "kernel:ampere-attention-1",
    knobs.choices_of,
    knobs.tile_of,
    knobs.feasible,
    partial(write_program, write_ampere_attention),
    costs.estimate_cycles,
    costs.traits,
)
HOPPER: AttentionFamily = Family(
    "kernel:hopper-attention-1",
    hopper_knobs.choices_of,
    hopper_knobs.tile_of,
    hopper_knobs.feasible,
    partial(write_program, write_hopper_attention),
    costs.estimate_cycles,
    costs.traits,
)


def gpu_attention_templates(task: Task) -> list[Template]:
    """The templates of a task, best first; empty where it is no attention."""
    gpu = gpu_of(task.target)
    families = (HOPPER, AMPERE) if gpu.architecture == gpus.HOPPER else (AMPERE,)
    return list_attention_templates(task, families, gpu, gpu.hertz)
