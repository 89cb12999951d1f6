"""The tensor program of an attention: a block for each of its steps.

Weights are rounded to the type of the values before they multiply these, as kernels for tensor
cores do, PyTorch's own on GPUs among them (Dao, "FlashAttention-2", arXiv 2307.08691, 3.1).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from spaces.ir import rewrite, tvm_compat
from spaces.lowering.attention.description import SUMS, Attention, Axis, Load

STEPS = ("product", "score", "largest", "power", "sum", "weight", "total", "result")
"""Names of the blocks."""
_OPAQUE = 8
"""TVM's number of programs that are fused with no other (`OpPatternKind`)."""


def write_attention(attention: Attention, parameters: Sequence[Any]) -> Any:
    """The PrimFunc of an attention.

    Args:
        parameters: the tensors that it reads and, last, the one that it writes.
    """
    from tvm.script.ir_builder import IRBuilder
    from tvm.tirx.script import builder

    with IRBuilder() as build, builder.prim_func(s_tir=True):
        builder.func_name("main")
        builder.func_attr({"op_pattern": _OPAQUE})
        for tensor in parameters:
            builder.arg(tensor.name, tensor)
        with builder.sblock("root"):
            _Writer(builder).write(attention)
    # A graph names its programs itself.
    return build.get().without_attr(tvm_compat.GLOBAL_SYMBOL)


class _Writer:
    """Writes blocks with a builder of TVM's."""

    def __init__(self, T: Any) -> None:
        self._t = T

    def write(self, a: Attention) -> None:
        """Write a block for each step."""
        T = self._t
        rows, scored = (*a.batch, a.rows), (*a.batch, a.rows, a.keys)
        found = (*rows, a.columns)
        product = self._allocate(scored, str(a.product.ty.dtype))
        score, power = (self._allocate(scored, SUMS) for _ in range(2))
        largest, total_power = (self._allocate(rows, SUMS) for _ in range(2))
        weight = self._allocate(scored, str(a.value.tensor.dtype))
        total = self._allocate(found, str(a.total.ty.dtype))
        lowest, zero = T.float32(float("-inf")), T.float32(0)
        base, share = read(largest), read(power) / read(total_power)
        if a.is_safe:
            base = T.Select(base.equal(lowest), zero, base)
            share = T.Select(read(total_power).equal(zero), zero, share)
        self._add_up("product", product, scored, a.width, (a.query, a.key))
        of_product = rewrite.substitute(a.score, [(a.product, read(product))])
        self._store("score", score, scored, of_product)
        self._reduce("largest", largest, rows, a.keys, lowest, T.max(read(largest), read(score)))
        self._store("power", power, scored, T.exp(read(score) - base))
        added = read(total_power) + read(power)
        self._reduce("sum", total_power, rows, a.keys, zero, added)
        self._store("weight", weight, scored, T.Cast(str(a.value.tensor.dtype), share))
        self._add_up("total", total, found, a.keys, (weight, a.value))
        of_total = rewrite.substitute(a.result, [(a.total, read(total))])
        self._store("result", a.place, found, of_total)

    def _allocate(self, axes: Sequence[Axis], kind: str) -> Load:
        """A tensor with a place for each value of some axes."""
        tensor = self._t.sblock_alloc_buffer([axis.extent for axis in axes], kind)
        return Load(tensor, tuple(axis.var for axis in axes))

    def _add_up(
        self, name: str, to: Load, axes: Sequence[Axis], terms: Axis, factors: tuple[Load, Load]
    ) -> None:
        """Sums of products, in the type of what they are stored to."""
        kind = str(to.tensor.dtype)
        first, second = (rewrite.cast(kind, read(factor)) for factor in factors)
        zero = rewrite.cast(kind, self._t.float32(0))
        self._reduce(name, to, axes, terms, zero, read(to) + first * second)

    def _reduce(
        self, name: str, to: Load, axes: Sequence[Axis], terms: Axis, first: Any, value: Any
    ) -> None:
        self._store(name, to, axes, value, terms=(terms,), first=first)

    def _store(
        self,
        name: str,
        to: Load,
        axes: Sequence[Axis],
        value: Any,
        *,
        terms: Sequence[Axis] = (),
        first: Any = None,
    ) -> None:
        """A block that stores an element for each value of some axes, over some terms."""
        T, every = self._t, [*axes, *terms]
        with T.grid(*(axis.extent for axis in every)) as loops, T.sblock(name):
            kinds = "S" * len(axes) + "R" * len(terms)
            places = T.axis.remap(kinds, [*loops] if len(every) > 1 else [loops])
            places = [*places] if len(every) > 1 else [places]
            values = [(axis.var, place) for axis, place in zip(every, places, strict=True)]
            indices = [rewrite.substitute(index, values) for index in to.indices]
            if first is not None:
                with T.init():
                    T.buffer_store(to.tensor, first, indices)
            T.buffer_store(to.tensor, rewrite.substitute(value, values), indices)


def read(load: Load) -> Any:
    """An element as an expression."""
    return load.tensor[tuple(load.indices)]
