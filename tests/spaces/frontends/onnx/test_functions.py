"""Operators that a model, or ONNX itself, defines by others."""

from __future__ import annotations

import numpy as np
import pytest

from tests.spaces.frontends.onnx.beside_onnxruntime import (
    Array,
    by_onnxruntime,
    by_reference,
    compare,
    parsed,
    refusal,
)

pytestmark = pytest.mark.tvm

RNG = np.random.default_rng(0)
FUNCTIONS = """
<domain: "own", opset_import: ["" : 18]>
scaled <factor> (x, shift) => (y) {
    k = Constant<value_float: float = @factor>()
    product = Mul(x, k)
    y = Add(product, shift)
}
<domain: "own", opset_import: ["" : 13, "own" : 1]>
twice <factor> (x, shift) => (y, between) {
    between = own.scaled<factor: float = @factor>(x, shift)
    total = ReduceSum<keepdims = 1>(between)
    product = own.scaled<factor = 2.0>(between, total)
    y = Celu<alpha: float = @factor>(product)
}
"""


def floats(*shape: int) -> Array:
    return RNG.standard_normal(shape).astype("float32")


def test_functions_of_a_model_call_each_other() -> None:
    """Names within are their own; so is the version that they are written in."""
    proto = parsed(f"""<ir_version: 8, opset_import: ["" : 18, "own" : 1]>
        g (float[n,4] x, float[4] k) => (float[n,4] z) {{
            y, between = own.twice<factor = 0.5>(x, k)
            total = own.scaled<factor = 3.0>(y, k)
            z = Add(total, between)
        }} {FUNCTIONS}""")
    for function in proto.functions:  # one version, or onnxruntime takes none of them
        function.opset_import[0].version = 18
    compare(proto, {"x": floats(1, 4), "k": floats(4)}, {"x": floats(5, 4), "k": floats(4)})


def test_a_function_is_written_in_a_version_of_its_own() -> None:
    """`ReduceSum` had its axes as an attribute once."""
    proto = parsed("""<ir_version: 8, opset_import: ["" : 18, "own" : 1]>
        g (float[n,4] x) => (float[n,4] y) { y = own.shares(x) }
        <domain: "own", opset_import: ["" : 11]>
        shares (x) => (y) { e = Exp(x) s = ReduceSum<axes = [1]>(e) y = Div(e, s) }""")
    by_softmax = parsed("""<ir_version: 8, opset_import: ["" : 18]>
        g (float[n,4] x) => (float[n,4] y) { y = Softmax(x) }""")
    compare(proto, {"x": floats(3, 4)}, peer=lambda _, feeds: by_onnxruntime(by_softmax, feeds))


@pytest.mark.parametrize(
    ("opset", "call", "shape"),
    [
        (13, "Celu<alpha = 0.7>(x)", (2, 3)),
        (18, "Celu(x)", (2, 3)),
        (24, "Swish<alpha = 0.5>(x)", (2, 3)),
        (22, "NegativeLogLikelihoodLoss(x, labels)", (2, 3)),
    ],
)
def test_operators_that_onnx_defines_by_others(
    opset: int, call: str, shape: tuple[int, ...]
) -> None:
    proto = parsed(
        f"""<ir_version: 10, opset_import: ["" : {opset}]>
        g (float[n,{shape[1]}] x) => (float y) {{ y = {call} }}""",
        labels=np.array([1, 2]),
    )
    del proto.graph.output[0].type.tensor_type.shape.dim[:]
    proto.graph.output[0].type.tensor_type.ClearField("shape")
    compare(proto, {"x": floats(*shape)}, peer=by_reference)


def test_rotary_embeddings() -> None:
    proto = parsed(
        """<ir_version: 10, opset_import: ["" : 23]>
        g (float[b,2,s,8] x, int64[b,s] places) => (float[b,2,s,8] y) {
            y = RotaryEmbedding(x, cosines, sines, places)
        }""",
        cosines=floats(16, 4),
        sines=floats(16, 4),
    )
    fed = [
        {"x": floats(b, 2, s, 8), "places": RNG.integers(0, 16, (b, s))}
        for b, s in ((1, 3), (2, 7))
    ]
    compare(proto, *fed)


def test_what_a_function_needs_and_is_not_known_is_named_with_its_caller(
    capfd: pytest.CaptureFixture[str],
) -> None:
    proto = parsed("""<ir_version: 8, opset_import: ["" : 18, "own" : 1]>
        g (float[4,4] x) => (float[4,4] y) { y = own.odd(x) }
        <domain: "own", opset_import: ["" : 18]>
        odd (x) => (y) { d = Det(x) y = Mul(x, d) }""")
    assert "does not know operator Det (node of output d)" in refusal(proto)
    proto = parsed("""<ir_version: 8, opset_import: ["" : 18]>
        g (float[4] x) => (bool[4] y) { y = Bernoulli<dtype = 9>(x) }""")
    said = refusal(proto)
    assert "cannot import operator Bernoulli (node of output y): " in said
    assert "does not know operator RandomUniformLike (node y/" in said
    assert capfd.readouterr().err == ""  # that line is all there is
