"""Caches whose width a file leaves open, as onnxruntime-genai's model builder does."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from spaces.frontends.declared import resolve, tie
from spaces.frontends.onnx.contributed.cache_widths import find_cache_widths
from spaces.frontends.onnx.model import read_onnx_proto
from tests.spaces.frontends.onnx.beside_onnxruntime import parsed
from tests.spaces.frontends.onnx.language_models import SMALL, llama, step
from tuner.dynamic.shapes import Domain
from tuner.errors import TunerError

pytestmark = pytest.mark.tvm
FUSED = """
<ir_version: 10, opset_import: ["": 21, "com.microsoft": 1]>
g (float[b,s,32] x, float[b,2,p,wide] k, float[b,2,p,wide] v, int32[b] last, int32 total)
    => (float[b,s,32] y, float[b,2,t,wide] nk, float[b,2,t,wide] nv) {
    PROJECTION
    y, nk, nv = com.microsoft.GroupQueryAttention<num_heads = 4, kv_num_heads = 2>(
        q, , , k, v, last, total)
}
"""


def leave_open(proto: Any) -> Any:
    """A network with the widths of its caches left open."""
    for value in (*proto.graph.input, *proto.graph.output):
        dims = value.type.tensor_type.shape.dim
        if len(dims) == 4:
            dims[3].dim_param = "kv_cache_dim"
    return proto


@pytest.mark.parametrize("norms", [False, True], ids=["as they come", "normalised by heads"])
def test_the_width_of_a_cache_is_that_of_a_head(norms: bool) -> None:
    source = read_onnx_proto(leave_open(llama(1, norms=norms)), "open")
    assert "kv_cache_dim" not in source.declared.symbols
    cache = next(one for one in source.declared.inputs if one.name == "past_k0")
    assert cache.dims == ("b", SMALL.shared, "p", SMALL.head)


def test_a_network_with_open_caches_is_imported_with_known_ones() -> None:
    source = read_onnx_proto(leave_open(llama(1)), "open")
    domain = Domain((("b", (1,)), ("s", (1, 4)), ("p", (0, 4))))
    inputs = resolve(tie(source.declared, [("t", "p+s")]), (), domain)
    source.imported(inputs, domain)
    fed, sizes = step(llama(1), rows=1, past=4), {"b": 1, "s": 1, "p": 4}
    assert {one.name: one.at(sizes).shape for one in inputs} == {n: a.shape for n, a in fed.items()}


@pytest.mark.parametrize(
    ("projection", "width"),
    [
        ("q = MatMul(x, w)", 8),
        ("a = MatMul(x, w) q = Add(a, bias)", 8),
        ("a = MatMul(x, w) c = Cast<to = 1>(a) q = Identity(c)", 8),
        ("shape = Constant<value = int64[3] {0, -1, 64}>() q = Reshape(x, shape)", 8),
        ("q = Relu(x)", None),
        ("q = MatMul(x, x)", None),
    ],
)
def test_what_makes_queries_says_how_wide_they_are(projection: str, width: int | None) -> None:
    text = FUSED.replace("PROJECTION", projection)
    proto = parsed(text, w=np.zeros((32, 64), "float32"), bias=np.zeros(64, "float32"))
    assert find_cache_widths(proto.graph) == ({} if width is None else {"wide": width})


def test_a_mask_that_is_left_open_asks_for_past_and_new_rows() -> None:
    source = read_onnx_proto(llama(1), "masked")
    domain = Domain((("b", (1,)), ("s", (1, 4)), ("p", (0, 4))))
    with pytest.raises(TunerError, match=r"--dim t=past\+new"):
        resolve(source.declared, (), domain)
