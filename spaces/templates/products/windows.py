"""How a contraction's operands are indexed: by one axis for each dimension, or by windows.

Windows slide over a tensor and may reach beyond it, as those of convolutions.

Where a stage fills in zeros around a tensor, windows are those of the tensor: nothing has to be
copied to have them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from spaces.ir import rewrite, tvm_compat
from spaces.ir.affine import quotient_of, read_index
from spaces.templates.contraction.match import Match, factors, find_fixed
from spaces.templates.products.packed import Packed, read_packed


@dataclass(frozen=True, slots=True)
class WindowIndex:
    """The index of one dimension of a tensor.

    Attributes:
        steps: axes, each with what one step of it adds to the index.
        first: the index where the place on each axis is 0.
        guarded: whether it may lie outside of the tensor, where elements count as zeros.
    """

    steps: tuple[tuple[int, int], ...]
    first: int = 0
    guarded: bool = False

    @property
    def axis(self) -> int | None:
        """The axis whose place it is; None where it is more than that."""
        alone = len(self.steps) == 1 and self.steps[0][1] == 1
        return self.steps[0][0] if alone and not self.first and not self.guarded else None

    def at(self, places: Mapping[int, Any]) -> Any:
        """Its value; places that are not given are 0."""
        parts = [
            places[axis] if step == 1 else places[axis] * step
            for axis, step in self.steps
            if axis in places
        ]
        if self.first or not parts:
            parts.append(self.first)
        return sum(parts[1:], parts[0])


@dataclass(frozen=True, slots=True)
class LookUp:
    """An index of an operand that a tensor says for each row of the other one: which of a stack of
    matrices it is multiplied by.

    Attributes:
        axis: number of the axis that windows have for it, behind all of the block's.
        operand: that is indexed, in dimension `dim`, of `size` matrices.
        row: the block's axis that it depends on; `variable` that axis's.
        value: the index, an expression of that.
        table: the tensor.
    """

    axis: int
    operand: int
    dim: int
    size: int
    row: int
    variable: Any
    value: Any
    table: Any


Window = tuple[WindowIndex, ...]
"""Of each dimension."""


@dataclass(frozen=True, slots=True)
class Reading:
    """What a contraction reads.

    Attributes:
        sources: the parameters that its two operands are, or are read from; what stands for one
            that is packed.
        windows: how these are indexed, by numbers of the block's axes.
        groups: an axis that is taken apart into groups, and the size of one; windows have the place
            in a group for that axis, and the group's number for an axis behind all others.
        packed: of each operand what it is made of, if that is so.
        look_up: an index that a tensor says, if there is one.
    """

    sources: tuple[Any, Any]
    windows: tuple[Window, Window]
    groups: tuple[int, int] | None
    packed: tuple[Packed | None, Packed | None]
    look_up: LookUp | None = None


def find_sources(match: Match) -> list[tuple[Any, Packed | None]]:
    """The operands of a contraction that is known to be a product, see `Reading`."""
    return [(load.source, load.packed) for load in _find_loads(match) or ()]


def read_windows(match: Match) -> Reading | None:
    """How a contraction reads its operands; None where these are no windows of parameters."""
    from tvm import sym
    from tvm.ir import Range

    block, loads = match.main, _find_loads(match)
    if loads is None:
        return None
    numbers = {axis.var: number for number, axis in enumerate(block.iter_vars)}
    extents = [axis.dom.extent for axis in block.iter_vars]
    groups = _find_groups(extents, [load.index for load in loads], numbers)
    values, analyzer = [], sym.Analyzer()
    if groups is not None:
        axis, size = groups
        whole = block.iter_vars[axis].var
        place, number = (_like(whole, name) for name in ("place", "group"))
        values = [(whole, number * size + place)]
        numbers |= {place: axis, number: len(extents)}
        analyzer.bind(place, Range(0, rewrite.constant(size, whole)))
        analyzer.bind(number, Range(0, extents[axis] // size))
    for axis_of, extent in zip(block.iter_vars, extents, strict=True):
        analyzer.bind(axis_of.var, Range(0, extent))
    look_up = None if groups else _find_look_up(match, loads)
    known = _Known(numbers, find_fixed(block), values, analyzer)
    windows = [
        _read(known, load, look_up if look_up and look_up.operand == operand else None)
        for operand, load in enumerate(loads)
    ]
    if windows[0] is None or windows[1] is None:
        return None
    sources = (loads[0].source, loads[1].source)
    packed = (loads[0].packed, loads[1].packed)
    return Reading(sources, (windows[0], windows[1]), groups, packed, look_up)


def _find_look_up(match: Match, loads: Sequence[_Load]) -> LookUp | None:
    """The index that a parameter says for each place on one axis of the result; None where there is
    none, or are several."""
    from tvm.ir import TensorLoad
    from tvm_ffi import structural_walk

    block, parameters = match.main, [*match.schedule.mod["main"].params]
    found = []
    for operand, load in enumerate(loads):
        for dim, index in enumerate(load.index):
            tables: list[Any] = []
            structural_walk(index, [(TensorLoad, tables.append)])
            axes = [n for n, a in enumerate(block.iter_vars) if rewrite.uses(index, [a.var])]
            size = tvm_compat.as_int(load.source.shape[dim])
            if not tables:
                continue
            own = len(tables) == len(axes) == 1 and rewrite.is_among(tables[0].source, parameters)
            if not own or size is None or int(block.iter_vars[axes[0]].iter_type):
                return None
            row, number = block.iter_vars[axes[0]].var, len(block.iter_vars)
            table = tables[0].source
            found.append(LookUp(number, operand, dim, size, axes[0], row, index, table))
    return found[0] if len(found) == 1 else None


@dataclass(frozen=True, slots=True)
class _Known:
    """The variables of a block: their numbers, those that are always 0, what is put in their
    place, and what is known of their values."""

    numbers: Mapping[Any, int]
    fixed: frozenset[int]
    values: Sequence[tuple[Any, Any]]
    analyzer: Any


@dataclass(frozen=True, slots=True)
class _Load:
    """The tensor that an operand is read from, its index, the conditions without which an element
    is zero, and what it is made of where it is packed."""

    source: Any
    index: Sequence[Any]
    conditions: Sequence[Any] = ()
    packed: Packed | None = None


def _find_loads(match: Match) -> Sequence[_Load] | None:
    """Those of both operands; None where one is no parameter, or a stage does more to it than to
    unpack it or to fill in zeros."""
    loads, parameters = factors(match.main), list(match.schedule.mod["main"].params)
    found = [
        _follow(match, load, stage)
        for load, stage in zip(loads or (), match.stages.before, strict=False)
    ]
    known = [
        load
        for load in found
        if load and (load.packed is not None or rewrite.is_among(load.source, parameters))
    ]
    return known if len(known) == 2 else None


def _follow(match: Match, load: Any, stage: Any) -> _Load | None:
    """What a factor is read from, through the stage that it is computed by, if any."""
    from tvm.ir import TensorLoad

    if stage is None:
        return _Load(load.source, [*load.indices])
    block = match.schedule.get(stage)
    if known := read_packed(block, [*match.schedule.mod["main"].params]):
        packed, order = known
        return _Load(packed.tensor, [load.indices[dim] for dim in order], packed=packed)
    condition, inner = _read_padding(getattr(block.body, "value", None))
    if not isinstance(inner, TensorLoad):
        return None
    if not all(i.same_as(v.var) for i, v in zip(block.body.indices, block.iter_vars, strict=True)):
        return None
    at = [(v.var, i) for v, i in zip(block.iter_vars, load.indices, strict=True)]
    conditions = [] if condition is None else rewrite.conjuncts(condition)
    index = [rewrite.substitute(i, at) for i in inner.indices]
    return _Load(inner.source, index, [rewrite.substitute(c, at) for c in conditions])


def _read_padding(value: Any) -> tuple[Any, Any]:
    """The condition of a value that is else zero, and the value where it holds."""
    from tvm.ir import Call, Op

    if not isinstance(value, Call) or not isinstance(value.op, Op):
        return None, value
    if str(value.op.name) != tvm_compat.IF_THEN_ELSE:
        return None, None
    condition, inner, other = value.args
    return (condition, inner) if getattr(other, "value", None) == 0 else (None, None)


def _find_groups(
    extents: Sequence[Any], indexes: Sequence[Sequence[Any]], numbers: Mapping[Any, int]
) -> tuple[int, int] | None:
    """The axis whose groups an operand is indexed by, with the size of one."""
    for axis, extent in enumerate(map(tvm_compat.as_int, extents)):
        for index in indexes:
            size = quotient_of(index, dict(numbers), axis)
            if size is not None and extent is not None and 1 < size < extent and not extent % size:
                return axis, size
    return None


def _like(variable: Any, name: str) -> Any:
    """A new variable of the type of another."""
    from tvm.tirx import Var

    return Var(name, variable.ty)


def _read(known: _Known, load: _Load, look_up: LookUp | None) -> Window | None:
    """A tensor's window; None where an index is no sum of steps, or a condition is another than
    that an index lies in the tensor."""
    from tvm import tirx

    simplify = known.analyzer.simplify
    exact = [simplify(rewrite.substitute(i, known.values)) for i in load.index]
    guarded = set()
    for condition in load.conditions:
        left = _left(condition)
        if left is None:
            return None
        left = rewrite.substitute(left, known.values)
        for dim, (i, size) in enumerate(zip(exact, load.source.shape, strict=True)):
            if any(tvm_compat.as_int(simplify(left - room)) == 0 for room in (i, size - 1 - i)):
                guarded.add(dim)
                break
        else:
            return None
    found = []
    variables = {number: variable for variable, number in known.numbers.items()}
    for dim, i in enumerate(exact):
        if look_up is not None and look_up.dim == dim:
            found.append(WindowIndex(((look_up.axis, 1),)))
            continue
        read = read_index(i, dict(known.numbers), known.fixed)
        again = sum((variables[a] * s for a, s in read.steps.items()), tirx.const(0, "int64"))
        apart = simplify(rewrite.cast("int64", i) - again - read.constant)
        if read.tangled or tvm_compat.as_int(apart) != 0:
            return None
        steps = tuple(sorted(read.steps.items()))
        found.append(WindowIndex(steps, read.constant, dim in guarded))
    return tuple(found)


def _left(condition: Any) -> Any:
    """What is not below zero where a comparison holds; None for other conditions."""
    from tvm import tirx

    if isinstance(condition, tirx.GE | tirx.GT):
        high, low = condition.a, condition.b
    elif isinstance(condition, tirx.LE | tirx.LT):
        high, low = condition.b, condition.a
    else:
        return None
    return high - low - int(isinstance(condition, tirx.LT | tirx.GT))
