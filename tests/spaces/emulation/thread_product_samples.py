"""Random samples of the template for products that threads multiply."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from itertools import cycle, islice

from spaces.design_space.knob_space import KnobSpace
from spaces.templates.base import Knobs
from tests.spaces.emulation import samples
from tests.spaces.emulation.samples import Sample, Value, spread
from tests.spaces.templates.thread_products.thread_product_programs import (
    PROGRAMS,
    space_for,
    task_for,
)
from tuner.candidate import of_knobs


def drawn(target: str, number: int) -> Iterator[Sample]:
    """So many samples, of each program in turn, no two of a program equal."""
    share = -(-number // len(PROGRAMS))
    settings = {name: iter(_settings(target, name, share)) for name in PROGRAMS}
    for name in islice(cycle(PROGRAMS), number):
        yield sample(target, name, next(settings[name]))


def cover(target: str, names: Sequence[str]) -> Iterator[Sample]:
    """Samples of some programs, with each value of a knob in one of them."""
    templates = {name: space_of(target, name).template for name in names}
    for name, knobs in samples.cover(templates):
        yield sample(target, name, knobs)


def sample(target: str, name: str, knobs: Knobs) -> Sample:
    """A setting of a program, on each of its sizes."""
    space = space_of(target, name)
    module = space.write(of_knobs(knobs, space.name)).mod
    said = f"{name} {dict(knobs)}"
    task = task_for(name, target)
    return Sample(task, module, said, tuple(knobs.items()), PROGRAMS[name].instances)


def values_of(target: str) -> set[Value]:
    """All values of the knobs."""
    spaces = [space_of(target, name) for name in PROGRAMS]
    choices = [item for space in spaces for item in space.template.choices.items()]
    return {(knob, value) for knob, values in choices for value in values}


@cache
def space_of(target: str, name: str) -> KnobSpace:
    """The space of a program's template."""
    return space_for(task_for(name, target))


def _settings(target: str, name: str, share: int) -> list[Knobs]:
    """Settings of a program's template; of others those that fall to another are left out."""
    every = spread(space_of(target, name).template, share * len(PROGRAMS))
    return every[[*PROGRAMS].index(name) :: len(PROGRAMS)]
