"""Conversions between element types.

Numbers out of an integer type's range, and what is no number, become what they do in onnxruntime,
as ONNX leaves it open. Floats of 8 bits are read by a table and written bit by bit: TVM's own
conversions neither round nor saturate.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from spaces.ir import byte_floats
from spaces.ir.byte_floats import word, write_code
from spaces.ir.element_types import NUMPY_FLOATS, is_float, numpy_dtype

_SHIFTS = {"int4": 4, "int2": 6}
"""Bits of a byte that a signed type of fewer bits leaves out."""
_MASKS = {"uint4": 15, "uint2": 3}
_QUARTERS = (0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0)
"""Between which two numbers of 4 bits a float is rounded up: 0, 0.5, 1, 1.5, 2, 3, 4, 6."""


_SCALE = "float8_e8m0fnu"
BYTE_FLOATS = (*byte_floats.BYTE_FLOATS, _SCALE)
"""Floats of 8 bits. TVM's passes would convert what is in them between two parts of a program."""
KEPT_IN = {
    "int4": "int8",
    "int2": "int8",
    "uint4": "uint8",
    "uint2": "uint8",
    "float4_e2m1fn": "float32",
    **dict.fromkeys(BYTE_FLOATS, "uint8"),
}
"""Types that TVM has no programs for, and those that they are kept in within a graph; floats of 8
bits as their codes."""
PLAIN = (
    *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *(*NUMPY_FLOATS, "bfloat16"),
)
"""Other types that are converted from and to."""


def convert_to(
    builder: Any,
    x: Any,
    dtype: str,
    source: str = "",
    *,
    saturate: bool = True,
    round_mode: str = "up",
) -> Any:
    """A tensor in another type, emitted.

    Args:
        dtype: one of `PLAIN` or of `KEPT_IN`.
        source: the tensor's type, where it is kept in another one.
        saturate: whether what is too large for a float of 8 bits becomes the largest number.
        round_mode: of scales (e8m0): `up`, `down` or `nearest`.
    """
    from tvm import relax

    source = source or str(x.ty.dtype)
    if source == dtype:
        return x
    if source in BYTE_FLOATS:
        x, source = _read(builder, x, source), "float32"
    elif source in KEPT_IN:
        source = KEPT_IN[source]
    if source == dtype:
        return x
    if dtype == "bool":
        zero = builder.emit(relax.op.equal(x, relax.const(0, source)))  # `!=` is false of NaN
        return builder.emit(relax.op.logical_not(zero))
    if dtype in BYTE_FLOATS:
        real = builder.emit(relax.op.astype(x, "float32"))
        return _write(builder, real, dtype, saturate, round_mode)
    if dtype in KEPT_IN:
        return _narrow(builder, convert_to(builder, x, KEPT_IN[dtype]), dtype)
    if is_float(source) and not is_float(dtype):
        return _whole(builder, x, source, dtype)
    if dtype == "bfloat16":
        return _shorten(builder, convert_to(builder, x, "float32"))
    return builder.emit(relax.op.astype(x, dtype))


def _read(builder: Any, codes: Any, source: str) -> Any:
    from tvm import relax

    numbers = np.arange(256, dtype="uint8").view(numpy_dtype(source)).astype("float32")
    places = builder.emit(relax.op.astype(codes, "int32"))
    return builder.emit(relax.op.take(relax.const(numbers), places, axis=0))


def _write(builder: Any, x: Any, dtype: str, saturate: bool, round_mode: str) -> Any:
    from tvm import te, tirx

    def code(number: Any) -> Any:
        bits = tirx.reinterpret("uint32", number)
        if dtype == _SCALE:
            return _scale_code(bits, saturate, round_mode)
        return write_code(bits, byte_floats.BYTE_FLOATS[dtype], saturate=saturate)

    def compute(tensor: Any) -> Any:
        return te.compute(
            tensor.shape,
            lambda *place: code(tensor[place]).astype("uint8"),
            name="compute",
        )

    return builder.emit_te(compute, x, primfunc_name_hint="converted")


def _scale_code(bits: Any, saturate: bool, round_mode: str) -> Any:
    """The exponent alone; no sign."""
    from tvm import tirx

    exponent = (bits >> word(23)) & word(0xFF)
    rest = bits & word(0x7FFFFF)
    if round_mode == "up":
        up = rest > word(0)
    elif round_mode == "nearest":
        tie = tirx.all(rest == word(0x400000), exponent > word(0))
        up = tirx.any(rest > word(0x400000), tie)
    else:
        up = tirx.const(False, "bool")
    last = word(0xFE if saturate else 0xFF)
    return tirx.Select(tirx.all(up, exponent < last), exponent + word(1), exponent)


def _shorten(builder: Any, x: Any) -> Any:
    """Floats of 32 bits in the upper 16; TVM's own conversion loses what is no number."""
    from tvm import te, tirx

    def half(number: Any) -> Any:
        bits = tirx.reinterpret("uint32", number)
        odd = (bits >> word(16)) & word(1)
        code = (bits + word(0x7FFF) + odd) >> word(16)
        code = tirx.Select((bits & word(0x7FFFFFFF)) > word(0x7F800000), word(0x7FC0), code)
        return tirx.reinterpret("bfloat16", code.astype("uint16"))

    def compute(tensor: Any) -> Any:
        return te.compute(tensor.shape, lambda *place: half(tensor[place]), name="compute")

    return builder.emit_te(compute, x, primfunc_name_hint="converted")


def _narrow(builder: Any, x: Any, dtype: str) -> Any:
    """Bytes that hold numbers of fewer bits, which wrap around; of floats, the nearest of each."""
    from tvm import relax

    emit = builder.emit
    if dtype in _MASKS:
        return emit(relax.op.bitwise_and(x, relax.const(_MASKS[dtype], "uint8")))
    if dtype in _SHIFTS:
        by = relax.const(_SHIFTS[dtype], "int8")
        return emit(relax.op.right_shift(emit(relax.op.left_shift(x, by)), by))
    return _of_four_bits(builder, x)


def _of_four_bits(builder: Any, x: Any) -> Any:
    from tvm import te, tirx

    def nearest(number: Any) -> Any:
        size = tirx.Select(number < 0, -number, number)
        found = tirx.const(0, "float32")
        grid = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
        for place, edge in enumerate(_QUARTERS):  # ties go to the even code
            bound = tirx.const(edge, "float32")
            above = size >= bound if place % 2 else size > bound
            found = tirx.Select(above, tirx.const(grid[place + 1], "float32"), found)
        return tirx.Select(number < 0, -found, found)

    def compute(tensor: Any) -> Any:
        return te.compute(tensor.shape, lambda *place: nearest(tensor[place]), name="compute")

    return builder.emit_te(compute, x, primfunc_name_hint="converted")


def _whole(builder: Any, x: Any, source: str, dtype: str) -> Any:
    """Floats as integers: cut off, and wrapped around where a type is narrower than the words that
    CPUs convert to."""
    from tvm import relax

    emit = builder.emit
    if source not in ("float32", "float64"):
        x = emit(relax.op.astype(x, "float32"))
    real = str(x.ty.dtype)
    bits = 8 * numpy_dtype(dtype).itemsize
    if bits < 32 or dtype in ("int32", "int64"):
        word = "int64" if bits == 64 else "int32"
        found = _word_of(builder, x, real, word)
        return found if word == dtype else emit(relax.op.astype(found, dtype))
    if dtype == "uint32" and source == "float16":
        return emit(relax.op.astype(_word_of(builder, x, real, "int64"), dtype))
    word, half = f"int{bits}", relax.const(2.0 ** (bits - 1), real)
    large = emit(relax.op.greater_equal(x, half))
    less = emit(relax.op.where(large, emit(relax.op.subtract(x, half)), x))
    low = _word_of(builder, less, real, word)
    sign = relax.const(np.array(-(2 ** (bits - 1)), word), word)
    flipped = emit(relax.op.bitwise_xor(low, sign))
    return emit(relax.op.astype(emit(relax.op.where(large, flipped, low)), dtype))


def _word_of(builder: Any, x: Any, real: str, word: str) -> Any:
    """A signed word; the least one for what it cannot hold."""
    from tvm import relax

    emit, edge = builder.emit, 2.0 ** (int(word[3:]) - 1)
    above = emit(relax.op.greater_equal(x, relax.const(-edge, real)))
    below = emit(relax.op.less(x, relax.const(edge, real)))
    least = relax.const(np.array(-(2 ** (int(word[3:]) - 1)), word), word)
    within = emit(relax.op.logical_and(above, below))
    return emit(relax.op.where(within, emit(relax.op.astype(x, word)), least))
