"""A program as stages: the blocks that can be computed at chosen elements of what they write."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from spaces.check.errors.expressions import kind_of
from spaces.ir import rewrite, tvm_compat
from spaces.ir.guard import Unsuitable


class Unevaluable(Unsuitable):
    """The program does something that is not known how to compute at chosen elements."""


@dataclass(frozen=True, slots=True)
class Axis:
    """A variable of a block, which takes `extent` values from `first` on."""

    var: Any
    first: int
    extent: int
    reduced: bool


@dataclass(frozen=True, slots=True)
class Place:
    """An index of what a stage writes: `step` times an axis of its, plus `offset`; without an axis
    it is the offset."""

    axis: int | None
    step: int
    offset: int


@dataclass(frozen=True, slots=True)
class Stage:
    """A block that writes one element, of one tensor or several, for each value of its spatial
    axes.

    Attributes:
        places: the indices of that element, the same for each tensor.
        written: the tensors.
        indices: as they stand in the program.
        init: statements that are carried out before the first step of its reductions.
        body: statements of each step, stores and variables.
    """

    axes: tuple[Axis, ...]
    places: tuple[Place, ...]
    written: tuple[Any, ...]
    indices: tuple[Any, ...]
    init: tuple[Any, ...]
    body: tuple[Any, ...]


def stages_of(function: Any) -> list[Stage]:
    """The stages of an unscheduled PrimFunc, in order.

    Raises:
        Unevaluable: it is not made of such.
    """
    found: list[Stage] = []
    _collect(function.body, [], found)
    return found


def _collect(node: Any, loops: list[Any], found: list[Stage]) -> None:
    kind = kind_of(node)
    if kind == "SeqStmt" and not loops:
        for part in node.seq:
            _collect(part, loops, found)
    elif kind == "For":
        _collect(node.body, [*loops, node], found)
    elif kind == "SBlockRealize":
        block = node.block
        if not loops and not len(block.iter_vars) and not len(block.match_buffers):
            _collect(block.body, [], found)
        else:
            found.append(_stage(node, loops))
    else:
        raise Unevaluable(f"a {kind} outside of a block")


def _stage(realize: Any, loops: Sequence[Any]) -> Stage:
    block = realize.block
    if len(block.match_buffers) or len(block.alloc_buffers):
        raise Unevaluable("a block with tensors of its own")
    if tvm_compat.as_int(realize.predicate) != 1:
        raise Unevaluable("a block under a condition")
    axes = _axes(realize, loops)
    init = () if block.init is None else _statements(block.init)
    body = _statements(block.body)
    stores = [each for each in (*init, *body) if kind_of(each) == "BufferStore"]
    if not stores:
        raise Unevaluable("a block that stores nothing")
    first = stores[0]
    for other in stores[1:]:
        if not same_indices(first.indices, other.indices):
            raise Unevaluable("a block that stores at several places")
    places = _places(first.indices, axes)
    written: list[Any] = []
    for store in stores:
        if not rewrite.is_among(store.buffer, written):
            written.append(store.buffer)
    return Stage(axes, places, tuple(written), tuple(first.indices), init, body)


def _axes(realize: Any, loops: Sequence[Any]) -> tuple[Axis, ...]:
    """The axes of a block whose loops are simply these."""
    waiting, axes = list(loops), []
    for axis, value in zip(realize.block.iter_vars, realize.iter_values, strict=True):
        reduced = int(axis.iter_type) == tvm_compat.REDUCED
        constant = tvm_compat.as_int(value)
        if constant is not None:
            axes.append(Axis(axis.var, constant, 1, reduced))
            continue
        loop = next((each for each in waiting if each.loop_var.same_as(value)), None)
        if loop is None:
            raise Unevaluable("an axis that is no loop")
        waiting.remove(loop)
        first, extent = (tvm_compat.as_int(n) for n in (loop.min, loop.extent))
        if first is None or extent is None:
            raise Unevaluable("a loop of unknown length")
        axes.append(Axis(axis.var, first, extent, reduced))
    if any(tvm_compat.as_int(loop.extent) != 1 for loop in waiting):
        raise Unevaluable("a loop that is no axis")
    return tuple(axes)


def _statements(node: Any) -> tuple[Any, ...]:
    kind = kind_of(node)
    if kind == "SeqStmt":
        return tuple(one for part in node.seq for one in _statements(part))
    if kind not in ("BufferStore", "Bind"):
        raise Unevaluable(f"a {kind} in a block")
    return (node,)


def same_indices(one: Sequence[Any], other: Sequence[Any]) -> bool:
    """Whether indices are the same expressions."""
    from tvm_ffi import structural_equal

    return bool(structural_equal(list(one), list(other)))


def _places(indices: Sequence[Any], axes: Sequence[Axis]) -> tuple[Place, ...]:
    places = tuple(_place(index, axes) for index in indices)
    used = [place.axis for place in places if place.axis is not None]
    if len(used) != len(set(used)):
        raise Unevaluable("a block that writes along a diagonal")
    for number, axis in enumerate(axes):
        if axis.reduced and number in used:
            raise Unevaluable("a reduction over what is written")
        if not axis.reduced and number not in used and axis.extent != 1:
            raise Unevaluable("a block that writes an element several times")
    return places


def _place(index: Any, axes: Sequence[Axis]) -> Place:
    kind = kind_of(index)
    constant = tvm_compat.as_int(index)
    if constant is not None:
        return Place(None, 1, constant)
    if kind == "Cast":
        return _place(index.value, axes)
    if kind in ("Var", "PrimVar"):
        number = next((i for i, axis in enumerate(axes) if axis.var.same_as(index)), None)
        if number is not None:
            if axes[number].extent == 1:
                return Place(None, 1, axes[number].first)
            return Place(number, 1, 0)
    if kind in ("Add", "Sub", "Mul"):
        return _join(kind, _place(index.a, axes), _place(index.b, axes))
    raise Unevaluable("a block that writes at places that are computed")


def _join(kind: str, left: Place, right: Place) -> Place:
    if kind == "Mul":
        if left.axis is None:
            left, right = right, left
        if right.axis is None and right.offset > 0:
            return Place(left.axis, left.step * right.offset, left.offset * right.offset)
    elif right.axis is None:
        return Place(
            left.axis, left.step, left.offset + (right.offset if kind == "Add" else -right.offset)
        )
    elif left.axis is None and kind == "Add":
        return Place(right.axis, right.step, left.offset + right.offset)
    raise Unevaluable("a block that writes at places that are computed")
