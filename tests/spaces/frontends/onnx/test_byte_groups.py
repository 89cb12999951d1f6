"""Networks in QDQ form: which nodes become nodes on bytes, and that they give the same bytes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from spaces.frontends.onnx.simplifier.simplify import simplify
from spaces.ir import tvm_compat
from tests.spaces.frontends.onnx.beside_onnxruntime import (
    Array,
    compare,
    number_of_programs,
    parsed,
)
from tests.spaces.frontends.onnx.quantizing_tools import plainly

pytestmark = pytest.mark.tvm

HEAD = '<ir_version: 8, opset_import: ["": 17]>'
RNG = np.random.default_rng(0)
STEPS = {"QuantizeLinear", "DequantizeLinear"}


@pytest.fixture(autouse=True)
def same_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whichever tests came before: numbers next to ties may become other bytes."""
    monkeypatch.setattr(f"{__name__}.RNG", np.random.default_rng(0))


def real(number: float | list[float]) -> Array:
    return np.array(number, "float32")


def drawn(dtype: str, *shape: int) -> Array:
    limits = np.iinfo(dtype)
    return RNG.integers(limits.min, limits.max + 1, shape).astype(dtype)


def network(body: str, given: str = "x", result: str = "uint8", **more: Any) -> Any:
    """What is quantized to `q` with scale `s` and zero point `z`, freed of that as `d`, and then
    becomes `y` by a body; `w` is a weight of 6 x 4 x 3 x 3 with a scale for each of 6 channels."""
    weights = {
        "s": real(0.02), "z": np.uint8(117), "t": real(0.11), "o": np.uint8(19),
        "w": drawn("int8", 6, 4, 3, 3), "ws": np.linspace(0.004, 0.009, 6, dtype="float32"),
        "wz": np.zeros(6, "int8"), "b": RNG.integers(-900, 900, 6).astype("int32"),
        "bs": real(0.02) * np.linspace(0.004, 0.009, 6, dtype="float32"),
        "bz": np.zeros(6, "int32"),
    }  # fmt: skip
    shape = "float[2,4,7,8]" if given == "x" else given
    text = f"""{HEAD} g ({shape} x) => ({result} y) {{
        q = QuantizeLinear(x, s, z) d = DequantizeLinear(q, s, z) {body} }}"""
    weights |= more
    return parsed(text, **{n: np.asarray(a) for n, a in weights.items() if f"{n}" in text})


def fed(*shape: int) -> dict[str, Array]:
    return {"x": RNG.normal(0, 1.2, shape or (2, 4, 7, 8)).astype("float32")}


def simplified(proto: Any) -> list[str]:
    """The operators of a graph that was made simpler, but for those between bytes and floats."""
    copy = type(proto)()
    copy.CopyFrom(proto)
    simplify(copy)
    return [node.op_type for node in copy.graph.node if node.op_type not in STEPS]


WEIGHT = "v = DequantizeLinear<axis = 0>(w, ws, wz) c = DequantizeLinear<axis = 0>(b, bs, bz)"
ROUND = "y = QuantizeLinear(r, t, o)"
CONV = "Conv<pads = [1, 0, 1, 2], strides = [2, 1]>"


@pytest.mark.parametrize(
    ("body", "operators"),
    [
        (f"{WEIGHT} r = {CONV}(d, v, c) {ROUND}", ["QLinearConv"]),
        (f"{WEIGHT} r = {CONV}(d, v) {ROUND}", ["QLinearConv"]),
        (f"{WEIGHT} e = {CONV}(d, v, c) r = Relu(e) {ROUND}", ["QLinearConv", "Max", "Min"]),
        (
            f"{WEIGHT} e = {CONV}(d, v, c) f = Clip(e, low, high) r = Relu(f) {ROUND}",
            ["QLinearConv", "Max", "Min"],
        ),
    ],
    ids=["bias", "plain", "relu", "clips"],
)
def test_convolutions_between_bytes(body: str, operators: list[str]) -> None:
    more: dict[str, Any] = {"low": real(-1.0), "high": real(2.0)}
    proto = network(body, result="uint8[a,b,c,d]", **more)
    assert simplified(proto) == operators
    compare(proto, fed(), steps=1)


def test_a_cut_that_bytes_do_anyway_takes_no_node() -> None:
    proto = network(
        f"{WEIGHT} e = {CONV}(d, v, c) r = Clip(e, low, high) {ROUND}",
        result="uint8[a,b,c,d]", o=np.uint8(0), t=real(6 / 255), low=real(0), high=real(6),
    )  # fmt: skip
    assert simplified(proto) == ["QLinearConv"]
    compare(proto, fed(), steps=1)


@pytest.mark.each_value
@pytest.mark.parametrize("group", [1, 2, 4])
@pytest.mark.parametrize("data", ["int8", "uint8"])
@pytest.mark.parametrize("weight", ["int8", "uint8"])
def test_signs_zero_points_and_groups(data: str, weight: str, group: int) -> None:
    middle = 0 if weight == "int8" else 131
    proto = network(
        f"""v = DequantizeLinear(w, ws, wz) r = Conv<group = {group}, pads = [1, 1, 1, 1]>(d, v)
        {ROUND}""",
        result=f"{data}[a,b,c,d]", z=np.array(5, data), o=np.array(3, data),
        w=drawn(weight, 4, 4 // group, 3, 3), ws=real(0.01), wz=np.array(middle, weight),
    )  # fmt: skip
    assert simplified(proto) == ["QLinearConv"]
    compare(proto, fed(), steps=1)


def test_a_bias_of_floats_is_rounded_to_steps_of_the_sums() -> None:
    body = f"{WEIGHT.split(' c =')[0]} r = {CONV}(d, v, b) {ROUND}"
    bias = RNG.standard_normal(6).astype("float32")
    proto = network(body, result="uint8[a,b,c,d]", b=bias)
    assert simplified(proto) == ["QLinearConv"]
    compare(proto, fed(), steps=1)
    coarse = network(body, result="uint8[a,b,c,d]", b=bias, t=real(2e-4))
    assert simplified(coarse) == ["Conv"], "a step of the sums is most of a step of the result"
    compare(coarse, fed(), steps=1)


def test_a_convolution_that_stays_a_float_sums_up_bytes() -> None:
    proto = network(f"{WEIGHT} y = {CONV}(d, v, c)", result="float[a,b,c,d]")
    assert simplified(proto)[0] == "ConvInteger"
    compare(proto, fed(), within=1e-5)


EACH = "v = DequantizeLinear<axis = 1>(w, ws, wz)"
ONE = "v = DequantizeLinear(w, one, wz)"
PRODUCTS = {
    "MatMul": (f"{EACH} r = MatMul(d, v)", (5, 7), "QLinearMatMul"),
    "stacked": (f"{ONE} r = MatMul(d, v)", (3, 5, 7), "QLinearMatMul"),
    "Gemm": (
        "v = DequantizeLinear<axis = 0>(w, ws, wz) r = Gemm<transB = 1>(d, v, c)",
        (7, 5),
        "MatMulInteger",
    ),
    "Gemm without bias": (f"{ONE} r = Gemm(d, v)", (5, 7), "QLinearMatMul"),
}


@pytest.mark.each_value
@pytest.mark.parametrize("kind", PRODUCTS)
@pytest.mark.parametrize("rounds", [True, False])
def test_products_with_weights(kind: str, rounds: bool) -> None:
    body, shape, operator = PRODUCTS[kind]
    dims = (3, 4, 5) if kind == "stacked" else (4, 5)
    body = f"{body} {ROUND}" if rounds else body.replace("r =", "y =")
    result = f"{'uint8' if rounds else 'float'}[{','.join('lmn'[-len(dims) :])}]"
    proto = network(
        body, f"float[{','.join(map(str, dims))}]", result,
        w=drawn("int8", *shape), ws=np.linspace(0.004, 0.009, 7, dtype="float32"), one=real(0.01),
        wz=np.zeros(() if ONE in body else 7, "int8"), c=RNG.standard_normal(7).astype("float32"),
    )  # fmt: skip
    assert simplified(proto)[0] == (operator if rounds else "MatMulInteger")
    compare(proto, fed(*dims), within=1e-4, steps=1)


def test_a_product_of_two_rows_of_bytes() -> None:
    proto = network(
        f"""k = Transpose<perm = [1, 0]>(x) l = QuantizeLinear(k, ks, kz)
        v = DequantizeLinear(l, ks, kz) r = MatMul(d, v) {ROUND}""",
        "float[6,9]", "uint8[m,n]", ks=real(0.03), kz=np.int8(-4),
    )  # fmt: skip
    assert "QLinearMatMul" in simplified(proto)
    compare(proto, fed(6, 9), steps=1)


@pytest.mark.each_value
@pytest.mark.parametrize(
    ("operator", "shape"),
    [
        ("MaxPool<kernel_shape = [3, 3], pads = [1, 1, 1, 1], strides = [2, 2]>(d)", "a,b,c,d"),
        ("Transpose<perm = [0, 2, 3, 1]>(d)", "a,b,c,d"),
        ("Flatten<axis = 2>(d)", "a,b"),
    ],
)
@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_what_moves_bytes_needs_no_floats(operator: str, shape: str, dtype: str) -> None:
    proto = network(
        f"r = {operator} y = QuantizeLinear(r, s, z)", result=f"{dtype}[{shape}]",
        z=np.array(-7 if dtype == "int8" else 7, dtype),
    )  # fmt: skip
    copy = type(proto)()
    copy.CopyFrom(proto)
    simplify(copy)
    assert [n.op_type for n in copy.graph.node] == ["QuantizeLinear", operator.split("<")[0]]
    compare(proto, fed())


@pytest.mark.parametrize(
    "body",
    [
        f'{WEIGHT} r = Conv<auto_pad = "SAME_UPPER">(d, v, c) {ROUND}',
        f"v = DequantizeLinear<axis = 1>(w, four, fz) r = {CONV}(d, v) {ROUND}",
        f"v = DequantizeLinear(half, hs) r = {CONV}(x, v) {ROUND}",
    ],
    ids=["says no padding", "scales of inputs", "rows of floats"],
)
def test_what_cannot_be_products_of_bytes_stays(body: str) -> None:
    more: dict[str, Any] = {
        "four": np.linspace(0.004, 0.009, 4, dtype="float32"),
        "fz": np.zeros(4, "int8"),
        "half": drawn("int8", 6, 4, 3, 3),
        "hs": real(0.01),
    }
    proto = network(body, result="uint8[a,b,c,d]", **more)
    assert "Conv" in simplified(proto)
    compare(proto, fed(), steps=1, peer=plainly)  # its optimiser breaks one of them


def test_a_result_that_others_read_as_well_stays_a_float() -> None:
    proto = network(f"{WEIGHT} r = {CONV}(d, v, c) e = QuantizeLinear(r, t, o) f = Cast<to = 1>(e)"
                    " y = Add(r, f)", result="float[a,b,c,d]")  # fmt: skip
    assert "ConvInteger" in simplified(proto)
    compare(proto, fed(), within=1e-4)


def layers(number: int) -> Any:
    body = "".join(
        f""" v{n} = DequantizeLinear(w, ws{n}, wz) r{n} = Conv<pads = [1, 1, 1, 1]>(d{n}, v{n})
        q{n + 1} = QuantizeLinear(r{n}, t{n}, o) d{n + 1} = DequantizeLinear(q{n + 1}, t{n}, o)"""
        for n in range(number)
    )
    more: dict[str, Any] = {f"ws{n}": real(0.01 + n / 1000) for n in range(number)}
    more |= {f"t{n}": real(0.1 + n / 10) for n in range(number)}
    return network(
        f"d0 = Identity(d) {body} y = Identity(q{number})", result="uint8[a,b,c,d]",
        w=drawn("int8", 4, 4, 3, 3), wz=np.int8(0), z=np.uint8(0), o=np.uint8(0), **more,
    )  # fmt: skip


def test_layers_that_differ_in_scales_alone_are_one_program() -> None:
    three, five = (compare(layers(number), fed(), steps=2) for number in (3, 5))
    assert number_of_programs(three) == number_of_programs(five)


ADDED = "e = QuantizeLinear(x, ks, kz) f = DequantizeLinear(e, ks, kz)"


@pytest.mark.each_value
@pytest.mark.parametrize(
    ("total", "rounded"), [("Add(d, f)", 2), ("Add(f, bias)", 1), ("Add(bias, d)", 1)]
)
@pytest.mark.parametrize("step", [0.11, 0.04], ids=["fine", "ties"])
def test_sums_of_bytes_that_are_bytes_need_no_division(
    total: str, rounded: int, step: float
) -> None:
    """Where steps are twice as long as those of a term, every other sum is a tie."""
    proto = network(
        f"{ADDED} r = {total} {ROUND}", result="uint8[a,b,c,d]", t=real(step),
        ks=real(0.02 if step == 0.04 else 0.07), kz=np.int8(-4),
        bias=np.linspace(-1, 1, 8, dtype="float32"),
    )  # fmt: skip
    module = compare(proto, fed(), steps=1)
    divisions = [f.script().count(" / ") for _, f in tvm_compat.prim_funcs(module)]
    assert sum(divisions) == rounded, "only what is rounded first is divided"


def test_a_sum_that_others_read_stays_one_of_floats() -> None:
    proto = network(
        f"{ADDED} r = Add(d, f) g = QuantizeLinear(r, t, o) h = DequantizeLinear(g, t, o)"
        " y = Mul(r, h)",
        result="float[a,b,c,d]", ks=real(0.07), kz=np.int8(-4),
    )  # fmt: skip
    compare(proto, fed(), within=1e-4)


def kinds_of_zeros(proto: Any) -> list[str]:
    """The types of the first zero points of a graph's nodes, once it was made simpler."""
    copy = type(proto)()
    copy.CopyFrom(proto)
    simplify(copy)
    types = {tensor.name: tensor.data_type for tensor in copy.graph.initializer}
    named = {2: "uint8", 3: "int8"}
    return [named[types[n.input[2]]] for n in copy.graph.node if len(n.input) > 2]


@pytest.mark.parametrize("zero", [-128, 5])
@pytest.mark.parametrize("moves", ["", "MaxPool<kernel_shape = [2, 2]>"])
def test_signed_bytes_that_nobody_sees_become_unsigned(moves: str, zero: int) -> None:
    first = f"m = {moves}(d) n = QuantizeLinear(m, s, z) k = DequantizeLinear(n, s, z)"
    proto = network(
        f"""{first if moves else "k = DequantizeLinear(q, s, z)"} {WEIGHT} r = {CONV}(k, v, c)
        p = QuantizeLinear(r, t, o) e = DequantizeLinear(p, t, o) y = Relu(e)""",
        result="float[a,b,c,d]", z=np.int8(zero), o=np.int8(-7),
    )  # fmt: skip
    compare(proto, fed(), within=0.12)
    assert set(kinds_of_zeros(proto)) == {"uint8"}


@pytest.mark.parametrize(
    ("body", "kinds"),
    [
        (f"{WEIGHT} r = {CONV}(d, v, c) {ROUND}", ["uint8", "uint8"]),
        ("y = Transpose(q)", ["int8"]),
    ],
    ids=["what is between", "a result"],
)
def test_results_keep_their_type(body: str, kinds: list[str]) -> None:
    proto = network(body, result="int8[a,b,c,d]", z=np.int8(3), o=np.int8(-9))
    assert kinds_of_zeros(proto) == kinds
    compare(proto, fed(), steps=1)


def test_bytes_stay_signed_beside_unsigned_factors() -> None:
    """CPUs multiply signed by unsigned bytes, either way around."""
    proto = network(
        f"v = DequantizeLinear(w, ws, wz) r = Conv(d, v) {ROUND}",
        result="int8[a,b,c,d]", z=np.int8(5), o=np.int8(3),
        w=drawn("uint8", 4, 4, 3, 3), ws=real(0.01), wz=np.uint8(131),
    )  # fmt: skip
    assert kinds_of_zeros(proto) == ["int8", "int8"]
    compare(proto, fed(), steps=1)
