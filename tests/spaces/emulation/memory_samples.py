"""Random samples of the templates for programs bound by memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from itertools import cycle, islice

from spaces.design_space.knob_space import KnobSpace
from spaces.templates.base import Knobs
from spaces.templates.registry import templates_of
from tests.spaces.emulation import samples
from tests.spaces.emulation.samples import Sample, spread
from tests.spaces.templates.gpu_memory.programs import PROGRAMS, task_for
from tuner.candidate import of_knobs

_STRIDE = 7
"""From one program to the next, so that those that follow one another are of different kinds; it
shares no factor with their number."""


def drawn(number: int) -> Iterator[Sample]:
    """So many samples, of each program in turn, no two of a program equal."""
    names = [*PROGRAMS]
    order = [names[turn * _STRIDE % len(names)] for turn in range(len(names))]
    each = -(-number // len(names))
    for turn, name in enumerate(islice(cycle(order), number)):
        yield sample(name, settings_of(name, each)[turn // len(names)])


def cover(names: Sequence[str]) -> Iterator[Sample]:
    """Samples of some programs, with each value of a knob in one of them."""
    for name, knobs in samples.cover({name: space_of(name).template for name in names}):
        yield sample(name, knobs)


def sample(name: str, knobs: Knobs) -> Sample:
    """A setting of a program, on all of its shapes."""
    space = space_of(name)
    module = space.write(of_knobs(knobs, space.name)).mod
    task = task_for(PROGRAMS[name])
    said = f"{name} {dict(knobs)}"
    return Sample(task, module, said, tuple(knobs.items()), PROGRAMS[name].run)


@cache
def space_of(name: str) -> KnobSpace:
    """The space of a program's template."""
    task = task_for(PROGRAMS[name])
    (template,) = templates_of(task)
    return KnobSpace(task, template)


@cache
def settings_of(name: str, number: int) -> tuple[Knobs, ...]:
    """Random settings of a program's template; see `spread`."""
    return tuple(spread(space_of(name).template, number))
