"""Templates and their knobs, the parts of a space of hand-written schedules.

A template is a schedule of a program with a few integer parameters, its knobs. These are plain
integers, so thousands of settings can be checked against the limits of the hardware and ranked by
an analytic estimate before TVM sees one of them.

A candidate of such a space is a setting of the knobs. The trace that a builder writes for it is one
like any other and is read without the template. It keeps the knobs as an annotation that is taken
away again at once, so that equal programs stay equal.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from tuner.task import Instance

Knobs = Mapping[str, int]
Columns = Mapping[str, npt.NDArray[np.int64]]
"""Many settings at once: for each knob an array with one value for each setting."""
Costs = npt.NDArray[np.float64]

FAMILY = "kernel"
"""The family of the spaces that templates span: what their names begin with, before a colon."""

_JUMP = 0.3
_CHANGED = (0.55, 0.3, 0.15)
_STEPS = (-2, -1, 1, 2)
_STEP_WEIGHTS = (0.15, 0.35, 0.35, 0.15)


class HasChoices(Protocol):
    """Something with knobs."""

    @property
    def choices(self) -> Mapping[str, tuple[int, ...]]:
        """For each knob the values it may take, in an order in which neighbours are alike."""


class Template(HasChoices, Protocol):
    """One shape of code for one task.

    Attributes:
        name: name of the space it spans, kept with each candidate; it changes when `apply` does.
    """

    @property
    def name(self) -> str: ...

    def costs_s(self, columns: Columns) -> Costs:
        """Analytic estimates of the latency in seconds, of which only the order matters.

        Infinite where the limits of the hardware or the shape rule a setting out. Arithmetic on
        integers only, no lowering.
        """

    def apply(self, schedule: Any, knobs: Knobs) -> Any:
        """Carry the knobs out on a fresh schedule of the task's module.

        Returns:
            That schedule; or, from a template whose code no schedule says, an untouched one of the
            program that the setting stands for.

        Raises:
            Exception: whatever TVM throws where a primitive does not apply.
        """


@runtime_checkable
class ShapedTemplate(Template, Protocol):
    """A template for a program with symbolic dimensions.

    One setting of its knobs serves every shape. Its cost depends on the shape: the template itself
    gives the costs of a typical one, mostly the largest.
    """

    def at(self, instance: Instance) -> Template:
        """The same template with limits and costs of one of the task's shapes.

        Raises:
            KeyError: the task has no such shape.
        """

    def shape_costs_s(self, knobs: Knobs) -> Costs:
        """Analytic estimates of a setting for each of the task's shapes, in seconds."""

    def layout(self, knobs: Knobs) -> str:
        """The layout in which a setting packs constant operands ahead; empty if it packs none.

        Only settings of equal layouts can share the packed operands.
        """


@runtime_checkable
class PadsShapes(Protocol):
    """A template whose tiles may reach beyond a shape."""

    def padding(self, knobs: Knobs) -> Costs:
        """Share of a setting's tiles that lies beyond the shape, for each of the task's shapes:
        padding that is computed, or remainder rows that are guarded."""

    @property
    def shape_work(self) -> Costs:
        """Multiply-adds of each of the task's shapes, without padding."""


@runtime_checkable
class KnowsRules(Protocol):
    """A template that tells what TVM's rules make of its program.

    Attributes:
        hedged: whether they are searched beside it. They need not be where they have no schedule of
            such a program that a device takes.
    """

    @property
    def hedged(self) -> bool: ...


@runtime_checkable
class HasTwins(Protocol):
    """A template some of whose settings give the same program."""

    def canonical(self, columns: Columns) -> Columns:
        """For each setting the one that stands for all which give its program."""


def draw(template: HasChoices, number: int, rng: np.random.Generator) -> Columns:
    """Random settings, feasible or not."""
    return {
        name: np.asarray(values, dtype=np.int64)[rng.integers(len(values), size=number)]
        for name, values in template.choices.items()
    }


def every(template: HasChoices) -> Columns:
    """All settings, feasible or not."""
    values = [np.asarray(v, dtype=np.int64) for v in template.choices.values()]
    grid = np.meshgrid(*values, indexing="ij")
    return {name: axis.ravel() for name, axis in zip(template.choices, grid, strict=True)}


def nudge(template: HasChoices, knobs: Knobs, number: int, rng: np.random.Generator) -> Columns:
    """Settings near a known one: mostly one knob changed, mostly to a neighbouring value."""
    choices = template.choices
    several = [name for name, values in choices.items() if len(values) > 1]
    columns = {
        name: np.full(number, knobs.get(name, values[0]), dtype=np.int64)
        for name, values in choices.items()
    }
    if not several:
        return columns
    counts = 1 + rng.choice(len(_CHANGED), p=_CHANGED, size=number)
    # Each row of places is a permutation, so just as many are below the count.
    places = rng.random((number, len(several))).argsort(axis=1)
    for column, name in enumerate(several):
        rows = np.flatnonzero(places[:, column] < counts)
        columns[name][rows] = _neighbours(choices[name], knobs.get(name), len(rows), rng)
    return columns


def _neighbours(
    values: tuple[int, ...], value: int | None, number: int, rng: np.random.Generator
) -> npt.NDArray[np.int64]:
    known = np.asarray(values, dtype=np.int64)
    anywhere = known[rng.integers(len(values), size=number)]
    if value not in values:
        return anywhere
    places = values.index(value) + rng.choice(_STEPS, p=_STEP_WEIGHTS, size=number)
    near = known[places.clip(0, len(values) - 1)]
    return np.where(rng.random(number) < _JUMP, anywhere, near)


def setting(columns: Columns, row: int) -> dict[str, int]:
    """The setting in one row of the columns."""
    return {name: int(values[row]) for name, values in columns.items()}


def as_rows(columns: Iterable[Any], shape: tuple[int, ...]) -> npt.NDArray[np.float32]:
    """Features as one row for each setting or shape."""
    return np.stack([np.broadcast_to(c, shape) for c in columns], axis=1).astype(np.float32)


def one_by_one(columns: Columns, cost_s: Callable[[Knobs], float | None]) -> Costs:
    """Costs of settings, computed one at a time; `cost_s` is None for an infeasible one."""
    number = len(next(iter(columns.values()), ()))
    costs = (cost_s(setting(columns, row)) for row in range(number))
    return np.array([np.inf if cost is None else cost for cost in costs], dtype=np.float64)
