"""Samples of the spaces that there are for CUDA, and how they are run on the emulated device."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import cycle
from typing import Any

import numpy as np
import numpy.typing as npt

from spaces.check.case import Case
from spaces.check.reference import reference
from spaces.codegen.artifact import build_artifact, load_kernel
from spaces.devices.emulated import ZonedChecker
from spaces.ir.schedules import task_module
from spaces.ir.symbolic import specialise
from spaces.targets.target import emulate_target
from spaces.templates.base import Columns, Knobs, Template, every, setting
from tuner.request.target_text import arithmetic_of
from tuner.task import Instance, Task

AMPERE = emulate_target('{"kind":"cuda","arch":"sm_80"}')
OLD = emulate_target('{"kind":"cuda","arch":"sm_75"}')
"""A device before copies went on by themselves."""
EACH = 5
"""Samples in which each value of a knob is, where there are enough of them."""
Value = tuple[str, int]
"""A knob and one of its values."""
Rows = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Sample:
    """A schedule of a program.

    Attributes:
        settings: what tells it from other samples.
        values: those of its knobs that are chosen from a list.
        instances: the shapes that it is run on.
    """

    task: Task
    module: Any
    settings: str
    values: tuple[Value, ...]
    instances: tuple[Instance, ...] = ((),)


def spread(template: Template, number: int) -> list[Knobs]:
    """Random settings, no two of them equal, each value of a knob that is within the limits in
    `EACH` of them or, of fewer settings, in about as many as any other.

    Raises:
        ValueError: there are not so many.
    """
    return list(spread_in_turns([template] * number))


def spread_in_turns(templates: Iterable[Template]) -> Iterator[Knobs]:
    """A random setting of each of some templates, no two of a template equal; as `spread`, over all
    of them.

    Raises:
        ValueError: a template has not so many.
    """
    rng, counts = np.random.default_rng(0), Counter[Value]()
    feasible: dict[Template, tuple[Columns, Rows]] = {}
    for template in templates:
        if template not in feasible:
            columns = every(template)
            rows = np.flatnonzero(np.isfinite(template.costs_s(columns)))
            feasible[template] = columns, rows
        columns, left = feasible[template]
        known = {(knob, v) for knob in template.choices for v in np.unique(columns[knob][left])}
        short = sorted((v for v in known if counts[v] < EACH), key=lambda v: (counts[v], v))
        row = int(rng.choice(_with(columns, left, short[0] if short else None)))
        feasible[template] = columns, left[left != row]
        found = setting(columns, row)
        counts.update(found.items())
        yield found


def cover(templates: Mapping[str, Template]) -> list[tuple[str, Knobs]]:
    """Random settings of some templates in turn, one of each at least, and so many that each value
    of a knob that is within the limits is in one of them."""
    rng, found = np.random.default_rng(0), list[tuple[str, Knobs]]()
    known = {name: every(template) for name, template in templates.items()}
    feasible = {
        name: np.flatnonzero(np.isfinite(template.costs_s(known[name])))
        for name, template in templates.items()
    }
    missing = {
        (knob, value)
        for name, columns in known.items()
        for knob in templates[name].choices
        for value in np.unique(columns[knob][feasible[name]]).tolist()
    }
    for number, name in enumerate(cycle(templates)):
        if number >= len(templates) and not missing:
            return found
        columns, rows = known[name], feasible[name]
        new = sum((columns[knob][rows] == value).astype(int) for knob, value in missing)
        best = rows[new == np.max(new)] if missing else rows
        found.append((name, setting(columns, int(rng.choice(best)))))
        missing -= {*found[-1][1].items()}
    raise ValueError("there are no templates")


def check(sample: Sample) -> list[str]:
    """Build a sample and run it on the draws of its task's inputs, each of several shapes on one
    of them; what is wrong, in words."""
    import tvm

    task = sample.task
    kernel = load_kernel(build_artifact(sample.module, task.target))
    found = []
    several = len(sample.instances) > 1
    for number, instance in enumerate(sample.instances):
        known = _cases(task, instance)
        for case in known[number % len(known) :][:1] if several else known:
            checker = ZonedChecker(None, task.target)
            tensors = checker.feed(case)
            kernel.module["main"](*kernel.arguments(tensors, tvm.cpu()))
            if error := checker.wrong(case, tensors):
                found.append(f"{dict(instance)}: {error}")
    return found


def wrong(drawn: Iterable[Sample]) -> dict[str, str]:
    """What is wrong with some samples, by their settings."""
    found = {}
    for sample in drawn:
        try:
            errors = check(sample)
        except (RuntimeError, TimeoutError, ValueError) as error:
            errors = [f"{type(error).__name__}: {error}"]
        if errors:
            found[sample.settings] = errors[0]
    return found


def rare(values: Iterable[Value], known: Iterable[Value]) -> dict[Value, int]:
    """Of the values that are known, those that occur less than `EACH` times, with how often."""
    counts = Counter(values)
    return {value: counts[value] for value in known if counts[value] < EACH}


@lru_cache(maxsize=4)
def _cases(task: Task, instance: Instance) -> tuple[Case, ...]:
    """Inputs and right outputs of a task on one shape."""
    module = specialise(task_module(task.module), dict(instance))
    seed, arithmetic = f"sample-{task.key}-{instance}", arithmetic_of(task.target)
    return reference(module, seed, arithmetic=arithmetic).cases


def _with(columns: Columns, rows: Rows, value: Value | None) -> Rows:
    """The rows with a value of a knob; all for None."""
    if value is None:
        return rows
    knob, wanted = value
    chosen: Rows = rows[columns[knob][rows] == wanted]
    return chosen
