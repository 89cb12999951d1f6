"""Random samples of the template for products with few rows."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from itertools import cycle, islice

from spaces.design_space.knob_space import KnobSpace
from spaces.templates.base import Knobs
from tests.spaces.emulation.samples import AMPERE, Sample, Value, spread
from tests.spaces.templates.few_rows.few_row_programs import PROGRAMS, space_for, task_for
from tuner.candidate import of_knobs


def drawn(number: int) -> Iterator[Sample]:
    """So many samples, of each program in turn, no two of a program equal."""
    share = -(-number // len(PROGRAMS))
    settings = {name: iter(spread(space_of(name).template, share)) for name in PROGRAMS}
    for name in islice(cycle(PROGRAMS), number):
        yield sample(name, next(settings[name]))


def sample(name: str, knobs: Knobs) -> Sample:
    """A setting of a program, on each of its sizes."""
    space = space_of(name)
    module = space.write(of_knobs(knobs, space.name)).mod
    said = f"{name} {dict(knobs)}"
    task = task_for(name, AMPERE)
    return Sample(task, module, said, tuple(knobs.items()), PROGRAMS[name].instances)


def values_of() -> set[Value]:
    """All values of the knobs."""
    choices = (item for name in PROGRAMS for item in space_of(name).template.choices.items())
    return {(knob, value) for knob, values in choices for value in values}


@cache
def space_of(name: str) -> KnobSpace:
    """The space of a program's template."""
    return space_for(task_for(name, AMPERE))
