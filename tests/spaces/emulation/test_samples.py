"""Random samples of each space that there is for CUDA are right on the emulated device."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

import pytest

from tests.spaces.emulation import samples
from tests.spaces.emulation.samples import Sample
from tuner.task import Instance, Task

pytestmark = pytest.mark.tvm
_FEW, _MANY = 10, 200
_IN_ALL = {"convolution", "float16 in float32", "softmax", "all symbolic"}
"""Programs of which a few samples run in `make test`: each of the spaces has one."""


def cases(names: Collection[str]) -> list[Any]:
    """Each program with few samples and with many."""
    long = (pytest.mark.long, pytest.mark.timeout(1800))
    few = [pytest.param(n, _FEW, marks=() if n in _IN_ALL else pytest.mark.long) for n in names]
    return [*few, *(pytest.param(name, _MANY, marks=long) for name in names)]


def wrong(
    task: Task, drawn: Iterator[Sample], instances: tuple[Instance, ...] = ((),)
) -> dict[str, str]:
    """What is wrong with some samples, by their settings."""
    found = {}
    for sample in drawn:
        try:
            errors = samples.check(task, sample, instances)
        except (RuntimeError, TimeoutError, ValueError) as error:
            errors = [f"{type(error).__name__}: {error}"]
        if errors:
            found[sample.settings] = errors[0]
    return found


@pytest.mark.parametrize(("name", "number"), cases(samples.PROGRAMS))
def test_samples_of_the_rules_are_right(name: str, number: int) -> None:
    task = samples.task(name)
    assert wrong(task, samples.drawn(task, number)) == {}


@pytest.mark.parametrize(("name", "number"), cases(samples.SYMBOLIC))
def test_samples_of_the_template_are_right_on_every_shape(name: str, number: int) -> None:
    task = samples.symbolic_task(name)
    instances = tuple(instance for instance, _ in task.shapes)
    assert wrong(task, samples.settings_of(name, number), instances) == {}
