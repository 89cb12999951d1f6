"""Random samples of the templates for products on tensor cores."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from itertools import cycle, islice

from spaces.design_space.knob_space import KnobSpace
from spaces.templates.base import Knobs
from spaces.templates.registry import templates_of
from tests.spaces.emulation.samples import Sample, Value, spread_in_turns
from tests.spaces.templates.open_programs import list_feasible
from tests.spaces.templates.tensor_cores.products import (
    PROGRAMS,
    ROWS,
    Program,
    Programs,
    Sizes,
    task_with,
)
from tuner.candidate import of_knobs
from tuner.task import Task

_ON_TENSOR_CORES = ("kernel:ada-", "kernel:ampere-", "kernel:hopper-")


def drawn(target: str, number: int, programs: Programs = PROGRAMS) -> Iterator[Sample]:
    """So many samples, of each program in turn, no two of a program equal."""
    turns = []
    for turn, name in enumerate(islice(cycle(programs), number)):
        program, known = programs[name]
        turns.append((name, program, known[turn // len(programs) % len(known)]))
    templates = [_space_of(target, program, sizes)[1].template for _, program, sizes in turns]
    for (name, _, sizes), knobs in zip(turns, spread_in_turns(templates), strict=True):
        yield sample(target, name, sizes, knobs, programs)


def sample(
    target: str, name: str, sizes: Sizes, knobs: Knobs, programs: Programs = PROGRAMS
) -> Sample:
    """A setting of a program; of open rows with none and one of them, too."""
    task, space = _space_of(target, programs[name][0], sizes)
    instances = tuple((("m", rows),) for rows in ROWS) if sizes.m == "m" else ((),)
    module = space.write(of_knobs(knobs, space.name)).mod
    said = f"{name} {sizes} {dict(knobs)}"
    return Sample(task, module, said, tuple(knobs.items()), instances)


@cache
def _space_of(target: str, program: Program, sizes: Sizes) -> tuple[Task, KnobSpace]:
    """A program's task, and the space of its template for tensor cores."""
    task = task_with(program, sizes, target)
    (own,) = (t for t in templates_of(task) if t.name.startswith(_ON_TENSOR_CORES))
    return task, KnobSpace(task, own)


def values_of(target: str, programs: Programs = PROGRAMS) -> set[Value]:
    """The values of the knobs that some program has within the limits."""
    known = [(program, sizes) for program, every in programs.values() for sizes in every]
    spaces = [_space_of(target, *each)[1] for each in known]
    used = [list_feasible(space.template, step=1 << 30)[0] for space in spaces]
    return {(knob, v) for each in used for knob, values in each.items() for v in values}
