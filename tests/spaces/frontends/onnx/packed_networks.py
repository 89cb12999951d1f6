"""Networks of one operator on packed weights, and what numpy makes of these."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx

from tests.spaces.frontends.onnx.beside_onnxruntime import Array

RNG = np.random.default_rng(0)
COLUMNS, DEPTH = 6, 80
"""Of a product: the last block is not full."""


def floats(*shape: int, dtype: Any = "float32") -> Array:
    return RNG.standard_normal(shape).astype(dtype)


def drawn_bytes(*shape: int) -> Array:
    return RNG.integers(0, 256, shape).astype("uint8")


def network(
    operator: str, operands: Mapping[str, Array], given: Mapping[str, Any], **said: Any
) -> Any:
    """A call of one of onnxruntime's operators.

    Args:
        operands: all in order, "" before the first letter of one for each that is left out.
        given: shapes of those that are fed in.
    """
    helper = onnx.helper
    names = list(operands)
    node = helper.make_node(
        operator, [n if n[0] != "-" else "" for n in names], ["y"], "one", domain="com.microsoft",
        **said,
    )  # fmt: skip
    types = {n: helper.np_dtype_to_tensor_dtype(a.dtype) for n, a in operands.items()}
    result = types["scales"]
    graph = helper.make_graph(
        [node],
        "g",
        [helper.make_tensor_value_info(n, types[n], shape) for n, shape in given.items()],
        [helper.make_tensor_value_info("y", result, None)],
        [
            onnx.numpy_helper.from_array(array, name)
            for name, array in operands.items()
            if name not in given and name[0] != "-"
        ],
    )
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def product(
    bits: int,
    block: int,
    zeros: str = "",
    dtype: str = "float32",
    *,
    columns: int = COLUMNS,
    depth: int = DEPTH,
    **said: Any,
) -> tuple[Any, dict[str, Array]]:
    """A product of open rows, and its operands.

    Args:
        zeros: how zero points are given: not at all, packed in bytes, or as floats.
    """
    blocks = -(-depth // block)
    none = np.zeros(0, "float32")
    points = {
        "": ("-zeros", none),
        "packed": ("zeros", drawn_bytes(columns, -(-blocks * bits // 8))),
        "floats": ("zeros", (8 * RNG.random((columns, blocks))).astype(dtype)),
    }
    operands = {
        "x": floats(1, depth, dtype=dtype),
        "w": drawn_bytes(columns, blocks, block * bits // 8),
        "scales": (RNG.random((columns, blocks)) / 2**bits).astype(dtype),
        points[zeros][0]: points[zeros][1],
    }
    if said.pop("groups", False):
        operands["groups"] = (np.arange(depth)[::-1] // block).astype("int32")
    if said.pop("bias", False):
        operands |= {"-groups": none, "bias": floats(columns, dtype=dtype)}
    sizes = {"K": depth, "N": columns, "bits": bits, "block_size": block}
    return network("MatMulNBits", operands, {"x": ["m", depth]}, **sizes, **said), operands


def unpack(operands: Mapping[str, Array], bits: int, block: int) -> Array:
    """The weight of a product in float64, of (depth, columns)."""
    columns, depth = len(operands["scales"]), operands["x"].shape[-1]

    def codes(packed: Array) -> Array:
        apart = [(packed >> (bits * n)) & (2**bits - 1) for n in range(8 // bits)]
        return np.stack(apart, -1).reshape(columns, -1).astype("float64")

    of_terms = operands.get("groups", np.arange(depth) // block)
    points = np.full((columns, of_terms.max() + 1), 2.0 ** (bits - 1))
    if "zeros" in operands:
        zeros = operands["zeros"]
        points = codes(zeros) if zeros.dtype == np.uint8 else zeros
    whole = codes(operands["w"].reshape(columns, -1))[:, :depth] - points[:, of_terms]
    return np.asarray((whole * operands["scales"].astype("float64")[:, of_terms]).T)
