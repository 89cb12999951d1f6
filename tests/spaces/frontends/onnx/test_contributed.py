"""Operators that onnxruntime contributed: what its tools write is imported, and is the same."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from spaces.frontends.model import load_model
from spaces.frontends.onnx.contributed.registry import is_contributed, list_contributed
from tests.spaces.frontends.onnx import test_exported_networks as exported
from tests.spaces.frontends.onnx.beside_onnxruntime import Array, compare, parsed, refusal
from tests.spaces.frontends.onnx.quantizing_tools import optimised
from tuner.errors import TunerError
from tuner.request.model_spec import ModelSpec

pytestmark = pytest.mark.tvm

long = pytest.mark.long
HEAD = '<ir_version: 8, opset_import: ["" : 17, "com.microsoft" : 1]>'
RNG = np.random.default_rng(0)
SIZES = {"b": 2, "s": 5, "t": 7, "p": 3}
"""Of open dimensions."""


def floats(*shape: int) -> Array:
    return RNG.standard_normal(shape).astype("float32")


def numbers(dtype: str, *shape: int) -> Array:
    limits = np.iinfo(dtype)
    return RNG.integers(limits.min, limits.max + 1, shape).astype(dtype)


def scalar(value: float, dtype: str = "float32") -> Array:
    return np.array(value, dtype=dtype)


def check(
    call: str, given: str, outputs: int = 1, weights: Mapping[str, Array] = {}, steps: int = 0
) -> None:
    """Compare one call, its operands fed in or weights; open dimensions have letters."""
    names = ["y", "second", "third", "fourth"][:outputs]
    results = ", ".join(f"float {name}" for name in names)
    proto = parsed(
        f"{HEAD} g ({given}) => ({results}) {{ {', '.join(names)} = com.microsoft.{call} }}",
        **weights,
    )
    if "uint8" in given and "ToFloat" not in call:
        for output in proto.graph.output:
            output.type.tensor_type.elem_type = onnx.TensorProto.UINT8
    for output in proto.graph.output:
        output.type.tensor_type.ClearField("shape")
    fed = {value.name: drawn(value) for value in proto.graph.input}
    compare(proto, fed, within=1e-4, steps=steps)


def drawn(value: Any) -> Array:
    tensor = value.type.tensor_type
    shape = [d.dim_value or SIZES[d.dim_param] for d in tensor.shape.dim]
    dtype = onnx.helper.tensor_dtype_to_np_dtype(tensor.elem_type).name
    if dtype == "float32":
        return floats(*shape)
    if dtype == "uint8":
        return numbers(dtype, *shape)
    if value.name.startswith("mask"):
        found = RNG.integers(0, 2, shape).astype(dtype)
        found[..., 0] = 1
        return found
    if value.name.startswith("lengths"):
        return np.array([2, 5][: shape[0]], dtype=dtype)
    return RNG.integers(0, 6, shape).astype(dtype)


@pytest.mark.parametrize(
    "call",
    ["Gelu(x)", "BiasGelu(x, b)", "FastGelu(x)", "FastGelu(x, b)", "QuickGelu<alpha = 1.5>(x)"],
)
def test_activations(call: str) -> None:
    check(call, "float[s,8] x", weights={"b": floats(8)})


@pytest.mark.parametrize(
    ("call", "given"),
    [
        ("FusedMatMul<alpha = 0.3, transB = 1>(x, y_)", "float[b,s,8] x, float[b,t,8] y_"),
        ("FusedMatMul<transA = 1>(x, y_)", "float[8,s] x, float[8,t] y_"),
        ("FusedMatMul<transBatchA = 1, transB = 1>(x, y_)", "float[s,b,8] x, float[b,t,8] y_"),
        ('FusedGemm<activation = "Relu", alpha = 0.5, transB = 1>(x, w, b)', "float[s,8] x"),
        ('FusedGemm<activation = "LeakyRelu", activation_alpha = 0.2>(x, v)', "float[s,8] x"),
    ],
)
def test_products(call: str, given: str) -> None:
    check(call, given, weights={"w": floats(4, 8), "v": floats(8, 4), "b": floats(4)})


@pytest.mark.parametrize(
    ("activation", "skip"),
    [
        ('activation = "Relu"', ""),
        ('activation = "Relu"', ", z"),
        ('activation = "Clip", activation_params = [0.0, 6.0]', ""),
        ('activation = "LeakyRelu", activation_params = [0.1]', ", z"),
        ('activation = "HardSigmoid", activation_params = [0.2, 0.5]', ""),
        ('activation = "Tanh"', ""),
    ],
)
def test_convolutions_with_an_activation(activation: str, skip: str) -> None:
    given = "float[1,3,6,6] x" + (", float[1,4,3,3] z" if skip else "")
    call = f"FusedConv<{activation}, pads = [1, 1, 1, 1], strides = [2, 2]>(x, w, b{skip})"
    check(call, given, weights={"w": floats(4, 3, 3, 3), "b": floats(4)})


@pytest.mark.parametrize(
    ("call", "outputs"),
    [
        ("SkipLayerNormalization(x, z, g)", 1),
        ("SkipLayerNormalization<epsilon = 1e-5>(x, z, g, h)", 1),
        ("SkipLayerNormalization<epsilon = 1e-5>(x, z, g, h, b)", 1),
        ("SkipSimplifiedLayerNormalization<epsilon = 1e-6>(x, z, g)", 1),
        ("SkipSimplifiedLayerNormalization<epsilon = 1e-6>(x, z, g, b)", 1),
    ],
)
def test_normalizations_after_a_sum(call: str, outputs: int) -> None:
    weights = {name: floats(8) for name in "ghb"}
    check(call, "float[b,s,8] x, float[b,s,8] z", outputs, weights)


def test_the_sum_before_a_normalization_goes_on() -> None:
    proto = parsed(
        f"""{HEAD} g (float[b,s,8] x, float[b,s,8] z) => (float[b,s,8] y) {{
        n, mean, inverse, sum = com.microsoft.SkipLayerNormalization(x, z, g, h)
        y = Add(n, sum) }}""",
        g=floats(8),
        h=floats(8),
    )
    compare(proto, {"x": floats(2, 3, 8), "z": floats(2, 3, 8)}, within=1e-4)


@pytest.mark.parametrize("axis", [-1, 1])
def test_the_root_mean_square_is_among_onnx_own(axis: int) -> None:
    scale = floats(8) if axis == -1 else floats(4, 8)
    proto = parsed(
        f"""{HEAD} g (float[b,4,8] x) => (float[b,4,8] y) {{
        y = SimplifiedLayerNormalization<axis = {axis}, epsilon = 1e-6>(x, g) }}""",
        g=scale,
    )
    compare(proto, {"x": floats(2, 4, 8)}, within=1e-4)


@pytest.mark.parametrize(
    "operands",
    [
        "ids, , words, places, , g, h",
        "ids, kinds_of, words, places, kinds, g, h",
        "ids, kinds_of, words, places, kinds, g, h, , positions",
    ],
)
def test_embeddings(operands: str) -> None:
    given = ", ".join(
        f"int32[b,s] {name}" for name in ("ids", "kinds_of", "positions") if name in operands
    )
    tables = {name: floats(9, 8) for name in ("words", "places", "kinds")}
    weights = {**tables, "g": floats(8), "h": floats(8)}
    used = {name: array for name, array in weights.items() if name in operands}
    proto = parsed(
        f"""{HEAD} g ({given}) => (float[b,s,8] y) {{
        y, index = com.microsoft.EmbedLayerNormalization({operands}) }}""",
        **used,
    )
    compare(proto, {value.name: drawn(value) for value in proto.graph.input}, within=1e-4)


@pytest.mark.parametrize(
    ("attributes", "operands", "given"),
    [
        ("", "", ""),
        ("unidirectional = 1", "", ""),
        ("scale = 0.3", ", mask", ", int32[b,s] mask"),
        ("", ", mask", ", int32[b,s,s] mask"),
        ("", ", lengths", ", int32[b] lengths"),
        ("", ", , , bias", ", float[b,2,s,s] bias"),
    ],
    ids=["plain", "causal", "a mask", "a mask for each", "lengths", "a bias of scores"],
)
def test_attention_with_its_projections(attributes: str, operands: str, given: str) -> None:
    said = f"num_heads = 2{', ' * bool(attributes)}{attributes}"
    weights = {"w": floats(8, 24), "c": floats(24)}
    check(f"Attention<{said}>(x, w, c{operands})", f"float[b,s,8] x{given}", weights=weights)


def test_attention_with_what_is_past() -> None:
    check(
        "Attention<num_heads = 2, unidirectional = 1>(x, w, c, , past)",
        "float[b,s,8] x, float[2,b,2,p,4] past",
        outputs=2,
        weights={"w": floats(8, 24), "c": floats(24)},
    )


@pytest.mark.parametrize(
    ("call", "given", "outputs"),
    [
        ("q, k, v", "float[b,s,8] q, float[b,t,8] k, float[b,t,8] v", 1),
        ("q, k, v, c", "float[b,s,8] q, float[b,t,8] k, float[b,t,8] v", 1),
        ("q, k, v, , mask", "float[b,s,8] q, float[b,t,8] k, float[b,t,8] v, int32[b,t] mask", 1),
        ("q, k, v", "float[b,s,8] q, float[b,2,t,4] k, float[b,2,t,4] v", 1),
        (
            "q, k, v, , , , k0, v0",
            "float[b,s,8] q, float[b,s,8] k, float[b,s,8] v, float[b,2,p,4] k0, float[b,2,p,4] v0",
            3,
        ),
    ],
    ids=["plain", "a bias", "a mask", "keys in heads", "a past"],
)
def test_attention_of_many_heads(call: str, given: str, outputs: int) -> None:
    weights = {"c": floats(24)} if ", c" in call else {}
    check(f"MultiHeadAttention<num_heads = 2>({call})", given, outputs, weights)


@pytest.mark.parametrize(
    ("given", "attributes"),
    [
        ("float[b,s,16] x, int64[b,s] places", ""),
        ("float[b,2,s,8] x, int64[b,s] places", "interleaved = 1"),
        ("float[b,2,s,8] x, int64[1] places", ""),
        ("float[b,s,16] x, int64[1] places", "interleaved = 1"),
    ],
)
def test_rotary_embeddings(given: str, attributes: str) -> None:
    said = f"<{attributes}>" if attributes else ""
    tables = {"cosines": floats(16, 4), "sines": floats(16, 4)}
    check(f"RotaryEmbedding{said}(x, places, cosines, sines)", given, weights=tables)


QUANTIZATION = {
    "xs": scalar(0.02), "xz": scalar(120, "uint8"), "zs": scalar(0.03), "zz": scalar(90, "uint8"),
    "ys": scalar(0.05), "yz": scalar(110, "uint8"),
}  # fmt: skip


def named(call: str, known: Mapping[str, Array]) -> dict[str, Array]:
    """The weights that a call has among its operands."""
    operands = re.findall(r"\w+", call.rpartition("(")[2])
    return {name: array for name, array in known.items() if name in operands}


@pytest.mark.parametrize(
    ("call", "given"),
    [
        ("QLinearAdd(x, xs, xz, z, zs, zz, ys, yz)", "uint8[s,8] x, uint8[s,8] z"),
        ("QLinearMul(x, xs, xz, z, zs, zz, ys, yz)", "uint8[s,8] x, uint8[1,8] z"),
        (
            "QLinearWhere(which, x, xs, xz, z, zs, zz, ys, yz)",
            "bool[s,1] which, uint8[s,8] x, uint8[1,8] z",
        ),
        ("QLinearSigmoid(x, xs, xz, zs, zz)", "uint8[s,8] x"),
        ("QLinearLeakyRelu<alpha = 0.1>(x, xs, xz, ys, yz)", "uint8[s,8] x"),
        ("QLinearGlobalAveragePool(x, xs, xz, xs, xz)", "uint8[1,3,5,5] x"),
        ("QLinearAveragePool<kernel_shape = [2, 3]>(x, xs, xz, ys, yz)", "uint8[1,3,5,5] x"),
        ("QLinearSoftmax<axis = -1, opset = 13>(x, xs, xz, zs, zz)", "uint8[s,8] x"),
        ("QLinearConcat<axis = 1>(ys, yz, x, xs, xz, z, zs, zz)", "uint8[s,8] x, uint8[s,4] z"),
        ("QGemm<transB = 1>(x, xs, xz, w, xs, wz, c, ys, yz)", "uint8[s,8] x"),
    ],
    ids=lambda text: text.partition("(")[0],
)
def test_operators_on_bytes(call: str, given: str) -> None:
    known = {
        **QUANTIZATION,
        "w": numbers("int8", 4, 8),
        "wz": scalar(0, "int8"),
        "c": RNG.integers(-99, 99, 4).astype("int32"),
    }
    # For some it looks results up in a table of its own.
    check(call, given, weights=named(call, known), steps=1 if "Softmax" in call else 0)


def test_what_is_quantized_as_onnx_has_it() -> None:
    proto = parsed(
        f"""{HEAD} g (float[s,8] x) => (uint8[s,8] q, float[s,8] y) {{
        q = com.microsoft.QuantizeLinear(x, xs, xz)
        y = com.microsoft.DequantizeLinear(q, xs, xz) }}""",
        **named("(xs, xz)", QUANTIZATION),
    )
    compare(proto, {"x": floats(5, 8)})


@pytest.mark.parametrize(
    ("call", "given"),
    [
        ("MatMulIntegerToFloat(x, w, xs, ws, xz, wz, c)", "uint8[s,8] x"),
        ("MatMulIntegerToFloat(x, w, xs, ws)", "uint8[s,8] x"),
        ("DynamicQuantizeMatMul(x, w, ws, wz, c)", "float[s,8] x"),
        ("DynamicQuantizeMatMul(x, w, ws)", "float[s,8] x"),
    ],
)
def test_products_of_bytes_that_give_real_numbers(call: str, given: str) -> None:
    known = {
        **QUANTIZATION,
        "w": numbers("int8", 8, 4),
        "ws": scalar(0.04),
        "wz": scalar(3, "int8"),
        "c": floats(4),
    }
    check(call, given, weights=named(call, known))


@pytest.mark.parametrize(
    "name",
    [
        pytest.param("bert_batch-tracing", marks=long),
        "gpt2_step-dynamo",
        pytest.param("llama-dynamo", marks=long),
        "t5-tracing",
        "unet-dynamo",
    ],
)
def test_what_its_optimiser_makes_of_exported_networks(name: str, tmp_path: Path) -> None:
    file = tmp_path / f"{name}.onnx"
    optimised(exported.file_of(name), file, "ORT_ENABLE_EXTENDED")
    assert any(map(is_contributed, onnx.load(file).graph.node))
    exported.check(file)


def test_a_file_for_one_machine_is_refused_with_what_to_do(tmp_path: Path) -> None:
    optimised(exported.file_of("unet-dynamo"), tmp_path / "unet.onnx", "ORT_ENABLE_ALL")
    operators = {node.domain for node in onnx.load(tmp_path / "unet.onnx").graph.node}
    if "com.microsoft.nchwc" not in operators:
        pytest.skip("onnxruntime has no operators for this machine alone")
    with pytest.raises(TunerError, match="ORT_ENABLE_EXTENDED") as caught:
        load_model(ModelSpec(str(tmp_path / "unet.onnx"), dims=(("h", (4,)), ("w", (4,)))))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("call", "why"),
    [
        ("Attention<num_heads = 2, do_rotary = 1>(x, w, c)", "it rotates"),
        ("Attention<num_heads = 2>(x, w, c, m)", "its mask has 4 axes"),
        ('FusedGemm<activation = "Odd">(x, w)', "its activation Odd is not known"),
    ],
)
def test_what_is_not_known_is_refused_by_name(call: str, why: str) -> None:
    rank = "8,8" if "Gemm" in call else "1,4,8"
    proto = parsed(
        f"{HEAD} g (float[{rank}] x) => (float[a,b,c] y) {{ y = com.microsoft.{call} }}",
        w=floats(8, 24), c=floats(24), m=np.ones((1, 1, 4, 4), dtype="int32"),
    )  # fmt: skip
    said = refusal(proto)
    assert why in said
    assert "operator com.microsoft." in said


@pytest.mark.parametrize(
    ("call", "given"),
    [
        ("Trilu<upper = 0>(x, k)", "float[b,3,4] x"),
        ("Trilu(x)", "float[b,3,4] x"),
        ('GridSample<mode = "bicubic", padding_mode = "border">(x, g)', "float[2,1,4,5] x"),
        ("GridSample<align_corners = 1>(x, g)", "float[2,1,4,5] x"),
        ('Pad<mode = "reflect">(x, pads)', "float[3,4] x"),
        ("Pad(x, flat, half)", "float[3,4] x"),
    ],
)
def test_operators_that_onnx_has_as_well(call: str, given: str) -> None:
    check(
        call, given,
        weights=used(
            call, k=scalar(-1, "int64"), g=floats(2, 3, 3, 2) / 2, half=scalar(0.5),
            pads=np.array([[1, 0, 0, 2]]), flat=np.array([1, 0, 0, 2]),
        ),
    )  # fmt: skip


def used(call: str, **weights: Array) -> dict[str, Array]:
    """Those that a call names."""
    names = re.findall(r"\w+", call.partition("(")[2])
    return {name: array for name, array in weights.items() if name in names}


@pytest.mark.parametrize("signs", ["int16 int16", "uint16 uint16", "int16 uint16"])
def test_products_of_16_bits(signs: str) -> None:
    """onnxruntime has no kernel for all of them."""
    left, right = signs.split()
    total = "uint32" if signs == "uint16 uint16" else "int32"
    proto = parsed(
        f"{HEAD} g ({left}[2,3] a, {right}[3,4] b) => ({total}[2,4] y) "
        "{ y = com.microsoft.MatMulInteger16(a, b) }"
    )
    a, b = numbers(left, 2, 3), numbers(right, 3, 4)
    compare(proto, {"a": a, "b": b}, peer=lambda *_: [a.astype(total) @ b.astype(total)])


def test_each_operator_is_tested() -> None:
    others = ("test_grouped_attention.py", "test_packed_weights.py")
    files = [Path(__file__), *map(Path(__file__).with_name, others)]
    text = "".join(file.read_text() for file in files)
    assert [name for name in list_contributed() if f"{name}" not in text] == []
