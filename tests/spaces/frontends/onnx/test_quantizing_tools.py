"""What onnxruntime's own tools make of models: imported, and the same numbers at many lengths."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from tests.spaces.frontends.onnx.beside_onnxruntime import Array, compare, lowered, parsed
from tests.spaces.frontends.onnx.language_models import llama, step
from tests.spaces.frontends.onnx.quantizing_tools import TOOLS, exactly, in_blocks, plainly
from tests.spaces.frontends.onnx.test_packed_weights import constant_bytes

pytestmark = pytest.mark.tvm

long = pytest.mark.long
RNG = np.random.default_rng(0)
CALLS = ((5, 0, 1), (1, 5, 2), (3, 4, 1), (1, 16, 1))
"""New rows, those of before, and how many in a batch."""


TABLES = {"op_types_to_quantize": ("MatMul", "Gather")}


@pytest.mark.parametrize(
    ("norms", "said"),
    [
        (False, {}),
        (True, {"is_symmetric": True, **TABLES}),
        (True, {"form": "QDQ"}),
        pytest.param(False, {"algorithm": "HQQ"}, marks=long),
        (False, {"algorithm": "KQuant"}),
        pytest.param(False, {"algorithm": "RTN"}, marks=long),
        pytest.param(False, {"bits": 8}, marks=long),
        pytest.param(False, {"bits": 2}, marks=long),
        pytest.param(False, {"form": "QDQ", "is_symmetric": True}, marks=long),
        pytest.param(False, {"form": "QDQ", "channel_wised_quantize": True}, marks=long),
    ],
    ids=lambda given: "-".join(map(str, given.values())) if isinstance(given, dict) else str(given),
)
@pytest.mark.filterwarnings("ignore:The given NumPy array is not writable:UserWarning")  # HQQ's
def test_language_models_of_few_bits(norms: bool, said: Mapping[str, Any]) -> None:
    """Prompts and steps with a cache; their weights take no more memory than in the file."""
    proto = in_blocks(llama(norms=norms), **said)
    compare(proto, *(step(proto, *call) for call in CALLS), peer=exactly, within=1e-3)
    stored = sum(len(tensor.raw_data) for tensor in proto.graph.initializer)
    assert constant_bytes(lowered(proto)) <= 1.1 * stored


@pytest.mark.parametrize("few", [True, pytest.param(False, marks=long)], ids=["4 bits", "whole"])
def test_language_models_in_half_precision(few: bool) -> None:
    proto = llama(dtype="float16")
    proto = in_blocks(proto) if few else proto
    compare(proto, *(step(proto, *call) for call in CALLS), within=3e-2)


def network(kind: str) -> tuple[Any, dict[str, Array]]:
    """A small network, and what it is fed."""

    def drawn(*shape: int) -> Array:
        return (RNG.standard_normal(shape) / np.sqrt(shape[-1])).astype("float32")

    head = '<ir_version: 8, opset_import: ["": 17]>'
    if kind == "convolutions":
        proto = parsed(
            f"""{head} g (float[1,3,12,12] x) => (float[1,5] y) {{
            a = Conv<pads = [1, 1, 1, 1]>(x, w0, b0) b = Relu(a)
            c = Conv<pads = [1, 1, 1, 1], strides = [2, 2]>(b, w1) d = Clip(c, low, high)
            e = Conv<pads = [1, 1, 1, 1], group = 8>(d, w2) f = Add(d, e)
            h = Sigmoid(f) i = Mul(h, f) j = MaxPool<kernel_shape = [2, 2], strides = [2, 2]>(i)
            k = Concat<axis = 1>(j, j) l = GlobalAveragePool(k) m = Flatten(l)
            y = Gemm<transB = 1>(m, w3, b3) }}""",
            w0=drawn(8, 3, 3, 3), b0=drawn(8), w1=drawn(8, 8, 3, 3), w2=drawn(8, 1, 3, 3),
            w3=drawn(5, 16), b3=drawn(5), low=np.float32(0), high=np.float32(6),
        )  # fmt: skip
        return proto, {"x": drawn(1, 3, 12, 12)}
    proto = parsed(
        f"""{head} g (float[2,6,16] x) => (float[2,6,16] y) {{
        q = MatMul(x, wq) k = MatMul(x, wk) v = MatMul(x, wv)
        qa = Reshape(q, heads) qb = Transpose<perm = [0, 2, 1, 3]>(qa)
        ka = Reshape(k, heads) kb = Transpose<perm = [0, 2, 3, 1]>(ka)
        va = Reshape(v, heads) vb = Transpose<perm = [0, 2, 1, 3]>(va)
        s = MatMul(qb, kb) t = Softmax<axis = -1>(s) u = Mul(t, seen) o = MatMul(u, vb)
        oa = Transpose<perm = [0, 2, 1, 3]>(o) ob = Reshape(oa, whole) oc = MatMul(ob, wo)
        r = Add(x, oc) n = LayerNormalization<axis = -1>(r, g0, b0)
        f = MatMul(n, w1) fb = Add(f, b1) h = Relu(fb) i = MatMul(h, w2) y = Add(n, i) }}""",
        wq=drawn(16, 16), wk=drawn(16, 16), wv=drawn(16, 16), wo=drawn(16, 16), g0=drawn(16),
        b0=drawn(16), w1=drawn(16, 32), b1=drawn(32), w2=drawn(32, 16),
        heads=np.array([0, 0, 2, 8]), whole=np.array([0, 0, 16]),
        seen=np.tri(6, dtype="float32"),
    )  # fmt: skip
    return proto, {"x": drawn(2, 6, 16)}


STEPS = {"float16": 1e-2}


@pytest.mark.each_value
@pytest.mark.parametrize("tool", TOOLS)
@pytest.mark.parametrize("kind", ["convolutions", "a layer of Bert"])
def test_networks_that_are_quantized_as_a_whole(kind: str, tool: str, tmp_path: Path) -> None:
    """A number may be one step of 8 bits off where two programs sum in another order."""
    proto, feeds = network(kind)
    source, into = tmp_path / "whole.onnx", tmp_path / "quantized.onnx"
    onnx.save(proto, source)
    TOOLS[tool](source, into, [feeds])
    quantized = onnx.load(into)
    compare(quantized, feeds, peer=plainly, within=STEPS.get(tool, 5e-2))
