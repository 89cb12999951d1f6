"""The loops around a program's heaviest block, and how each moves through the buffers.

TVM's per-store features say how much a program computes and accesses, but not in which order its
loops run. For that, index expressions are evaluated rather than analysed: each loop runs on its
own, with the others at zero, and the features come from the offsets that it reaches.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import numpy as np
import numpy.typing as npt

from spaces.ir import tvm_compat

Offsets = npt.NDArray[np.int64]
_Evaluate = Callable[[Sequence[Offsets]], Offsets]

_LONGEST = 4096
"""Steps of a loop that are evaluated; a longer loop is taken to reach proportionally more."""
_MAX_READS = 3
_UNROLL_STEP = "pragma_auto_unroll_max_step"


class LoopKind(IntEnum):
    """The kind of a loop, with TVM's numbers."""

    SERIAL = 0
    PARALLEL = 1
    VECTORIZED = 2
    UNROLLED = 3
    THREAD = 4
    """Bound to a block or thread of a GPU."""


@dataclass(frozen=True, slots=True)
class Loop:
    """One loop around a block.

    Attributes:
        reduces: whether it moves along a reduction axis.
    """

    extent: int
    kind: int
    reduces: bool


@dataclass(frozen=True, slots=True)
class Access:
    """The movement of the loops through one buffer.

    Attributes:
        strides: elements that one step of each loop moves, innermost loop first.
        distinct: different elements that each loop reaches by itself.
        elements: size of the whole buffer.
        item_bytes: size of one element.
    """

    strides: tuple[int, ...]
    distinct: tuple[int, ...]
    elements: int
    item_bytes: int


@dataclass(frozen=True, slots=True)
class Nest:
    """The loops of more than one step around a block, innermost first, and their accesses.

    Attributes:
        accesses: the buffer written, then up to three others that are read.
        unroll_step: the most iterations of inner loops that the compiler unrolls together.
    """

    loops: tuple[Loop, ...]
    accesses: tuple[Access, ...]
    unroll_step: int


def heaviest_nest(function: Any) -> Nest | None:
    """The nest of a PrimFunc's heaviest block by memory accesses; the last one of equals.

    None where no block with loops writes anything.
    """
    blocks: list[tuple[tuple[Any, ...], Any]] = []
    _collect(function.body, (), blocks)
    blocks = [(loops, realize) for loops, realize in blocks if loops and realize.block.writes]
    if not blocks:
        return None
    weights = [
        math.prod(_extent(loop) for loop in loops) * (1 + len(realize.block.reads))
        for loops, realize in blocks
    ]
    heaviest = max(range(len(blocks)), key=lambda i: (weights[i], i))
    return _nest(*blocks[heaviest])


def _collect(
    statement: Any, loops: tuple[Any, ...], found: list[tuple[tuple[Any, ...], Any]]
) -> None:
    """All innermost blocks of a statement, each with the loops around it, outermost first."""
    kind = type(statement).__name__
    if kind == "For":
        _collect(statement.body, (*loops, statement), found)
    elif kind == "SeqStmt":
        for each in statement.seq:
            _collect(each, loops, found)
    elif kind == "SBlockRealize":
        body = statement.block.body
        if type(body).__name__ in ("For", "SeqStmt", "SBlockRealize"):
            _collect(body, loops, found)
        else:
            found.append((loops, statement))
    elif hasattr(statement, "body"):
        _collect(statement.body, loops, found)


def _nest(all_loops: tuple[Any, ...], realize: Any) -> Nest:
    loops = [loop for loop in reversed(all_loops) if _extent(loop) > 1]
    block = realize.block
    counters, ends = _counters([_extent(loop) for loop in loops])
    number = {loop.loop_var: i for i, loop in enumerate(loops)}
    axes = [_evaluator(value, number)(counters) for value in realize.iter_values]
    reduced = [a for a, v in zip(axes, block.iter_vars, strict=True) if _is_reduction(v)]
    axis_number = {v.var: i for i, v in enumerate(block.iter_vars)}
    written = block.writes[0]
    others = [r for r in block.reads if not r.source.same_as(written.source)]
    return Nest(
        loops=tuple(
            Loop(_extent(loop), int(loop.kind), any(a[start:end].any() for a in reduced))
            for loop, (start, end) in zip(loops, ends, strict=True)
        ),
        accesses=tuple(
            _access(region, axes, axis_number, [_extent(loop) for loop in loops], ends)
            for region in (written, *others[:_MAX_READS])
        ),
        unroll_step=max((_unroll_step(loop) for loop in all_loops), default=0),
    )


def _counters(extents: Sequence[int]) -> tuple[list[Offsets], list[tuple[int, int]]]:
    """Values of every loop variable while each loop in turn runs and the others stand at zero.

    Returns:
        One array for each variable, all of one length, and the slice of them for each loop's turn.
    """
    turns: list[tuple[int, int]] = []
    total = 0
    for extent in extents:
        turns.append((total, total + min(extent, _LONGEST)))
        total = turns[-1][1]
    counters = [np.zeros(total, dtype=np.int64) for _ in extents]
    for counter, (start, end) in zip(counters, turns, strict=True):
        counter[start:end] = np.arange(end - start)
    return counters, turns


def _access(
    region: Any,
    axes: Sequence[Offsets],
    axis_number: dict[Any, int],
    extents: Sequence[int],
    turns: Sequence[tuple[int, int]],
) -> Access:
    shape = [_static(dim) for dim in region.source.shape]
    length = turns[-1][1] if turns else 0
    offset, step = np.zeros(length, dtype=np.int64), 1
    for size, part in zip(reversed(shape), reversed(list(region.region)), strict=True):
        offset = offset + _evaluator(part.min, axis_number, length)(axes) * step
        step *= size
    strides, distinct = [], []
    for extent, (start, end) in zip(extents, turns, strict=True):
        turn = offset[start:end]
        strides.append(int(turn[1] - turn[0]))
        distinct.append(len(np.unique(turn)) * -(-extent // (end - start)))
    return Access(tuple(strides), tuple(distinct), math.prod(shape), _item_bytes(region.source))


def _evaluator(expression: Any, number: dict[Any, int], length: int | None = None) -> _Evaluate:
    """An index expression as a function of the arrays of its variables.

    Variables without a number and operators that do not move an index count as zero.
    """
    inner = _compile(expression, number)

    def evaluate(values: Sequence[Offsets]) -> Offsets:
        size = length if length is not None else (len(values[0]) if len(values) else 0)
        return np.broadcast_to(np.asarray(inner(values), dtype=np.int64), (size,))

    return evaluate


_BINARY: dict[str, Callable[[Any, Any], Any]] = {
    "Add": lambda a, b: a + b,
    "Sub": lambda a, b: a - b,
    "Mul": lambda a, b: a * b,
    "FloorDiv": lambda a, b: a // np.where(b == 0, 1, b),
    "FloorMod": lambda a, b: a % np.where(b == 0, 1, b),
    "Min": np.minimum,
    "Max": np.maximum,
}


def _compile(expression: Any, number: dict[Any, int]) -> Callable[[Sequence[Offsets]], Any]:
    kind = type(expression).__name__
    if kind == "IntImm":
        constant = int(expression.value)
        return lambda values: constant
    if kind == "Var" and expression in number:
        index = number[expression]
        return lambda values: values[index]
    if kind == "Cast":
        return _compile(expression.value, number)
    if kind in _BINARY:
        operator = _BINARY[kind]
        left, right = _compile(expression.a, number), _compile(expression.b, number)
        return lambda values: operator(left(values), right(values))
    return lambda values: 0


def _extent(loop: Any) -> int:
    return _static(loop.extent)


def _static(size: Any) -> int:
    """A size as a number; 1 where it is symbolic."""
    return int(size) if type(size).__name__ in ("IntImm", "int") else 1


def _is_reduction(axis: Any) -> bool:
    return int(axis.iter_type) == tvm_compat.REDUCED


def _item_bytes(buffer: Any) -> int:
    bits = int("".join(c for c in str(buffer.dtype).split("x")[0] if c.isdigit()) or 8)
    return max(1, bits // 8)


def _unroll_step(loop: Any) -> int:
    for name, value in loop.annotations.items():
        if str(name) == _UNROLL_STEP:
            return int(value)
    return 0
