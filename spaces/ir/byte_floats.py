"""Floats of 8 bits, written and read bit by bit.

TVM 0.27's own conversions on CPUs neither round, nor saturate, nor know zero: the code 0 of an e4m3
becomes 2**-7.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from spaces.ir import rewrite, tvm_compat


@dataclass(frozen=True, slots=True)
class ByteFloat:
    """How a float of 8 bits is written.

    Attributes:
        mantissa: bits of it.
        bias: of its exponent.
        most: code of its largest number.
        beyond: code of what is larger.
        none: code of what is no number.
        signed_zero: whether it has one.
    """

    mantissa: int
    bias: int
    most: int
    beyond: int
    none: int
    signed_zero: bool = True


BYTE_FLOATS = {
    "float8_e4m3fn": ByteFloat(3, 7, 0x7E, 0x7F, 0x7F),
    "float8_e4m3fnuz": ByteFloat(3, 8, 0x7F, 0x80, 0x80, signed_zero=False),
    "float8_e5m2": ByteFloat(2, 15, 0x7B, 0x7C, 0x7E),
    "float8_e5m2fnuz": ByteFloat(2, 16, 0x7F, 0x80, 0x80, signed_zero=False),
}
"""Types of programs and of graphs."""
SATURATING = ("float8_e4m3fn", "float8_e5m2")
"""Those of tensor programs: what is too large for them becomes the largest number, infinity too, as
CUDA's types have it (CUDA Math API, "FP8 Intrinsics", `__NV_SATFINITE`)."""


def write_code(bits: Any, kind: ByteFloat, *, saturate: bool = True) -> Any:
    """The code of a float, as a word of 32 bits: rounded to the nearest, ties to even.

    Args:
        bits: of the float32, a word.
        saturate: whether what is too large becomes the largest number, as by NVIDIA's conversions
            (PTX ISA, "cvt", `.satfinite`).
    """
    from tvm import tirx

    size = bits & word(0x7FFFFFFF)
    sign = (bits >> word(24)) & word(0x80)
    cut = 23 - kind.mantissa
    odd = (size >> word(cut)) & word(1)
    rounded = (size + word((1 << (cut - 1)) - 1) + odd) >> word(cut)
    normal = rounded - word((127 - kind.bias) << kind.mantissa)
    # Below the smallest normal number a code is a number of steps.
    first = tirx.const(2.0 ** (1 - kind.bias), "float32")
    bounded = tirx.min(tirx.reinterpret("float32", size), first)
    steps = tirx.const(2.0 ** (kind.bias - 1 + kind.mantissa), "float32")
    low = tirx.nearbyint(bounded * steps).astype("uint32")
    code = tirx.Select(size < word((128 - kind.bias) << 23), low, normal)
    code = tirx.Select(code > word(kind.most), word(kind.most if saturate else kind.beyond), code)
    if not kind.signed_zero:
        sign = tirx.Select(code == word(0), word(0), sign)
    return tirx.Select(size > word(0x7F800000), word(kind.none), code | sign)


def word(number: int) -> Any:
    """A constant of 32 bits."""
    from tvm import tirx

    return tirx.const(number, "uint32")


def with_exact_conversions(function: Any) -> Any:
    """A PrimFunc whose conversions from and to floats of 8 bits are exact, and saturate.

    Those in which a float of 8 bits is computed with are left to TVM: programs widen them first.
    """
    from tvm import tirx
    from tvm_ffi import structural_mutate

    if not _holds(function):
        return function

    def convert(node: Any, mutator: Any) -> Any:
        source, kind = str(node.value.ty.dtype), str(node.ty.dtype)
        if source == kind or not {source, kind} & {*SATURATING}:
            return mutator.default_mutate(node)
        value = mutator.mutate(node.value)
        real = _read(value, source) if source in SATURATING else rewrite.cast("float32", value)
        return _write(real, kind) if kind in SATURATING else rewrite.cast(kind, real)

    return function.with_body(structural_mutate(function.body, [(tirx.Cast, convert)]))


def _holds(function: Any) -> bool:
    """Whether a PrimFunc has tensors of such a type."""
    inner = (b for block in tvm_compat.sblocks(function) for b in block.alloc_buffers)
    tensors = [p for p in function.params if tvm_compat.param_dims(p) is not None]
    return any(tvm_compat.param_dtype(tensor) in SATURATING for tensor in (*tensors, *inner))


def _read(value: Any, kind: str) -> Any:
    """An element as a float32."""
    from tvm import tirx

    form = BYTE_FLOATS[kind]
    code = tirx.reinterpret("uint8", value).astype("uint32")
    size, sign = code & word(0x7F), (code & word(0x80)) << word(24)
    # Below the smallest normal number a code is a number of steps.
    step = tirx.const(2.0 ** (1 - form.bias - form.mantissa), "float32")
    low = tirx.reinterpret("uint32", size.astype("float32") * step)
    normal = (size << word(23 - form.mantissa)) + word((127 - form.bias) << 23)
    bits = tirx.Select(size < word(1 << form.mantissa), low, normal)
    if form.beyond != form.none:
        bits = tirx.Select(size == word(form.beyond), word(0x7F800000), bits)
        bits = tirx.Select(size > word(form.beyond), word(0x7FC00000), bits)
    else:
        bits = tirx.Select(size == word(form.none), word(0x7FC00000), bits)
    return tirx.reinterpret("float32", bits | sign)


def _write(real: Any, kind: str) -> Any:
    """A float32 as an element."""
    from tvm import tirx

    code = write_code(tirx.reinterpret("uint32", real), BYTE_FLOATS[kind])
    return tirx.reinterpret(kind, code.astype("uint8"))
