"""Tensors of bfloat16 within a program, as the bits of their elements.

TVM makes float32 of a tensor of bfloat16 that a program allocates, which takes twice the memory,
and whose elements no instruction for bfloat16 reads.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from spaces.ir import rewrite, tvm_compat

BF16 = "bfloat16"
BITS = "uint16"


def list_allocated(function: Any) -> tuple[list[Any], list[Any]]:
    """The tensors of bfloat16 that a scheduled PrimFunc allocates: those whose elements are copied
    or constant, and those that it computes."""
    import tvm
    import tvm_ffi
    from tvm import tirx

    found: list[Any] = []
    computed: list[Any] = []

    def block(node: Any) -> None:
        found.extend(b for b in node.alloc_buffers if str(b.dtype) == BF16)

    def store(node: Any) -> None:
        if str(node.buffer.dtype) == BF16 and bits_of(node.value) is None:
            computed.append(node.buffer)

    tvm_ffi.structural_walk(function.body, [(tvm.s_tir.SBlock, block), (tirx.BufferStore, store)])
    apart = [rewrite.is_among(tensor, computed) for tensor in found]
    pairs = list(zip(found, apart, strict=True))
    return [t for t, own in pairs if not own], [t for t, own in pairs if own]


def with_bits(function: Any, tensors: Sequence[Any]) -> Any:
    """A scheduled PrimFunc that computes the same, some tensors that it allocates held as bits.

    Args:
        tensors: whose elements are copied or constant.
    """
    import tvm
    from tvm import tirx
    from tvm_ffi import structural_mutate

    made = [(t, tirx.decl_buffer(t.shape, BITS, str(t.name), scope=t.scope())) for t in tensors]

    def of(tensor: Any) -> Any:
        return next((bits for known, bits in made if known.same_as(tensor)), tensor)

    def region(node: Any) -> Any:
        return tirx.BufferRegion(of(node.source), node.region)

    def block(node: Any, mutator: Any) -> Any:
        inside = mutator.default_mutate(node)
        return rewrite.change_block(
            inside,
            reads=[region(r) for r in node.reads],
            writes=[region(r) for r in node.writes],
            buffers=[of(b) for b in node.alloc_buffers],
        )

    def load(node: Any, mutator: Any) -> Any:
        bits = of(node.source)
        if bits.same_as(node.source):
            return mutator.default_mutate(node)
        return tirx.reinterpret(str(node.ty.dtype), tirx.BufferLoad(bits, node.indices))

    def call(node: Any, mutator: Any) -> Any:
        inside = mutator.default_mutate(node)
        if not is_reinterpreted(inside) or not is_reinterpreted(inside.args[0]):
            return inside
        return tirx.reinterpret(str(inside.ty.dtype), inside.args[0].args[0])

    def store(node: Any, mutator: Any) -> Any:
        bits = of(node.buffer)
        if bits.same_as(node.buffer):
            return mutator.default_mutate(node)
        return tirx.BufferStore(bits, mutator.mutate(bits_of(node.value)), node.indices)

    kinds = [(tvm.s_tir.SBlock, block), (tvm.ir.TensorLoad, load), (tvm.ir.Call, call),
             (tirx.BufferStore, store)]  # fmt: skip
    return function.with_body(structural_mutate(function.body, kinds))


def bits_of(value: Any) -> Any:
    """The bits of an element that is copied, constant or made of bits, or of a choice among such;
    None of one that is computed."""
    import numpy as np
    from tvm import ir, tirx

    from spaces.ir.element_types import numpy_dtype

    if isinstance(value, tirx.FloatImm):
        bits = np.array(value.value).astype(numpy_dtype(BF16)).view(BITS)
        return tirx.const(int(bits), BITS)
    if is_reinterpreted(value):
        return value.args[0]
    if isinstance(value, ir.TensorLoad):
        return tirx.reinterpret(BITS, value)
    if isinstance(value, tirx.Select):
        chosen = [bits_of(side) for side in (value.true_value, value.false_value)]
        return None if any(c is None for c in chosen) else tirx.Select(value.condition, *chosen)
    if isinstance(value, ir.Call) and tvm_compat.operator_name(value) == tvm_compat.IF_THEN_ELSE:
        chosen = [bits_of(side) for side in value.args[1:]]
        return None if any(c is None for c in chosen) else tirx.if_then_else(value.args[0], *chosen)
    return None


def is_reinterpreted(value: Any) -> bool:
    """Whether an expression is the bits of another."""
    from tvm import ir

    return isinstance(value, ir.Call) and tvm_compat.operator_name(value) == "tirx.reinterpret"
