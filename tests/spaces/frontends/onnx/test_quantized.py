"""Products and convolutions of 8-bit integers: the integers that onnxruntime computes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from typing import Any

import numpy as np
import onnx
import pytest

from spaces.frontends.declared import resolve
from spaces.frontends.onnx.model import read_onnx_proto
from spaces.lowering.extract_tasks import extract
from spaces.lowering.lower import lower
from spaces.templates.registry import templates_of
from tests.spaces.frontends.onnx.beside_onnxruntime import (
    Feeds,
    by_onnxruntime,
    compare,
    parsed,
    refusal,
    run_scheduled,
)
from tuner.dynamic.shapes import NO_DOMAIN
from tuner.task import Task

pytestmark = pytest.mark.tvm

HEAD = '<ir_version: 8, opset_import: ["" : 17]>'
VNNI = '{"kind":"llvm","mcpu":"cascadelake","mtriple":"x86_64-unknown-linux-gnu","num-cores":1}'
RNG = np.random.default_rng(0)


def numbers(dtype: str, *shape: int) -> Any:
    limits = np.iinfo(dtype)
    return RNG.integers(limits.min, limits.max + 1, shape).astype(dtype)


@pytest.mark.each_value
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


def products() -> Iterator[Any]:
    """Zero points of both sides, and whether the weights are known; half of them."""
    for place, (left, right) in enumerate(product(("", "one", "rows"), ("", "one", "columns"))):
        for known in (True, False):
            marks = () if known == (place % 2 == 0) else (pytest.mark.long,)
            said = "weights known" if known else "both fed"
            yield pytest.param(left, right, known, marks=marks, id=f"{left}-{right}-{said}")


@pytest.mark.each_value
@pytest.mark.parametrize(("left", "right", "known"), [*products()])
def test_an_integer_product_takes_its_zero_points_off(left: str, right: str, known: bool) -> None:
    shapes = {"": (), "one": (), "rows": (6,), "columns": (5,)}
    weights = {
        "a": numbers("uint8", *shapes[left]) if left else None,
        "b": numbers("int8", *shapes[right]) if right else None,
        "w": numbers("int8", 16, 5) if known else None,
    }
    fed = {"x": numbers("uint8", 6, 16)} | ({} if known else {"w": numbers("int8", 16, 5)})
    declared = ", ".join(f"{v.dtype}[{v.shape[0]},{v.shape[1]}] {n}" for n, v in fed.items())
    proto = parsed(
        f"""{HEAD} g ({declared}) => (int32[k,l] y) {{
        y = MatMulInteger(x, w, {"a" * bool(left)}, {"b" * bool(right)}) }}""",
        **{name: array for name, array in weights.items() if array is not None},
    )

    def exactly(_proto: Any, feeds: Feeds) -> Sequence[Any]:
        zero = np.int32(0) if weights["a"] is None else weights["a"].astype("int32")
        centred = feeds["x"].astype("int32") - zero.reshape(-1, 1)
        columns = feeds["w"] if weights["w"] is None else weights["w"]
        return [centred @ (columns.astype("int32") - np.int32(0 if not right else weights["b"]))]

    compare(proto, fed, peer=exactly)
    if left != "rows":  # which onnxruntime does not take
        if not known:  # of weights that are fed it adds up in full only where the CPU has VNNI
            proto.graph.initializer.append(onnx.numpy_helper.from_array(fed["w"], "w"))
        (found,), (wanted,) = by_onnxruntime(proto, {"x": fed["x"]}), exactly(proto, fed)
        assert found.dtype == wanted.dtype
        np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("pads", ["0, 0, 0, 0", "1, 1, 1, 1"])
def test_a_zero_point_may_be_known_when_the_model_runs_only(pads: str) -> None:
    proto = parsed(
        f"""{HEAD} g (float[1,3,6,6] x, float[4,8] v) => (float[n,c,h,w] y, float[r,l] u) {{
        xq, xs, xz = DynamicQuantizeLinear(x)
        total = ConvInteger<pads = [{pads}]>(xq, w, xz)
        real = Cast<to = 1>(total)
        y = Mul(real, xs)
        vq, vs, vz = DynamicQuantizeLinear(v)
        sums = MatMulInteger(vq, m, vz)
        sum = Cast<to = 1>(sums)
        u = Mul(sum, vs) }}""",
        w=numbers("int8", 4, 3, 3, 3),
        m=numbers("int8", 8, 5),
    )
    fed = {"x": RNG.normal(size=(1, 3, 6, 6)), "v": RNG.normal(size=(4, 8))}
    compare(proto, {name: array.astype("float32") for name, array in fed.items()})


def test_quantizing_while_the_model_runs_gives_the_bytes_of_onnxruntime() -> None:
    proto = parsed(
        f"""{HEAD} g (float[3,16] x) => (uint8[k,l] y, float s, uint8 z) {{
        y, s, z = DynamicQuantizeLinear(x) }}"""
    )
    compare(proto, {"x": RNG.normal(size=(3, 16)).astype("float32")})


def test_halves_are_rounded_to_even_and_what_is_far_out_is_cut_off() -> None:
    proto = parsed(
        f"""{HEAD} g (uint8[n,1] x) => (uint8[k,l] y) {{
        y = QLinearMatMul(x, xs, xz, w, ws, wz, ys, yz) }}""",
        xs=np.array(0.5, dtype="float32"), xz=np.array(100, dtype="uint8"),
        w=np.array([[1, -1, 127]], dtype="int8"),
        ws=np.array([1, 1, 1e6], dtype="float32"), wz=np.zeros(3, dtype="int8"),
        ys=np.array(1, dtype="float32"), yz=np.array(7, dtype="uint8"),
    )  # fmt: skip
    fed = {"x": np.arange(256, dtype="uint8").reshape(-1, 1)}
    halves = np.rint((np.arange(256) - 100) / 2)
    wanted = [halves, -halves, np.sign(np.arange(256) - 100) * 1e9]
    (found,) = by_onnxruntime(proto, fed)
    np.testing.assert_array_equal(found, np.clip(np.stack(wanted, 1) + 7, 0, 255).astype("uint8"))
    compare(proto, fed)


@pytest.mark.each_value
@pytest.mark.parametrize("each", ["", "<axis = 0>"], ids=["one scale", "a scale for each row"])
@pytest.mark.parametrize("dtype", ["uint8", "int8"])
def test_what_is_quantized_is_rounded_to_even(each: str, dtype: str) -> None:
    rows = np.array([[-8e9, -3.5, -2.5, -0.5, 0.5], [1.5, 2.5, 63.5, 127.5, 8e9]], dtype="float32")
    scale = np.array([1, 2] if each else 1, dtype="float32")
    proto = parsed(
        f"""{HEAD} g (float[2,5] x) => ({dtype}[k,l] y, float[k,l] z) {{
        y = QuantizeLinear{each}(x, s, p)
        z = DequantizeLinear{each}(y, s, p) }}""",
        s=scale,
        p=np.full(scale.shape, 3, dtype=dtype),
    )
    compare(proto, {"x": rows * scale.reshape(-1, 1)})


def quantized_convolution(scale: float) -> Any:
    """One whose result has this scale."""
    return parsed(
        f"""{HEAD} g (uint8[1,16,12,12] x) => (uint8[n,c,h,w] y) {{
        y = QLinearConv<pads = [1, 1, 1, 1]>(x, s, z, w, s, wz, t, z, b) }}""",
        s=np.array(0.1, dtype="float32"), z=np.array(3, dtype="uint8"),
        w=numbers("int8", 32, 16, 3, 3), wz=np.array(0, dtype="int8"),
        t=np.array(scale, dtype="float32"), b=RNG.integers(-500, 500, 32).astype("int32"),
    )  # fmt: skip


@pytest.mark.parametrize(
    "seeds", [(0,), pytest.param((1, 2), marks=pytest.mark.long)], ids=["one", "more"]
)
@pytest.mark.parametrize("operator", ["QLinearConv", "QLinearMatMul"])
def test_scheduled_programs_give_the_same_bytes(operator: str, seeds: tuple[int, ...]) -> None:
    scales = {"s": np.array(0.1, dtype="float32"), "z": np.array(3, dtype="uint8")}
    if operator == "QLinearConv":
        proto = quantized_convolution(31.7)
        fed = {"x": numbers("uint8", 1, 16, 12, 12)}
    else:
        proto = parsed(
            f"""{HEAD} g (uint8[24,64] x) => (uint8[k,l] y) {{
            y = QLinearMatMul(x, s, z, w, s, wz, t, z) }}""",
            w=numbers("int8", 64, 48), wz=np.array(0, dtype="int8"),
            t=np.array(31.7, dtype="float32"), **scales,
        )  # fmt: skip
        fed = {"x": numbers("uint8", 24, 64)}
    module = compare(proto, fed)
    (wanted,) = by_onnxruntime(proto, fed)
    assert len(np.unique(wanted)) > 50, "most are not cut off"
    for seed in seeds:
        (found,) = run_scheduled(module, fed, seed)
        np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("operator", ["QLinearConv", "MatMulInteger"])
def test_bytes_are_multiplied_in_groups(operator: str) -> None:
    scales = {"s": np.array(0.1, dtype="float32"), "z": np.array(3, dtype="uint8")}
    if operator == "QLinearConv":
        proto = quantized_convolution(0.1)
    else:
        proto = parsed(
            f"{HEAD} g (uint8[16,64] x) => (int32[k,l] y) {{ y = MatMulInteger(x, w, z) }}",
            w=numbers("int8", 64, 48), **scales,
        )  # fmt: skip
    names = [t.name for task in tasks(proto, VNNI) for t in templates_of(task)]
    assert any("-of-groups-" in name for name in names)


def tasks(proto: Any, target: str) -> list[Task]:
    """What is tuned of a model."""
    source = read_onnx_proto(proto, "small")
    module = source.imported(resolve(source.declared), NO_DOMAIN)
    return extract(lower(module, target), target)


def test_padding_that_follows_from_the_size_is_refused_in_one_line() -> None:
    proto = parsed(
        f"""{HEAD} g (uint8[2,3,7,8] x) => (int32[n,c,h,w] y) {{
        y = ConvInteger<auto_pad = "SAME_UPPER">(x, w) }}""",
        w=numbers("uint8", 4, 3, 3, 2),
    )
    assert "operator ConvInteger (node of output y)" in refusal(proto)
