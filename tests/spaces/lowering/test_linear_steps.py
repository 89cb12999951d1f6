"""Numbers as integers and back, and sums of them: on ties, beyond the limits, and of no number."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from spaces.codegen.executable import compile_module, compile_plainly, run_once
from spaces.ir import tvm_compat
from spaces.lowering.lower import lower

pytestmark = pytest.mark.tvm

LLVM = '{"kind":"llvm","num-cores":1}'
Array = np.ndarray[Any, Any]
TIES = np.arange(-600, 600, dtype="float32") / 2
FAR = np.array([np.inf, -np.inf, 1e30, -1e30, 2.0**31, -(2.0**31), 254.5, 255.5], "float32")
ZEROS = {"int8": (0, 5, -128, 127), "uint8": (0, 117, 255), "int16": (0, -9), "uint16": (0, 7)}


def graph(parameters: Sequence[Any], make: Any) -> Any:
    from tvm import relax

    builder = relax.BlockBuilder()
    with builder.function("main", [*parameters]):
        with builder.dataflow():
            made = builder.emit_output(make(builder.emit, *parameters))
        builder.emit_func_output(made)
    return builder.get()


def constants(scale: Any, zero: int, dtype: str) -> tuple[Any, Any]:
    from tvm import relax

    one = np.array(scale, "float32")
    return relax.const(one if one.ndim else one.reshape(1)), relax.const(np.array([zero], dtype))


def rounded(steps: Array, zero: int, dtype: str) -> Array:
    limits = np.iinfo(dtype)
    return np.clip(np.rint(steps) + zero, limits.min, limits.max).astype(dtype)


def ran(lowered: Any, *given: Array) -> list[Array]:
    """The result, whose plain form is the same."""
    found, plain = (run_once(do(lowered, LLVM), given) for do in (compile_module, compile_plainly))
    for one, other in zip(found, plain, strict=True):
        np.testing.assert_array_equal(one, other)
    return list(found)


@pytest.mark.parametrize("dtype", ZEROS)
def test_what_is_quantized_is_rounded_to_even_and_cut_off(dtype: str) -> None:
    from tvm import relax

    def make(emit: Any, x: Any) -> Any:
        made = [(1.0, zero) for zero in ZEROS[dtype]] + [(0.25, ZEROS[dtype][1])]
        quantized = [
            emit(relax.op.quantize(x, *constants(s, z, dtype), axis=0, out_dtype=dtype))
            for s, z in made
        ]
        return relax.Tuple(quantized)

    numbers = np.concatenate([TIES, FAR, [np.float32(np.nan)]])
    x = relax.Var("x", relax.TensorType(numbers.shape, "float32"))
    *found, quarters = ran(lower(graph([x], make), LLVM), numbers)
    for zero, got in zip(ZEROS[dtype], found, strict=True):
        np.testing.assert_array_equal(got[:-1], rounded(numbers[:-1], zero, dtype))
        assert got[-1] == np.iinfo(dtype).min, "what is no number is the least, as in onnxruntime"
    np.testing.assert_array_equal(quarters[:-1], rounded(numbers[:-1] * 4, ZEROS[dtype][1], dtype))


def test_what_stands_for_a_number_is_read_with_the_scale_of_its_place() -> None:
    from tvm import relax

    codes = np.arange(-128, 128, dtype="int8").reshape(2, 128)
    x = relax.Var("x", relax.TensorType(codes.shape, "int8"))
    scales, zeros = np.array([0.5, 3.0], "float32"), np.array([7, -100], "int8")

    def make(emit: Any, x: Any) -> Any:
        each = emit(relax.op.dequantize(x, *map(relax.const, (scales, zeros)), axis=0))
        return relax.Tuple([each, emit(relax.op.dequantize(x, *constants(1.0, 0, "int8")))])

    each, plain = ran(lower(graph([x], make), LLVM), codes)
    wide = codes.astype("int32")
    np.testing.assert_array_equal(each, (wide - zeros[:, None]).astype("float32") * scales[:, None])
    np.testing.assert_array_equal(plain, wide)


SHAPE = (4, 160)


def summed(rounds: Sequence[bool], zeros: Sequence[int], *, reads: bool = False) -> Any:
    """A sum of two terms that stand for bytes, rounded to bytes.

    Args:
        rounds: whether a term is rounded to bytes in the graph.
        zeros: of both terms and of the sum.
        reads: whether the bytes of the first term are a result as well.
    """
    from tvm import relax

    def make(emit: Any, *given: Any) -> Any:
        terms, first = [], None
        for term, does, scale, zero in zip(given, rounds, (0.5, 0.25), zeros, strict=False):
            one = relax.const(np.float32(1.0))
            _, point = constants(1.0, zero, "uint8")
            if does:
                term = emit(relax.op.quantize(term, one, point, axis=-1, out_dtype="uint8"))
                first = term if first is None else first
            terms.append(emit(relax.op.dequantize(term, *constants(scale, zero, "uint8"), axis=1)))
        total = emit(relax.op.add(*terms))
        last = constants(0.5, zeros[2], "uint8")
        result = emit(relax.op.quantize(total, *last, axis=1, out_dtype="uint8"))
        return relax.Tuple([result, first]) if reads else result

    kinds = ["float32" if does else "uint8" for does in rounds]
    given = [relax.Var(f"x{i}", relax.TensorType(SHAPE, kind)) for i, kind in enumerate(kinds)]
    return graph(given, make)


@pytest.mark.parametrize("zeros", [(0, 0, 0), (117, 3, 9)])
@pytest.mark.parametrize("rounds", [(True, False), (False, True), (True, True), (False, False)])
def test_sums_of_bytes_are_those_of_what_is_rounded(
    rounds: tuple[bool, bool], zeros: tuple[int, int, int]
) -> None:
    rng = np.random.default_rng(0)
    given = [
        (rng.integers(-700, 900, SHAPE) / 2).astype("float32")
        if does
        else rng.integers(0, 256, SHAPE).astype("uint8")
        for does in rounds
    ]
    lowered = lower(summed(rounds, zeros), LLVM)
    (found,) = ran(lowered, *given)
    one, other = (
        (rounded(x, z, "uint8") if x.dtype == "float32" else x).astype("float64") - z
        for x, z in zip(given, zeros[:2], strict=True)
    )
    np.testing.assert_array_equal(found, rounded(one + other / 2, zeros[2], "uint8"))
    assert len(tvm_compat.prim_funcs(lowered)) == 1


def test_bytes_that_others_read_are_made_once() -> None:
    x = (np.random.default_rng(0).integers(-700, 900, SHAPE) / 2).astype("float32")
    other = np.full(SHAPE, 8, "uint8")
    lowered = lower(summed((True, False), (0, 0, 0), reads=True), LLVM)
    total, codes = ran(lowered, x, other)
    np.testing.assert_array_equal(codes, rounded(x, 0, "uint8"))
    np.testing.assert_array_equal(total, rounded(codes.astype("float32") + 4, 0, "uint8"))


def test_what_lies_between_programs_is_bytes() -> None:
    """Of two products that are rounded and summed, the program of one takes the sum in."""
    from tvm import relax

    rng = np.random.default_rng(0)

    def product(emit: Any, x: Any) -> Any:
        weight = relax.const(rng.integers(-128, 128, (16, 32)).astype("int8"))
        total = emit(relax.op.matmul(x, weight, out_dtype="int32"))
        scaled = emit(relax.op.multiply(emit(relax.op.astype(total, "float32")), relax.const(0.01)))
        one, (_, zero) = relax.const(np.float32(1.0)), constants(1.0, 9, "uint8")
        codes = emit(relax.op.quantize(scaled, one, zero, axis=-1, out_dtype="uint8"))
        return emit(relax.op.dequantize(codes, *constants(0.5, 9, "uint8"), axis=1))

    def make(emit: Any, x: Any) -> Any:
        total = emit(relax.op.add(product(emit, x), product(emit, x)))
        return emit(
            relax.op.quantize(total, *constants(0.7, 3, "uint8"), axis=1, out_dtype="uint8")
        )

    x = relax.Var("x", relax.TensorType((8, 16), "uint8"))
    lowered = lower(graph([x], make), LLVM)
    programs = tvm_compat.prim_funcs(lowered)
    kinds = {str(function.params[-1].dtype) for _, function in programs}
    assert len(programs) == 2
    assert kinds == {"uint8"}
