"""Random samples of templates for attention."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from functools import cache
from itertools import cycle, islice

from spaces.design_space.knob_space import KnobSpace
from spaces.templates.base import Knobs
from spaces.templates.registry import templates_of
from tests.spaces.emulation.samples import Sample, Value, spread
from tests.spaces.templates.attention.attentions import (
    PROGRAMS,
    SHAPES,
    WIDE_PROGRAMS,
    Sizes,
    task_for,
)
from tuner.candidate import of_knobs
from tuner.task import Task

_PLAIN = [(name, PROGRAMS[name]) for name in ("masked", "odd widths")]
"""Programs whose heads are narrow, for which every value of a knob is within the limits."""


_ALL = {**PROGRAMS, **WIDE_PROGRAMS}


def drawn(
    target: str, number: int, programs: Collection[str] = PROGRAMS, place: int = 0
) -> Iterator[Sample]:
    """So many samples, of each program in turn, no two of a program equal.

    Args:
        place: of the template among those of a program.
    """
    share = -(-number // len(programs))
    settings = {name: iter(_settings(target, name, place, share)) for name in programs}
    for turn, name in enumerate(islice(cycle(programs), number)):
        known = _ALL[name][1]
        sizes = known[turn // len(programs) % len(known)]
        space = _space(target, name, sizes, place)
        yield _sample(space, task_for(name, sizes, target), sizes, next(settings[name]))


def values_of(target: str) -> set[Value]:
    """All values of the knobs."""
    choices = [_space(target, name, known[0]).template.choices for name, (_, known) in _PLAIN]
    return {(knob, value) for each in choices for knob, values in each.items() for value in values}


def _sample(space: KnobSpace, task: Task, sizes: Sizes, knobs: Knobs) -> Sample:
    instances = tuple((("m", m), ("n", n)) for m, n in SHAPES) if sizes.rows == "m" else ((),)
    module = space.write(of_knobs(knobs, space.name)).mod
    said = f"{task.name} {task.key} {sizes} {dict(knobs)}"
    return Sample(task, module, said, tuple(knobs.items()), instances)


@cache
def _space(target: str, name: str, sizes: Sizes, place: int = 0) -> KnobSpace:
    task = task_for(name, sizes, target)
    return KnobSpace(task, templates_of(task)[place])


@cache
def _settings(target: str, name: str, place: int, number: int) -> list[Knobs]:
    """Settings that are feasible for each of a program's sizes."""
    widest = max(_ALL[name][1], key=lambda s: s.width + s.columns)
    return spread(_space(target, name, widest, place).template, number)
