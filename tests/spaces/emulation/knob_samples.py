"""Random samples of the template for open sizes, each with sizes that suit its tiles."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from itertools import count
from typing import Any

import numpy as np

from spaces.design_space.knob_space import KnobSpace
from spaces.lowering.extract_tasks import task_of
from spaces.templates.base import Columns, Knobs, Template, every, setting
from spaces.templates.gpu.knob_model import Block, block_of
from spaces.templates.registry import templates_of
from tests.contracts.programs import write_down
from tests.spaces.emulation.samples import AMPERE, EACH, Sample, Value
from tests.spaces.templates.gpu import test_gpu_contraction as contraction
from tuner.task import Task

_TILES, _STAGES, _LEAST, _BATCH = 2.5, 4, 5, 2


@dataclass(frozen=True, slots=True)
class Sizes:
    """Rows, columns and terms of a product."""

    rows: int
    columns: int
    depth: int


Program = Callable[[Sizes], Any]
PROGRAMS: Mapping[str, tuple[Program, tuple[str, ...]]] = {
    "dense": (lambda s: contraction.dense(False, s.columns, s.depth), ("M",)),
    "bias and relu": (lambda s: contraction.dense(True, s.columns, s.depth), ("M",)),
    "whole tiles": (lambda s: contraction.dense(True, s.columns, s.depth), ("M",)),
    "NT": (lambda s: contraction.batched((_BATCH, "M", "N", s.depth), True), ("M", "N")),
    "NN": (lambda s: contraction.batched((_BATCH, "M", s.columns, "K"), False), ("M", "K")),
    "all symbolic": (
        lambda s: contraction.batched(("B", "M", "N", "K"), True),
        ("B", "K", "M", "N"),
    ),
}
"""Programs by the sizes that they know, and their symbolic dimensions."""
WHOLE = "whole tiles"
"""The program whose known sizes are multiples of its tiles, so that threads load vectors."""
_ANY, _ANY_WHOLE = Sizes(331, 211, 131), Sizes(331, 6144, 256)
"""Sizes for which as many settings are feasible as for a sample's own."""


def sizes_of(name: str, knobs: Knobs) -> Sizes:
    """Sizes of at least 2.5 tiles of a setting, and sums of at least four stages, that are no
    multiples of them, or of `WHOLE` only the rows are none."""
    block: Block = block_of(knobs)
    rows = _prime(max(_LEAST, int(np.ceil(_TILES * block.rows))))
    if name == WHOLE:
        return Sizes(rows, 3 * block.columns, _STAGES * block.depth)
    columns = _prime(max(_LEAST, int(np.ceil(_TILES * block.columns))))
    return Sizes(rows, columns, _prime(_STAGES * block.depth))


@cache
def settings_of(name: str, number: int) -> tuple[Knobs, ...]:
    """Random settings of a program's template, see `spread`."""
    return tuple(spread(_space(name, _ANY_WHOLE if name == WHOLE else _ANY)[1].template, number))


def spread(template: Template, number: int) -> list[Knobs]:
    """Random settings, no two of them equal, each value of a knob that is within the limits in
    `EACH` of them or, of fewer settings, in about as many as any other.

    Raises:
        ValueError: there are not so many.
    """
    columns = every(template)
    left = list(np.flatnonzero(np.isfinite(template.costs_s(columns))))
    rng, counts = np.random.default_rng(0), Counter[Value]()
    known = Counter((knob, v) for knob in template.choices for v in columns[knob][left].tolist())
    found: list[Knobs] = []
    for _ in range(number):
        short = [value for value, most in known.items() if counts[value] < min(EACH, most)]
        rarest = min(short, key=lambda value: counts[value], default=None)
        row = int(rng.choice(_with(columns, left, rarest)))
        left.remove(row)
        found.append(setting(columns, row))
        counts.update(found[-1].items())
    return found


def sample(name: str, knobs: Knobs) -> Sample:
    """A setting of a program of its own sizes, with a single row, and with many."""
    sizes = sizes_of(name, knobs)
    task, space = _space(name, sizes)
    instances = tuple(instance for instance, _ in task.shapes)
    schedule = write_down(space, knobs).schedule
    return Sample(task, schedule.mod, str(knobs), tuple(knobs.items()), instances)


def values_of(name: str) -> set[Value]:
    """All values of the knobs of a program's template."""
    choices = _space(name, _ANY)[1].template.choices
    return {(knob, value) for knob, values in choices.items() for value in values}


def _space(name: str, sizes: Sizes) -> tuple[Task, KnobSpace]:
    program, dims = PROGRAMS[name]
    extents = {"B": _BATCH, "M": sizes.rows, "N": sizes.columns, "K": sizes.depth}
    shapes = tuple(
        (tuple((dim, rows if dim == "M" else extents[dim]) for dim in dims), 1.0)
        for rows in (1, sizes.rows)
    )
    known = replace(task_of(program(sizes), AMPERE, name="symbolic"), shapes=shapes)
    template, *_ = templates_of(known)
    return known, KnobSpace(known, template)


def _with(columns: Columns, rows: list[Any], value: Value | None) -> list[Any]:
    """The rows with a value of a knob; all for None."""
    if value is None:
        return rows
    knob, wanted = value
    return [row for row in rows if columns[knob][row] == wanted]


def _prime(least: int) -> int:
    """The smallest prime from a number on: a multiple of nothing."""
    return next(n for n in count(max(least, 2)) if all(n % d for d in range(2, int(n**0.5) + 1)))
