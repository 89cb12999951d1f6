"""Weights of 2, 4 and 8 bits with a scale for each block: what onnxruntime computes of them, and
how much memory they take."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest

from spaces.ir import tvm_compat
from spaces.lowering.relax_rewrite import tir_calls
from tests.spaces.frontends.onnx.beside_onnxruntime import (
    Array,
    by_onnxruntime,
    compare,
    lowered,
    refusal,
)
from tests.spaces.frontends.onnx.packed_networks import (
    COLUMNS,
    DEPTH,
    RNG,
    drawn_bytes,
    floats,
    network,
    product,
    unpack,
)

pytestmark = pytest.mark.tvm

long = pytest.mark.long
NUMBERS = {"float32": 1e-5, "float16": 4e-3}
"""How far apart results may be by type of the rows."""


@pytest.mark.parametrize(
    ("bits", "block", "zeros", "dtype", "said"),
    [
        (4, 16, "", "float32", {}),
        (4, 32, "packed", "float32", {"bias": True}),
        (4, 32, "floats", "float32", {}),
        (4, 64, "packed", "float16", {}),
        (4, 32, "", "float32", {"groups": True}),
        (8, 16, "packed", "float32", {"bias": True}),
        (8, 128, "", "float16", {}),
        (2, 32, "packed", "float32", {}),
        pytest.param(4, 256, "packed", "float32", {}, marks=long),
        pytest.param(4, 32, "floats", "float16", {"bias": True}, marks=long),
        pytest.param(2, 16, "", "float16", {}, marks=long),
        pytest.param(8, 32, "", "float32", {}, marks=long),
    ],
)
def test_products(bits: int, block: int, zeros: str, dtype: str, said: Mapping[str, Any]) -> None:
    proto, _ = product(bits, block, zeros, dtype, **said)
    fed = [{"x": floats(rows, DEPTH, dtype=dtype)} for rows in (1, 5)]
    compare(proto, *fed, within=NUMBERS[dtype])


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_products_of_many_axes_and_of_types_that_onnxruntime_has_no_product_for(dtype: str) -> None:
    numbers = ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype
    proto, operands = product(4, 32, "packed", numbers, bias=True)
    dims = proto.graph.input[0].type.tensor_type.shape.dim
    dims.insert(0, type(dims[0])(dim_param="b"))
    weights = unpack(operands, 4, 32).astype("float32")

    def exactly(_proto: Any, feeds: Mapping[str, Array]) -> list[Array]:
        rows = feeds["x"].astype("float32")
        return [(rows @ weights + operands["bias"].astype("float32")).astype(numbers)]

    x = floats(2, 3, DEPTH, dtype=numbers)
    compare(proto, {"x": x}, peer=exactly, within=1e-5 if dtype == "float32" else 3e-2)


def test_what_may_be_computed_in_8_bits_is_computed_in_floats() -> None:
    """onnxruntime rounds rows to 8 bits then."""
    proto, _ = product(4, 32, "packed", accuracy_level=4)
    compare(proto, {"x": floats(3, DEPTH)}, within=0.1)
    exact, _ = product(4, 32, "packed")
    for tensor, same in zip(exact.graph.initializer, proto.graph.initializer, strict=True):
        tensor.CopyFrom(same)
    compare(proto, {"x": floats(3, DEPTH)}, peer=lambda _, fed: by_onnxruntime(exact, fed))


@pytest.mark.parametrize(
    ("dtype", "bits", "zeros", "axes"),
    [
        ("uint8", 4, False, (0, 1)),
        ("uint8", 4, True, (0, -1)),
        ("uint8", 8, True, (0, 1)),
        ("uint8", 2, True, (0, 1)),
        ("uint4", 4, False, (0, 1)),
        ("uint4", 4, True, (1, 0)),
        ("int4", 4, True, (0, 1)),
        ("int4", 4, False, (1, 0)),
    ],
)
def test_rows_of_a_table(dtype: str, bits: int, zeros: bool, axes: tuple[int, int]) -> None:
    """Numbers below 0 count from the end."""
    block, shape = 16, (48, 32) if axes == (1, 0) else (9, 48)
    scaled = [*shape]
    scaled[axes[1]] = -(-shape[axes[1]] // block)
    each = 8 // bits if dtype == "uint8" else 1
    operands: dict[str, Array] = {
        "table": nibbles(dtype, shape[0], shape[1] // each),
        "rows": np.array([[0, -1, 3], [5, -9, 2]]),
        "scales": floats(*scaled),
    }
    if zeros:
        operands["zeros"] = nibbles(dtype, scaled[0], -(-scaled[1] // each))
    said = {"bits": bits} if dtype == "uint8" else {}
    proto = network(
        "GatherBlockQuantized", operands, {"rows": ["b", 3]}, gather_axis=axes[0],
        quantize_axis=axes[1], block_size=block, **said,
    )  # fmt: skip
    compare(proto, {"rows": operands["rows"]}, {"rows": operands["rows"][:1]})


def nibbles(dtype: str, *shape: int) -> Array:
    if dtype == "uint8":
        return drawn_bytes(*shape)
    least = -8 if dtype == "int4" else 0
    return RNG.integers(least, least + 16, shape).astype(getattr(ml_dtypes, dtype))


def test_rows_that_a_table_has_not_are_zeros() -> None:
    operands = {"table": drawn_bytes(5, 16), "rows": np.array([4]), "scales": floats(5, 2)}
    proto = network("GatherBlockQuantized", operands, {"rows": ["n"]}, block_size=16, bits=4)
    compare(proto, {"rows": np.array([1, 5, -6, 4])})


def test_a_number_of_rows_that_is_open_has_one_name() -> None:
    """Else nobody could tell how large a result is, and its program would not be tuned."""
    operands = {"table": drawn_bytes(5, 16), "rows": np.array([4]), "scales": floats(5, 2)}
    proto = network("GatherBlockQuantized", operands, {"rows": ["n"]}, block_size=16, bits=4)
    *_, rows, found = map(tvm_compat.param_dims, lowered(proto)["unpacked"].params)
    assert rows
    assert found
    assert rows[0].same_as(found[0])


def constant_bytes(module: Any) -> int:
    """Of all constants that the programs of a module read."""
    constants = {
        operand
        for call in tir_calls(module)
        for operand in call.args[1].fields
        if tvm_compat.is_constant(operand)
    }
    return sum(constant.value.numpy().nbytes for constant in constants)


def test_weights_stay_packed_in_a_lowered_model() -> None:
    proto, _ = product(4, 32, "packed", bias=True)
    assert constant_bytes(lowered(proto)) <= 1.1 * sum(
        len(tensor.raw_data) for tensor in proto.graph.initializer
    )


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"bits": 3}, "its weights have 3 bits"),
        ({"block_size": 24}, "its blocks have 24 numbers"),
        ({"weight_prepacked": 1}, "packed for one kind of device"),
        ({"N": COLUMNS + 1}, "operand 1 has not the"),
        ({"K": DEPTH + 1}, "its rows are not of 81 numbers"),
    ],
)
def test_what_is_not_taken_is_refused(change: Mapping[str, int], why: str) -> None:
    proto, _ = product(4, 32)
    (node,) = proto.graph.node
    kept = [a for a in node.attribute if a.name not in change]
    del node.attribute[:]
    node.attribute.extend(kept)
    node.attribute.extend(onnx.helper.make_attribute(*pair) for pair in change.items())
    said = refusal(proto)
    assert why in said
    assert "operator com.microsoft.MatMulNBits (node one)" in said
