"""Random samples of the templates for products whose rows are windows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from itertools import cycle, islice

from spaces.design_space.knob_space import KnobSpace
from spaces.templates.base import Knobs
from spaces.templates.registry import templates_of
from tests.spaces.emulation import samples
from tests.spaces.emulation.samples import Sample, spread
from tests.spaces.templates.tensor_cores.convolutions import PROGRAMS, task_for
from tuner.candidate import of_knobs


def drawn(target: str, number: int, kind: str = "") -> Iterator[Sample]:
    """So many samples, of each program in turn, no two of a program equal.

    Args:
        kind: type of elements; empty for the programs' own.
    """
    share = -(-number // len(PROGRAMS))
    settings = {name: iter(spread(_space(target, name, kind).template, share)) for name in PROGRAMS}
    for name in islice(cycle(PROGRAMS), number):
        yield sample(target, name, next(settings[name]), kind)


def cover(target: str, names: Sequence[str], kind: str) -> Iterator[Sample]:
    """Samples of some programs, with each value of a knob in one of them."""
    templates = {name: _space(target, name, kind).template for name in names}
    for name, knobs in samples.cover(templates):
        yield sample(target, name, knobs, kind)


def best(target: str, name: str, **wanted: int) -> Sample:
    """The best predicted setting of a program, of those with some values."""
    ranked = _space(target, name, "").ranked
    return sample(target, name, next(each for each in ranked if wanted.items() <= each.items()))


def sample(target: str, name: str, knobs: Knobs, kind: str = "") -> Sample:
    """A setting of a program, on each of its shapes, and where only the batch is open on none."""
    space, task = _space(target, name, kind), task_for(name, target, kind)
    instances = [instance for instance, _ in task.shapes] or [()]
    if len(instances[0]) == 1:
        instances.append(tuple((dim, 0) for dim, _ in instances[0]))
    module = space.write(of_knobs(knobs, space.name)).mod
    said = f"{name} {dict(knobs)}"
    return Sample(task, module, said, tuple(knobs.items()), tuple(instances))


@cache
def _space(target: str, name: str, kind: str) -> KnobSpace:
    task = task_for(name, target, kind)
    template, *_ = templates_of(task)
    return KnobSpace(task, template)
