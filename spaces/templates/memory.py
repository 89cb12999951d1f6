"""The template for what moves memory: reductions, softmax, normalisation, pooling, elementwise
chains, transposes, concatenations.

All stages of a program run row by row, so that what they hand on stays in the nearest cache;
rows are shared out to the cores; the inner loops are vectors. Exponentials, and the ragged ends
of loops, are left to `spaces.cpu_passes`, right before the program is compiled.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from spaces.cpu import Cpu, cpu_of
from spaces.knobs import Columns, Costs, Knobs, Template, one_by_one
from spaces.realize import new_schedule, task_module
from spaces.templates import memory_cost
from spaces.templates.memory_cost import Form
from spaces.templates.memory_inline import inline
from spaces.templates.memory_nests import nests_of
from spaces.templates.memory_schedule import write_nests
from spaces.templates.stages import Stage, stages_of
from tuner.task import Task

_VERSION = 1
_MOST_REUSE = 4
"""A sum of products that uses each element more often is bound by arithmetic."""


class MemoryTemplate:
    """Row by row, in vectors.

    Args:
        forms: the program with its optional stages inlined, and where there are any, kept.
        choices: of the knobs.
    """

    def __init__(
        self,
        forms: tuple[Form, ...],
        cpu: Cpu,
        lanes: int,
        choices: Mapping[str, tuple[int, ...]],
    ) -> None:
        self._forms = forms
        self._cpu = cpu
        self._lanes = lanes
        self._choices = choices

    @property
    def name(self) -> str:
        return f"kernel:memory-{_VERSION}"

    @property
    def choices(self) -> Mapping[str, tuple[int, ...]]:
        return self._choices

    def costs_s(self, columns: Columns) -> Costs:
        # There are far fewer settings than draws.
        table = np.stack([columns[name] for name in self._choices], axis=1)
        settings, place = np.unique(table, axis=0, return_inverse=True)
        distinct = {name: settings[:, n] for n, name in enumerate(self._choices)}
        return one_by_one(distinct, self._cost_s)[place.reshape(-1)]

    def _cost_s(self, knobs: Knobs) -> float | None:
        form = self._forms[knobs["keep"]]
        if not memory_cost.is_distinct(form, knobs):
            return None
        return memory_cost.cost_s(form, self._cpu, self._lanes, knobs)

    def apply(self, schedule: Any, knobs: Knobs) -> None:
        write_nests(schedule, knobs, self._lanes)


def memory_template(task: Task) -> Template | None:
    """The template for a task that is bound by memory; None where its loops are not plain ones.

    A sum of products of two tensors, each element used often, is not one either.
    """
    module = task_module(task.module)
    try:
        inlined, optional = _form_of(module, keep=False)
        forms = (inlined, _form_of(module, keep=True)[0]) if optional else (inlined,)
    except Exception:  # TVM raises whatever its C++ side threw; then the rules remain
        return None
    if any(_is_contraction(stage) for form in forms for stage in form.stages):
        return None
    cpu = cpu_of(task.target)
    lanes = cpu.lanes(_bits(inlined))
    choices = memory_cost.choices_of(inlined, cpu, lanes, optional=optional)
    working = _working(module, choices, lanes)
    return None if working is None else MemoryTemplate(forms, cpu, lanes, working)


def _form_of(module: Any, *, keep: bool) -> tuple[Form, bool]:
    """A program after inlining, and whether it has stages that may be kept.

    Raises:
        ValueError: it has a block that is no plain stage, or none at all.
        Exception: whatever TVM throws on an odd program.
    """
    schedule = new_schedule(module)
    optional = inline(schedule, keep=keep)
    stages = stages_of(schedule)
    if not stages:
        raise ValueError("no plain stages")
    return Form(tuple(stages), nests_of(stages)), optional


def _working(
    module: Any, choices: Mapping[str, tuple[int, ...]], lanes: int
) -> Mapping[str, tuple[int, ...]] | None:
    """The choices without those that TVM refuses for this program; None if it refuses all."""
    base = {name: values[-1] for name, values in choices.items()} | {"keep": 0, "stream": 0}
    for vectors in (choices["vectors"], (0,)):
        tried = {**base, "vectors": vectors[-1], "tree": base["tree"] if vectors[-1] else 0}
        if not _applies(module, tried, lanes):
            continue
        left = {**choices, "vectors": vectors}
        for name in ("keep", "stream", "parts"):
            values = [v for v in choices[name] if _applies(module, {**tried, name: v}, lanes)]
            left[name] = tuple(values) or choices[name][:1]
        return left
    return None


def _applies(module: Any, knobs: Knobs, lanes: int) -> bool:
    schedule = new_schedule(module)
    try:
        write_nests(schedule, knobs, lanes)
    except Exception:  # TVM raises whatever its C++ side threw
        return False
    return True


def _bits(form: Form) -> int:
    """Of the widest elements of the largest tensors."""
    accesses = [a for s in form.stages for a in (*s.reads, *s.writes)]
    most = max(access.elements for access in accesses)
    return max(access.bits for access in accesses if access.elements == most)


def _is_contraction(stage: Stage) -> bool:
    sizes = {read.buffer: read.elements for read in stage.reads}
    return stage.reduces and len(sizes) > 1 and stage.points > _MOST_REUSE * sum(sizes.values())
