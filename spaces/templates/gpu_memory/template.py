"""The template for programs bound by memory on a GPU: reductions, softmax, normalisation, pooling,
elementwise chains, gathers, transposes, convolutions with a filter for each channel.

A setting stands for a program that says what each thread does: it loads and stores vectors, joins
its sums with those of other threads, and holds a row of which several stages need each element.
"""

from __future__ import annotations

from spaces.ir.guard import Unsuitable, refusals
from spaces.ir.schedules import new_schedule, task_module
from spaces.targets.gpu import gpu_of
from spaces.templates.gpu_memory.facts import ExtentsOf, read_facts
from spaces.templates.gpu_memory.kernels import kernels_of
from spaces.templates.gpu_memory.reader import read_program
from spaces.templates.memory.shapes import stand_in
from spaces.templates.memory.stages import has_own_windows, is_contraction, stages_of
from spaces.templates.program_template import ProgramTemplate
from tuner.task import Task


def gpu_memory_templates(task: Task) -> list[ProgramTemplate]:
    """The template of a task; empty where it is not bound by memory, or no program of rows, columns
    or single elements."""
    with refusals(f"the template for what is bound by memory on GPUs, {task.name}"):
        return [_make(task)]
    return []


def _make(task: Task) -> ProgramTemplate:
    """The template of a task.

    Raises:
        Unsuitable: it has none.
        Exception: whatever TVM throws on an odd program.
    """
    module, values = task_module(task.module), stand_in(task.shapes)
    schedule = new_schedule(module)
    stages = stages_of(schedule, values)
    if not stages or any(is_contraction(s) and not has_own_windows(s) for s in stages):
        raise Unsuitable("bound by arithmetic, or no plain stages")
    parameters = [*module["main"].params]
    program, gpu = read_program(schedule, values), gpu_of(task.target)
    facts, extents = read_facts(program), ExtentsOf(program, parameters)
    instances = [instance for instance, _ in task.shapes] or [()]
    known = {instance: extents.at(dict(instance)) for instance in instances}
    largest = max(known.values(), key=lambda sizes: (max(sizes.lanes), sizes.items))
    kernels = kernels_of(program, facts, largest, gpu, values)
    return ProgramTemplate(kernels, gpu.hertz, largest, known)
