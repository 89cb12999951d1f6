"""The blocks of a tensor program: the axes they run over, and how they walk through memory."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from spaces.ir import tvm_compat
from spaces.ir.affine import read_index
from spaces.ir.symbolic import NO_VALUES, is_symbolic, value_of

_PURE_FAMILIES = ("tirx", "prim")
# Calls that cost no more than an addition.
_LIGHT_CALLS = ("if_then_else", "reinterpret", "likely", "fabs")


_SHORT = 8
_MOST_REUSE, _MOST_TAPS = 4, 64
"""A sum of products that uses each element more often than this is bound by arithmetic, on a CPU
and on a GPU."""


@dataclass(frozen=True, slots=True)
class Axis:
    """An axis of a block.

    Attributes:
        extent: number of steps; of a symbolic axis, those in the shape that is estimated.
        reduced: whether it is a reduction axis.
        symbolic: whether the extent is known only when the program runs.
    """

    extent: int
    reduced: bool
    symbolic: bool = False

    @property
    def single(self) -> bool:
        """Whether it has one step, whatever the shape."""
        return self.extent == 1 and not self.symbolic


@dataclass(frozen=True, slots=True)
class Access:
    """One place in a block that reads or writes a tensor.

    Attributes:
        buffer: identifies the tensor within its program.
        elements: elements of the whole tensor, of `bits` each.
        steps: for each axis of the block its stride in elements; None where that is not constant.
        dims: for each dimension of the tensor the one axis that is its index; -1 where the index
            is constant, None where it is anything else.
    """

    buffer: int
    elements: int
    bits: int
    steps: tuple[int | None, ...]
    dims: tuple[int | None, ...]


@dataclass(frozen=True, slots=True)
class Stage:
    """One block.

    Attributes:
        guarded: axes that a condition in its body depends on.
        valued: axes that it computes with, other than in conditions and indices.
        heavy: number of its operations that take much longer than an addition.
        output: whether it writes a parameter of the program.
    """

    axes: tuple[Axis, ...]
    writes: tuple[Access, ...]
    reads: tuple[Access, ...]
    guarded: frozenset[int]
    valued: frozenset[int]
    heavy: int
    output: bool

    @property
    def reduces(self) -> bool:
        """Whether it has a reduction axis."""
        return any(axis.reduced for axis in self.axes)

    @property
    def points(self) -> int:
        """The number of times that its body runs."""
        return math.prod(axis.extent for axis in self.axes)

    def contiguous(self) -> int | None:
        """The axis along which it walks through memory one element at a time.

        For a reduction that of the largest tensor it reads; otherwise that of the tensor it writes.
        None where there is no such axis.
        """
        if self.reduces:
            reads = sorted(self.reads, key=lambda access: -access.elements)
            found = self._fastest(reads)
            if found is not None and (not self.axes[found].reduced or self._long(found)):
                return found
        return self._fastest(self.writes)

    def _fastest(self, accesses: Sequence[Access]) -> int | None:
        for access in accesses:
            for number, axis in enumerate(self.axes):
                if access.steps[number] == 1 and not axis.single:
                    return number
        return None

    def _long(self, axis: int) -> bool:
        """Whether an axis, with those that can be fused with it, fills a vector."""
        steps = self.axes[axis].extent
        if self.axes[axis].symbolic:
            return True
        for outer in range(axis - 1, -1, -1):
            if not self.axes[outer].single and not self.follows(outer, axis):
                break
            steps *= self.axes[outer].extent
        return steps >= _SHORT

    def vectors_along(self, axis: int | None) -> bool:
        """Whether TVM can vectorize it along an axis."""
        if axis is None or axis in self.valued:
            return False
        return all(access.steps[axis] is not None for access in (*self.writes, *self.reads))

    def follows(self, outer: int, inner: int) -> bool:
        """Whether two axes can be fused, `inner` the faster one, in all tensors it accesses."""
        if self.guarded & {outer, inner} or self.axes[outer].reduced != self.axes[inner].reduced:
            return False
        extent = self.axes[inner].extent
        for access in (*self.writes, *self.reads):
            near, far = access.steps[inner], access.steps[outer]
            if near is None or far is None or far != near * extent:
                return False
        return True


def is_contraction(stage: Stage) -> bool:
    """Whether a stage is a sum of products that is bound by arithmetic."""
    sizes = {read.buffer: read.elements for read in stage.reads}
    return stage.reduces and len(sizes) > 1 and stage.points > _MOST_REUSE * sum(sizes.values())


def has_own_windows(stage: Stage) -> bool:
    """Whether each result sums over a window of its own of the largest tensor, as those of a
    convolution with a filter for each channel, so short that memory of a GPU bounds it."""
    largest = max(stage.reads, key=lambda read: read.elements)
    own = [n for n, axis in enumerate(stage.axes) if not (axis.reduced or axis.single)]
    is_short = stage.points <= _MOST_TAPS * largest.elements
    return is_short and all(largest.steps[n] != 0 for n in own)


def stages_of(
    schedule: Any, values: Mapping[str, int] = NO_VALUES, buffers: list[Any] | None = None
) -> list[Stage] | None:
    """The blocks under the root of a schedule, in order.

    None where a block is not a plain loop nest of known extents with one store for each tensor.

    Args:
        values: sizes of symbolic dimensions in the shape that is estimated.
        buffers: the tensors met are added to it, in the order of their numbers.
    """
    parameters = list(schedule.mod["main"].params)
    buffers = [] if buffers is None else buffers
    found = []
    for block in tvm_compat.stage_blocks(schedule):
        stage = stage_of(schedule.get(block), parameters, buffers, values)
        if stage is None:
            return None
        found.append(stage)
    return found


def stage_of(
    block: Any,
    parameters: list[Any],
    buffers: list[Any],
    values: Mapping[str, int] = NO_VALUES,
) -> Stage | None:
    """The stage of a block, None where it is not plain; adds new tensors to `buffers`."""
    extents = [value_of(axis.dom.extent, values) for axis in block.iter_vars]
    kinds = [int(axis.iter_type) for axis in block.iter_vars]
    if None in extents or set(kinds) - {tvm_compat.SPATIAL, tvm_compat.REDUCED} or 0 in extents:
        return None
    axes = tuple(
        Axis(int(extent or 0), kind == tvm_compat.REDUCED, is_symbolic(axis.dom.extent))
        for axis, extent, kind in zip(block.iter_vars, extents, kinds, strict=True)
    )
    body = _Body(block, axes, buffers, values)
    if not body.plain:
        return None
    return Stage(
        axes=axes,
        writes=tuple(body.writes),
        reads=tuple(body.reads),
        guarded=frozenset(body.guarded),
        valued=frozenset(body.valued),
        heavy=body.heavy,
        output=any(any(w.source.same_as(p) for p in parameters) for w in block.writes),
    )


class _Body:
    """Facts about the body of a block, gathered by walking through it."""

    def __init__(
        self,
        block: Any,
        axes: tuple[Axis, ...],
        buffers: list[Any],
        values: Mapping[str, int],
    ) -> None:
        from tvm.sym import Analyzer

        self._axes = axes
        self._numbers = {axis.var: n for n, axis in enumerate(block.iter_vars)}
        self._fixed = frozenset(n for n, axis in enumerate(axes) if axis.single)
        self._buffers = buffers
        self._values = values
        self._analyzer = Analyzer()
        for axis, known in zip(block.iter_vars, axes, strict=True):
            self._analyzer.bind(axis.var, _range(axis.dom, known))
        self._bind_symbols(block.body)
        written = [region.source for region in block.writes]
        self.writes: list[Access] = []
        self.reads: list[Access] = []
        self.guarded: set[int] = set()
        self.valued: set[int] = set()
        self.heavy = 0
        self.plain = not block.match_buffers and not block.alloc_buffers
        self._own = written
        self._walk(block.body)
        self.plain = self.plain and len(self.writes) == len(written) > 0

    def _walk(self, body: Any) -> None:
        import tvm
        import tvm_ffi

        visits = [
            (tvm.tirx.BufferStore, self._store),
            (tvm.ir.TensorLoad, self._load),
            (tvm.ir.Call, self._call),
            (tvm.tirx.Select, lambda node: self._guard(node.condition)),
            (tvm.tirx.Div, self._count_heavy),
            ((tvm.tirx.For, tvm.tirx.IfThenElse, tvm.s_tir.SBlock), self._odd),
        ]
        tvm_ffi.structural_walk(body, visits)
        tvm_ffi.structural_visit(
            body,
            [
                (tvm.ir.TensorLoad, lambda _node, _visitor: None),
                (tvm.tirx.BufferStore, lambda node, visitor: visitor.visit(node.value)),
                (tvm.ir.Call, self._visit_call),
                (tvm.ir.Var, lambda node, _visitor: self.valued.update(self._used(node))),
            ],
        )

    def _bind_symbols(self, body: Any) -> None:
        """Bind symbolic dimensions in indices to their sizes in this shape."""
        import tvm
        import tvm_ffi

        bound: list[Any] = []

        def look(var: Any) -> None:
            if not isinstance(var.ty, tvm.ir.PrimType):
                return  # a tensor may have the name of a dimension
            value = self._values.get(str(var.name))
            if value is None or var in self._numbers or any(var.same_as(b) for b in bound):
                return
            bound.append(var)
            self._analyzer.bind(var, tvm.tirx.const(value, str(var.ty.dtype)))

        if self._values:
            tvm_ffi.structural_walk(body, (tvm.ir.Var, look))

    def _visit_call(self, node: Any, visitor: Any) -> None:
        guard = str(getattr(node.op, "name", "")).endswith("if_then_else")
        for argument in list(node.args)[1 if guard else 0 :]:
            visitor.visit(argument)

    def _odd(self, _node: Any) -> None:
        self.plain = False

    def _count_heavy(self, _node: Any) -> None:
        self.heavy += 1

    def _store(self, node: Any) -> None:
        self.writes.append(self._access(node.buffer, node.indices))

    def _load(self, node: Any) -> None:
        if not any(node.source.same_as(own) for own in self._own):
            self.reads.append(self._access(node.source, node.indices))

    def _call(self, node: Any) -> None:
        family, _, name = str(getattr(node.op, "name", "")).partition(".")
        if name == "if_then_else":
            self._guard(node.args[0])
        if family not in _PURE_FAMILIES or "call" in name:
            self.plain = False
        self.heavy += name not in _LIGHT_CALLS

    def _guard(self, condition: Any) -> None:
        self.guarded |= self._used(condition)

    def _used(self, expression: Any) -> set[int]:
        import tvm
        import tvm_ffi

        found: set[int] = set()

        def look(var: Any) -> None:
            number = self._numbers.get(var)
            if number is not None and number not in self._fixed:
                found.add(number)

        tvm_ffi.structural_walk(expression, (tvm.ir.Var, look))
        return found

    def _access(self, buffer: Any, indices: Any) -> Access:
        shape = [value_of(d, self._values) for d in buffer.shape]
        if None in shape:
            self.plain = False
        sizes = [int(d or 1) for d in shape]
        steps: list[int | None] = [0] * len(self._axes)
        dims: list[int | None] = []
        for dim, expression in enumerate(indices):
            simple = self._analyzer.simplify(expression)
            index = read_index(simple, self._numbers, self._fixed)
            pitch = math.prod(sizes[dim + 1 :])
            straight = not index.tangled and self._used(simple) == set(index.steps)
            for number in self._used(simple) | index.uses:
                known = steps[number]
                step = index.steps.get(number) if number not in index.tangled else None
                steps[number] = None if known is None or step is None else known + step * pitch
            dims.append(_alone(index.steps, index.constant) if straight else None)
        number = self._number(buffer)
        bits = max(8, tvm_compat.element_bits(tvm_compat.param_dtype(buffer)))
        return Access(number, math.prod(sizes), bits, tuple(steps), tuple(dims))

    def _number(self, buffer: Any) -> int:
        for number, known in enumerate(self._buffers):
            if known.same_as(buffer):
                return number
        self._buffers.append(buffer)
        return len(self._buffers) - 1


def _range(dom: Any, axis: Axis) -> Any:
    """The range of an axis, with the extent that it has in the shape that is estimated."""
    import tvm

    if not axis.symbolic:
        return dom
    kind = str(dom.extent.ty.dtype)
    return tvm.ir.Range.from_min_extent(dom.min, tvm.tirx.const(axis.extent, kind))


def _alone(steps: dict[int, int], constant: int) -> int | None:
    """The axis that an index consists of; -1 where it is constant, None where it is neither."""
    if not steps:
        return -1
    (axis, step), *more = steps.items()
    return axis if not more and step == 1 and constant == 0 else None
