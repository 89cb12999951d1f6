"""Random samples of the templates for products on tensor cores."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from itertools import cycle, islice

from spaces.design_space.knob_space import KnobSpace
from spaces.templates.base import Knobs
from spaces.templates.registry import templates_of
from tests.spaces.emulation.samples import Sample, Value, spread
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
    for turn, name in enumerate(islice(cycle(programs), number)):
        program, known = programs[name]
        sizes = known[turn // len(programs) % len(known)]
        yield sample(target, name, sizes, _settings(target, program, sizes, number)[turn], programs)


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
    """All values of the knobs."""
    known = [(program, sizes) for program, every in programs.values() for sizes in every]
    spaces = [_space_of(target, *each)[1] for each in known]
    choices = [item for space in spaces for item in space.template.choices.items()]
    return {(knob, value) for knob, values in choices for value in values}


@cache
def _settings(target: str, program: Program, sizes: Sizes, number: int) -> list[Knobs]:
    """Settings that are within the limits of a program of these sizes."""
    return spread(_space_of(target, program, sizes)[1].template, number)
