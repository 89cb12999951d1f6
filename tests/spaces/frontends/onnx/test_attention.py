"""`Attention` of ONNX, as what ONNX defines it by."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
import pytest

from tests.spaces.frontends.onnx.beside_onnxruntime import (
    Array,
    by_reference,
    compare,
    refusal,
)

pytestmark = pytest.mark.tvm

long = pytest.mark.long
RNG = np.random.default_rng(0)
FLOAT, BOOL = onnx.TensorProto.FLOAT, onnx.TensorProto.BOOL
HEADS, SHARED, WIDTH = 4, 2, 8
"""Heads of queries, of keys and values, and how wide each is."""
Dims = Mapping[str, tuple[int | str, ...]]

FOLDED: Dims = {
    "q": ("b", "s", HEADS * WIDTH),
    "k": ("b", "t", SHARED * WIDTH),
    "v": ("b", "t", SHARED * WIDTH),
}
SPLIT: Dims = {
    "q": ("b", HEADS, "s", WIDTH),
    "k": ("b", SHARED, "t", WIDTH),
    "v": ("b", SHARED, "t", WIDTH),
}
PAST: Dims = {"past_k": ("b", SHARED, "p", WIDTH), "past_v": ("b", SHARED, "p", WIDTH)}
COUNTS = {"q_num_heads": HEADS, "kv_num_heads": SHARED}
SIZES = ({"b": 1, "s": 5, "t": 5, "p": 2}, {"b": 3, "s": 2, "t": 7, "p": 4})


def network(dims: Dims, opset: int, outputs: int, mask: int = FLOAT, **said: Any) -> Any:
    """Operands that are not in `dims` are left out."""
    names = ["q", "k", "v", "mask", "past_k", "past_v"]
    given = [name if name in dims else "" for name in names]
    while not given[-1]:
        given.pop()
    made = ["y", "present_k", "present_v"][:outputs]
    node = onnx.helper.make_node("Attention", given, made, name="heads", **said)
    info = onnx.helper.make_tensor_value_info
    graph = onnx.helper.make_graph(
        [node],
        "g",
        [info(n, mask if n == "mask" else FLOAT, dims[n]) for n in names if n in dims],
        [info(name, FLOAT, None) for name in made],
    )
    opsets = [onnx.helper.make_opsetid("", opset)]
    return onnx.helper.make_model(graph, opset_imports=opsets, ir_version=11)


def feeds_of(proto: Any, sizes: Mapping[str, int]) -> dict[str, Array]:
    found: dict[str, Array] = {}
    for value in proto.graph.input:
        tensor = value.type.tensor_type
        shape = [d.dim_value or sizes[d.dim_param] for d in tensor.shape.dim]
        array = RNG.standard_normal(shape).astype("float32")
        found[value.name] = array > -0.8 if tensor.elem_type == BOOL else array
    return found


NETWORKS: Mapping[str, tuple[Dims, int, Mapping[str, Any]]] = {
    "folded heads": (FOLDED, 1, {**COUNTS}),
    "causal": (SPLIT, 1, {"is_causal": 1, "scale": 0.3}),
    "a past": (SPLIT | PAST, 3, {"is_causal": 1}),
    "a mask and a soft cap": (FOLDED | {"mask": ("s", "t")}, 1, {**COUNTS, "softcap": 2.0}),
}


@pytest.mark.parametrize(
    ("name", "opset"),
    [
        ("folded heads", 23),
        pytest.param("folded heads", 24, marks=long),
        pytest.param("causal", 23, marks=long),
        ("causal", 24),
        pytest.param("a past", 23, marks=long),
        ("a past", 24),
        ("a mask and a soft cap", 23),
        pytest.param("a mask and a soft cap", 24, marks=long),
    ],
)
def test_attention_of_every_length(name: str, opset: int) -> None:
    dims, outputs, said = NETWORKS[name]
    proto = network(dims, opset, outputs, **said)
    compare(proto, *(feeds_of(proto, sizes) for sizes in SIZES), peer=by_reference)


def test_a_mask_of_what_takes_part() -> None:
    proto = network(SPLIT | {"mask": ("b", 1, "s", "t")}, 23, 1, BOOL)
    compare(proto, *(feeds_of(proto, sizes) for sizes in SIZES), peer=by_reference)


def test_what_onnx_has_no_definition_for_is_refused() -> None:
    """Folded heads, and nobody says how many."""
    said = refusal(network(FOLDED, 23, 1))
    assert "operator Attention (node heads)" in said
