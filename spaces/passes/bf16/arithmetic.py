"""Arithmetic of bfloat16 in float32, written out.

TVM 0.27 makes float32 of bfloat16 late. It passes over what the value of a `Let` reads, whose bits
then are taken for integers; and it repeats what is stored three times, `Let` and all, which it
refuses to vectorise. Here programs in which there is a `Let` read bits, compute in float32, and
round what they store to the nearest, ties to even. Tensors that they allocate hold bits.
"""

from __future__ import annotations

from typing import Any

from spaces.ir import rewrite
from spaces.passes.bf16.tensors import (
    BF16,
    BITS,
    bits_of,
    is_reinterpreted,
    list_allocated,
    with_bits,
)

_WIDE, _WORD = "float32", "uint32"
_SHIFT, _HALF = 16, 0x7FFF
_OF_TWO = ("Add", "Sub", "Mul", "Div", "Min", "Max", "EQ", "NE", "LT", "LE", "GT", "GE")


def with_wide_arithmetic(function: Any) -> Any:
    """A PrimFunc for a CPU that computes the same, without arithmetic of bfloat16; the same one
    where it has no `Let`, or nothing of bfloat16."""
    from tvm import ir, tirx
    from tvm_ffi import structural_mutate, structural_walk

    lets: list[Any] = []
    narrow: list[Any] = []

    def load(node: Any) -> None:
        narrow.extend([node] if _is_narrow(node) else ())

    structural_walk(function.body, [(tirx.Let, lets.append), (ir.TensorLoad, load)])
    if not lets or not narrow:
        return function
    kinds = [
        *((getattr(tirx, name), _join) for name in _OF_TWO),
        (ir.TensorLoad, _read),
        (tirx.FloatImm, _widen),
        (tirx.Cast, _cast),
        (tirx.Select, _select),
        (ir.Call, _call),
        (tirx.BufferStore, _store),
    ]
    function = function.with_body(structural_mutate(function.body, kinds))
    return with_bits(function, list_allocated(function)[0])


def _is_narrow(value: Any) -> bool:
    return str(value.ty.dtype) == BF16


def _join(node: Any, mutator: Any) -> Any:
    if not _is_narrow(node.a):
        return mutator.default_mutate(node)
    return type(node)(mutator.mutate(node.a), mutator.mutate(node.b))


def _read(node: Any, mutator: Any) -> Any:
    from tvm import tirx

    load = mutator.default_mutate(node)
    if not _is_narrow(node):
        return load
    return _read_bits(tirx.reinterpret(BITS, load))


def _read_bits(bits: Any) -> Any:
    """A bfloat16 as a float32."""
    from tvm import tirx

    word = rewrite.cast(_WORD, bits)
    return tirx.reinterpret(_WIDE, word << rewrite.constant(_SHIFT, word))


def _widen(node: Any, _mutator: Any) -> Any:
    from tvm import tirx

    return tirx.const(float(node.value), _WIDE) if _is_narrow(node) else node


def _cast(node: Any, mutator: Any) -> Any:
    kind = _WIDE if _is_narrow(node) else str(node.ty.dtype)
    return rewrite.cast(kind, mutator.mutate(node.value))


def _select(node: Any, mutator: Any) -> Any:
    if not _is_narrow(node):
        return mutator.default_mutate(node)
    return type(node)(*map(mutator.mutate, (node.condition, node.true_value, node.false_value)))


def _call(node: Any, mutator: Any) -> Any:
    from tvm import ir

    if is_reinterpreted(node) and _is_narrow(node.args[0]):
        return node
    if not hasattr(node.ty, "dtype") or not _is_narrow(node):
        return mutator.default_mutate(node)
    arguments = [mutator.mutate(argument) for argument in node.args]
    if not is_reinterpreted(node):
        return ir.Call(node.op, arguments, node.attrs, ret_ty=_WIDE)
    return _read_bits(*arguments)


def _store(node: Any, mutator: Any) -> Any:
    """A store of bits: those of an element that is copied, or those nearest to a float32."""
    from tvm import tirx

    if str(node.buffer.dtype) != BF16:
        return mutator.default_mutate(node)
    bits = bits_of(node.value)
    bits = _round(mutator.mutate(node.value)) if bits is None else mutator.mutate(bits)
    indices = [mutator.mutate(index) for index in node.indices]
    return tirx.BufferStore(node.buffer, tirx.reinterpret(BF16, bits), indices)


def _round(value: Any) -> Any:
    """The bits of the bfloat16 that is nearest to a float32, of two the even one."""
    from tvm import tirx

    word = tirx.Var("bits", _WORD)
    one, half, shift = (rewrite.constant(n, word) for n in (1, _HALF, _SHIFT))
    rounded = (word + ((word >> shift) & one) + half) >> shift
    return rewrite.cast(BITS, tirx.Let(word, tirx.reinterpret(_WORD, value), rounded))
