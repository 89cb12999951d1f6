"""Random samples of the templates for products whose rows are windows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from itertools import cycle, islice

from spaces.design_space.knob_space import KnobSpace
from spaces.templates.base import Knobs
from spaces.templates.registry import templates_of
from tests.spaces.emulation import samples
from tests.spaces.emulation.samples import Sample, spread
from tests.spaces.templates.tensor_cores.convolutions import (
    PROGRAMS,
    Convolution,
    task_of_convolution,
)
from tuner.candidate import of_knobs
from tuner.task import Task

Programs = Mapping[str, Convolution]


def drawn(target: str, number: int, programs: Programs = PROGRAMS) -> Iterator[Sample]:
    """So many samples, of each program in turn, no two of a program equal."""
    share = -(-number // len(programs))
    settings = {
        name: iter(spread(_space(target, program)[1].template, share))
        for name, program in programs.items()
    }
    for name in islice(cycle(programs), number):
        yield sample(target, name, next(settings[name]), programs)


def cover(target: str, names: Sequence[str], programs: Programs) -> Iterator[Sample]:
    """Samples of some programs, with each value of a knob in one of them."""
    templates = {name: _space(target, programs[name])[1].template for name in names}
    for name, knobs in samples.cover(templates):
        yield sample(target, name, knobs, programs)


def best(target: str, name: str, programs: Programs = PROGRAMS, **wanted: int) -> Sample:
    """The best predicted setting of a program, of those with some values."""
    ranked = _space(target, programs[name])[1].ranked
    known = next(each for each in ranked if wanted.items() <= each.items())
    return sample(target, name, known, programs)


def sample(target: str, name: str, knobs: Knobs, programs: Programs = PROGRAMS) -> Sample:
    """A setting of a program, on each of its shapes, and where only the batch is open on none."""
    task, space = _space(target, programs[name])
    instances = [instance for instance, _ in task.shapes] or [()]
    if len(instances[0]) == 1:
        instances.append(tuple((dim, 0) for dim, _ in instances[0]))
    module = space.write(of_knobs(knobs, space.name)).mod
    said = f"{name} {dict(knobs)}"
    return Sample(task, module, said, tuple(knobs.items()), tuple(instances))


@cache
def _space(target: str, program: Convolution) -> tuple[Task, KnobSpace]:
    task = task_of_convolution(program, target)
    *_, template = templates_of(task)  # of several, that for tensor cores
    return task, KnobSpace(task, template)
