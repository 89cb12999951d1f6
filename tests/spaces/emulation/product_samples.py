"""Random samples of the templates for products on tensor cores."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from itertools import cycle, islice

from spaces.design_space.knob_space import KnobSpace
from spaces.templates.base import Knobs
from spaces.templates.registry import templates_of
from tests.spaces.emulation.samples import Sample, Value, spread
from tests.spaces.templates.tensor_cores.products import PROGRAMS, ROWS, Sizes, task_for
from tuner.candidate import of_knobs


def drawn(target: str, number: int) -> Iterator[Sample]:
    """So many samples, of each program in turn, no two of a program equal."""
    settings = {name: iter(_settings(target, name, number)) for name in PROGRAMS}
    for turn, name in enumerate(islice(cycle(PROGRAMS), number)):
        known = PROGRAMS[name][1]
        sizes = known[turn // len(PROGRAMS) % len(known)]
        yield sample(target, name, sizes, next(settings[name]))


def sample(target: str, name: str, sizes: Sizes, knobs: Knobs) -> Sample:
    """A setting of a program; of open rows with none and one of them, too."""
    space = space_of(target, name, sizes)
    instances = tuple((("m", rows),) for rows in ROWS) if sizes.m == "m" else ((),)
    module = space.write(of_knobs(knobs, space.name)).mod
    said = f"{name} {sizes} {dict(knobs)}"
    return Sample(task_for(name, sizes, target), module, said, tuple(knobs.items()), instances)


@cache
def space_of(target: str, name: str, sizes: Sizes) -> KnobSpace:
    """The space of a program's template."""
    task = task_for(name, sizes, target)
    template, *_ = templates_of(task)
    return KnobSpace(task, template)


def values_of(target: str) -> set[Value]:
    """All values of the knobs."""
    known = [(name, sizes) for name, (_, every) in PROGRAMS.items() for sizes in every]
    spaces = [space_of(target, name, sizes) for name, sizes in known]
    choices = [item for space in spaces for item in space.template.choices.items()]
    return {(knob, value) for knob, values in choices for value in values}


def _settings(target: str, name: str, number: int) -> list[Knobs]:
    """Settings of a program's template; of others those that fall to another are left out."""
    share = -(-number // len(PROGRAMS))
    place = [*PROGRAMS].index(name)
    every = spread(space_of(target, name, PROGRAMS[name][1][0]).template, share * len(PROGRAMS))
    return every[place :: len(PROGRAMS)]
