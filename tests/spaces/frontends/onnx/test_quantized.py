"""Products and convolutions of 8-bit integers: the integers that onnxruntime computes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.spaces.frontends.onnx.beside_onnxruntime import compare, parsed, refusal

pytestmark = pytest.mark.tvm

HEAD = '<ir_version: 8, opset_import: ["" : 17]>'
RNG = np.random.default_rng(0)


def numbers(dtype: str, *shape: int) -> Any:
    limits = np.iinfo(dtype)
    return RNG.integers(limits.min, limits.max + 1, shape).astype(dtype)


@pytest.mark.parametrize("pads", ["0, 0, 0, 0", "1, 2, 0, 1"])
@pytest.mark.parametrize("more", ["", ", strides = [2, 1], dilations = [1, 2]"])
def test_a_convolution_of_bytes_has_exact_sums(pads: str, more: str) -> None:
    proto = parsed(
        f"""{HEAD} g (uint8[2,3,7,8] x) => (int32[n,c,h,w] y) {{
        y = ConvInteger<pads = [{pads}]{more}>(x, w, xz) }}""",
        w=numbers("uint8", 4, 3, 3, 2),
        xz=np.array(113, dtype="uint8"),
    )
    compare(proto, {"x": numbers("uint8", 2, 3, 7, 8)})


@pytest.mark.parametrize("each", [(), (4,)], ids=["one scale", "a scale for each channel"])
def test_a_quantized_convolution_gives_the_bytes_of_onnxruntime(each: tuple[int, ...]) -> None:
    proto = parsed(
        f"""{HEAD} g (uint8[2,4,6,6] x) => (uint8[n,c,h,w] y) {{
        y = QLinearConv<pads = [1, 1, 1, 1], group = 2>(x, xs, xz, w, ws, wz, ys, yz, b) }}""",
        xs=np.array(0.03, dtype="float32"),
        xz=np.array(120, dtype="uint8"),
        w=numbers("int8", 4, 2, 3, 3),
        ws=np.linspace(0.02, 0.05, 4, dtype="float32")[: each[0] if each else 1].reshape(each),
        wz=np.zeros(each, dtype="int8"),
        ys=np.array(0.25, dtype="float32"),
        yz=np.array(7, dtype="uint8"),
        b=RNG.integers(-500, 500, 4).astype("int32"),
    )  # fmt: skip
    compare(proto, {"x": numbers("uint8", 2, 4, 6, 6)})


@pytest.mark.parametrize("right", ["int8", "uint8"])
def test_a_quantized_product_gives_the_bytes_of_onnxruntime(right: str) -> None:
    proto = parsed(
        f"""{HEAD} g (uint8[m,16] x) => (uint8[k,l] y) {{
        y = QLinearMatMul(x, xs, xz, w, ws, wz, ys, yz) }}""",
        xs=np.array(0.5, dtype="float32"),
        xz=np.array(3, dtype="uint8"),
        w=numbers(right, 16, 5),
        ws=np.array(0.25, dtype="float32"),
        wz=np.array(2, dtype=right),
        ys=np.array(16, dtype="float32"),
        yz=np.array(128, dtype="uint8"),
    )
    compare(proto, *({"x": numbers("uint8", rows, 16)} for rows in (1, 3, 8)))


@pytest.mark.parametrize("operator", ["MatMulInteger", "DynamicQuantizeLinear"])
def test_what_tvm_converts_is_the_same_too(operator: str) -> None:
    if operator == "MatMulInteger":
        proto = parsed(
            f"{HEAD} g (uint8[3,16] x) => (int32[k,l] y) {{ y = MatMulInteger(x, w, z) }}",
            w=numbers("int8", 16, 5),
            z=np.array(9, dtype="uint8"),
        )
        compare(proto, {"x": numbers("uint8", 3, 16)})
    else:
        proto = parsed(
            f"""{HEAD} g (float[3,16] x) => (uint8[k,l] y, float s, uint8 z) {{
            y, s, z = DynamicQuantizeLinear(x) }}"""
        )
        compare(proto, {"x": RNG.normal(size=(3, 16)).astype("float32")})


def test_padding_that_follows_from_the_size_is_refused_in_one_line() -> None:
    proto = parsed(
        f"""{HEAD} g (uint8[2,3,7,8] x) => (int32[n,c,h,w] y) {{
        y = ConvInteger<auto_pad = "SAME_UPPER">(x, w) }}""",
        w=numbers("uint8", 4, 3, 3, 2),
    )
    assert "operator ConvInteger (node of output y)" in refusal(proto)
