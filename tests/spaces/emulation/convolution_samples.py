"""Random samples of the templates for products on tensor cores, whose rows are windows."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from itertools import cycle, islice

from spaces.design_space.knob_space import KnobSpace
from spaces.templates.base import Knobs
from spaces.templates.registry import templates_of
from tests.spaces.emulation.samples import Sample, spread
from tests.spaces.templates.tensor_cores.convolutions import PROGRAMS, task_for
from tuner.candidate import of_knobs


def drawn(target: str, number: int) -> Iterator[Sample]:
    """So many samples, of each program in turn, no two of a program equal."""
    share = -(-number // len(PROGRAMS))
    settings = {name: iter(spread(_space(target, name).template, share)) for name in PROGRAMS}
    for name in islice(cycle(PROGRAMS), number):
        yield sample(target, name, next(settings[name]))


def best(target: str, name: str, **wanted: int) -> Sample:
    """The best predicted setting of a program, of those with some values."""
    ranked = _space(target, name).ranked
    return sample(target, name, next(each for each in ranked if wanted.items() <= each.items()))


def sample(target: str, name: str, knobs: Knobs) -> Sample:
    """A setting of a program, on each of its shapes, and where only the batch is open on none."""
    space, task = _space(target, name), task_for(name, target)
    instances = [instance for instance, _ in task.shapes] or [()]
    if len(instances[0]) == 1:
        instances.append(tuple((dim, 0) for dim, _ in instances[0]))
    module = space.write(of_knobs(knobs, space.name)).mod
    said = f"{name} {dict(knobs)}"
    return Sample(task, module, said, tuple(knobs.items()), tuple(instances))


@cache
def _space(target: str, name: str) -> KnobSpace:
    task = task_for(name, target)
    template, *_ = templates_of(task)
    return KnobSpace(task, template)
