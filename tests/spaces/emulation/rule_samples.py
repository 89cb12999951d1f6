"""Random samples of the spaces of TVM's rules for CUDA."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import cache
from itertools import count
from math import prod
from typing import Any

from spaces.design_space.analysis.interpreter import Reading
from spaces.design_space.point import Point
from spaces.design_space.trace_space import TraceSpace
from spaces.ir.schedules import InvalidCandidate
from spaces.lowering.extract_tasks import task_of
from tests.spaces.emulation.samples import AMPERE, EACH, Sample, Value
from tuner.candidate import Draft
from tuner.task import Task

_MISSES = 400
"""Draws that are invalid, or known, one after the other, after which none is left to be found."""
_LEAST_TILES, _LEAST_STAGES = 3, 4
"""Tiles of the rules divide an extent; three of them are the fewest that are more than two and a
half."""
_TILE, _SUM = 5, 3
"""Parts of an extent that rows and columns are split in, and of one that is summed over."""


def drawn(
    task: Task,
    number: int,
    space: TraceSpace | None = None,
    *,
    each: Collection[Value] = (),
) -> Iterator[Sample]:
    """Samples of a task's space, no two of them equal: so many, or all of a space of few points.

    Args:
        each: values that shall be in `EACH` samples: the last ones are of those that lack.
        space: None is `space_of` the task.

    Raises:
        AssertionError: there are not so many.
    """
    space = space or space_of(task)
    wanted = min(number, space.size)
    seen, missed = set[str](), 0
    counts = Counter[Value]()
    for seed in count():
        if len(seen) == wanted:
            return
        missed += 1
        assert missed <= _MISSES, f"{len(seen)} of {wanted} samples of {task.name}"
        try:
            point = space.realize_draft(Draft(task.key, seed, seed))
        except InvalidCandidate:
            continue
        values = tuple(value for value, _ in _choices(point.schedule.trace))
        lacking = {value: EACH - counts[value] for value in each if counts[value] < EACH}
        is_needed = not lacking.keys().isdisjoint(values)
        left = wanted - len(seen)
        if point.candidate.payload in seen or (left <= sum(lacking.values()) and not is_needed):
            continue
        seen.add(point.candidate.payload)
        missed = 0
        counts.update(values)
        yield Sample(task, point.schedule.mod, point.candidate.payload, values)


class TiledSpace(TraceSpace):
    """The space of the rules, of which only schedules with enough tiles are drawn."""

    def _sample(self, rng: random.Random) -> tuple[Any, Reading | None]:
        for _ in range(_MISSES):
            trace, reading = super()._sample(rng)
            if is_tiled(trace):
                return trace, reading
        raise InvalidCandidate(f"{_MISSES} draws in a row have too few tiles")

    def _point(self, schedule: Any, *, checked: bool) -> Point:
        if not is_tiled(schedule.trace):  # what was open
            raise InvalidCandidate("too few tiles")
        return super()._point(schedule, checked=checked)


@cache
def space_of(task: Task) -> TraceSpace:
    """The space that a task's samples are drawn from."""
    return TiledSpace(task)


def is_tiled(trace: Any) -> bool:
    """Whether a trace has enough tiles, and stages of a sum, as far as it has drawn them."""
    drawn = (trace.get_decision(i) for i in trace.insts if "Tile" in str(i.kind.name))
    tiles = [[int(part) for part in parts] for parts in drawn if parts is not None]
    sums = [parts for parts in tiles if len(parts) == _SUM]
    if sums and prod(parts[0] for parts in sums) < _LEAST_STAGES:
        return False
    spatial = (parts for parts in tiles if len(parts) == _TILE and prod(parts) > 1)
    return all(parts[0] >= _LEAST_TILES for parts in spatial)


def values_of(task: Task) -> set[Value]:
    """All values of the knobs of a task's space that are chosen from a list."""
    choices = [choice for sketch in space_of(task).sketches for choice in _choices(sketch)]
    return {(name, value) for (name, _), values in choices for value in values}


def _choices(trace: Any) -> Iterator[tuple[Value, tuple[int, ...]]]:
    """The choices of a trace, with what else could have been chosen."""
    chosen = (i for i in trace.insts if str(i.kind.name) == "SampleCategorical")
    for number, instruction in enumerate(chosen):
        values = tuple(map(int, instruction.attrs[0]))
        decision = trace.get_decision(instruction)
        yield (f"choice {number} of {values}", values[int(decision)]), values


def product(m: int, n: int, k: int, dtype: str, sums: str) -> Any:
    """A product whose factors are cast to the type of the sums."""
    from tvm import te

    a, b = te.placeholder((m, k), dtype, "a"), te.placeholder((k, n), dtype, "b")
    along = te.reduce_axis((0, k), "k")

    def element(i: Any, j: Any) -> Any:
        return te.sum(a[i, along].astype(sums) * b[along, j].astype(sums), along)

    return te.create_prim_func([a, b, te.compute((m, n), element, "c")])


def _batched(q: int, m: int, n: int, k: int) -> Any:
    from tvm import te, topi

    a, b = te.placeholder((q, m, k), name="a"), te.placeholder((q, n, k), name="b")
    return te.create_prim_func([a, b, topi.nn.batch_matmul(a, b)])


def _convolution() -> Any:
    from tvm import te, topi

    x = te.placeholder((1, 12, 18, 15), name="x")
    w = te.placeholder((42, 12, 3, 3), name="w")
    return te.create_prim_func([x, w, topi.nn.relu(topi.nn.conv2d_nchw(x, w, 1, 1, 1))])


def _softmax() -> Any:
    from tvm import te, topi

    x = te.placeholder((35, 333), name="x")
    return te.create_prim_func([x, topi.nn.softmax(x)])


def _activation() -> Any:
    from tvm import te, topi

    x = te.placeholder((77, 131), "float16", name="x")
    y = te.placeholder((77, 131), "float16", name="y")
    return te.create_prim_func([x, y, topi.nn.relu(topi.add(topi.tanh(x), y))])


PROGRAMS: Mapping[str, Callable[[], Any]] = {
    "float32": lambda: product(150, 210, 180, "float32", "float32"),
    "float16 in float32": lambda: product(144, 192, 128, "float16", "float32"),
    "float16": lambda: product(144, 192, 128, "float16", "float16"),
    "bfloat16 in float32": lambda: product(150, 210, 180, "bfloat16", "float32"),
    "int8 in int32": lambda: product(144, 192, 128, "int8", "int32"),
    "batched": lambda: _batched(3, 60, 90, 60),
    "convolution": _convolution,
    "softmax": _softmax,
    "activation": _activation,
}
"""Programs of known shapes, of each format. Sizes are of many factors, few of them 2: threads and
vectors divide few of their tiles. Tensor cores want whole matrices of 16."""


@cache
def task(name: str) -> Task:
    """The task of a program of known shapes."""
    return task_of(PROGRAMS[name](), AMPERE, name=name.replace(" ", "_"))
