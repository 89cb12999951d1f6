"""`If`, `Loop` and `Scan` whose steps are known, imported as what these come to."""

from __future__ import annotations

import numpy as np
import pytest

from tests.spaces.frontends.onnx.beside_onnxruntime import (
    Array,
    compare,
    number_of_programs,
    parsed,
    refusal,
)

pytestmark = pytest.mark.tvm

long = pytest.mark.long
HEAD = '<ir_version: 8, opset_import: ["" : 17]>'
RNG = np.random.default_rng(0)
W = RNG.standard_normal((4, 4)).astype("float32")


def floats(*shape: int) -> Array:
    return RNG.standard_normal(shape).astype("float32")


def loop(trips: str, goes_on: str = "more = Identity(going)", condition: str = "") -> str:
    """A product with a weight again and again, all of its steps kept."""
    return f"""{HEAD} g (float[batch,4] x) => (float[batch,4] last, float[n,batch,4] all) {{
        trips = Constant<value = int64 {{{trips}}}>()
        ten = Constant<value = int64 {{10}}>()
        true = Constant<value = bool {{1}}>()
        last, all = Loop(trips, {condition}, x) <body = b
            (int64 step, bool going, float[batch,4] now)
            => (bool more, float[batch,4] next, float[batch,4] kept)
            {{ {goes_on}  product = MatMul(now, w)  next = Tanh(product)  kept = Neg(next) }}>
    }}"""


@pytest.mark.parametrize(
    ("trips", "goes_on", "condition"),
    [
        ("1", "more = Identity(going)", ""),
        ("5", "more = Identity(going)", "true"),
        ("18", "more = Constant<value = bool {1}>()", ""),
        ("4000", "more = Less(step, ten)", "true"),
    ],
    ids=["one step", "a condition handed on", "a constant condition", "a condition on the step"],
)
def test_a_loop_is_done_step_by_step(trips: str, goes_on: str, condition: str) -> None:
    proto = parsed(loop(trips, goes_on, condition), w=W)
    compare(proto, {"x": floats(3, 4)}, {"x": floats(1, 4)})


def test_steps_share_their_programs() -> None:
    few, many = (compare(parsed(loop(trips), w=W), {"x": floats(2, 4)}) for trips in ("6", "16"))
    assert number_of_programs(few) == number_of_programs(many)


def test_a_step_knows_its_number() -> None:
    compare(
        parsed(f"""{HEAD} g (float[6,b] x) => (float[b] sum, float[3,2,b] pairs) {{
            trips = Constant<value = int64 {{3}}>()
            one = Constant<value = int64[1] {{1}}>()
            two = Constant<value = int64[1] {{2}}>()
            zero = Constant<value = int64 {{0}}>()
            first = Gather(x, zero)
            start = Sub(first, first)
            sum, pairs = Loop(trips, , start) <body = b
                (int64 i, bool c, float[b] s) => (bool d, float[b] t, float[2,b] pair) {{
                    d = Identity(c)
                    row = Gather(x, i)
                    t = Add(s, row)
                    begin = Mul(i, two)
                    end = Add(begin, two)
                    pair = Slice(x, begin, end)
                }}>
        }}"""),
        {"x": floats(6, 2)},
        {"x": floats(6, 5)},
    )


def test_names_within_are_not_seen_outside_and_constants_are_within() -> None:
    """Both branches, and the graph itself, have a `y` and a `k`."""
    compare(
        parsed(f"""{HEAD} g (float[2,3] x) => (float[2,3] z) {{
            k = Constant<value = float {{2}}>()
            y = Mul(x, k)
            trips = Constant<value = int64 {{2}}>()
            inner = Loop(trips, , y) <body = outer_body
                (int64 i, bool c, float[2,3] s) => (bool d, float[2,3] t) <float k2 = {{3}}> {{
                    d = Identity(c)
                    zero = Constant<value = int64 {{0}}>()
                    odd = Greater(i, zero)
                    u = If(odd) <then_branch = t () => (float[2,3] r) {{
                            p = Mul(s, k2)  r = Add(p, x) }},
                        else_branch = e () => (float[2,3] r) {{ p = Neg(s)  r = Sub(p, x) }}>
                    t = Loop(trips, , u) <body = inner_body
                        (int64 j, bool e, float[2,3] v) => (bool f, float[2,3] w) {{
                            f = Identity(e)  m = Mul(v, k)  w = Add(m, s) }}>
                }}>
            z = Add(inner, y)
        }}"""),
        {"x": floats(2, 3)},
    )


def test_a_loop_of_no_step_hands_on_what_it_is_given() -> None:
    compare(
        parsed(f"""{HEAD} g (float[2] x) => (float[2] y) {{
            trips = Constant<value = int64 {{0}}>()
            y = Loop(trips, , x) <body = b (int64 i, bool c, float[2] s) => (bool d, float[2] t)
                {{ d = Identity(c)  t = Neg(s) }}>
        }}"""),
        {"x": floats(2)},
    )


SCANS = {
    "as they stand": "",
    "turned": ", scan_input_directions = [0, 1], scan_output_directions = [1, 0]",
    "along other axes": ", scan_input_axes = [-2, 0], scan_output_axes = [0, -1]",
}


@pytest.mark.parametrize(
    ("name", "length"),
    [
        ("as they stand", 1),
        pytest.param("as they stand", 5, marks=long),
        pytest.param("as they stand", 18, marks=long),
        pytest.param("turned", 1, marks=long),
        pytest.param("turned", 5, marks=long),
        ("turned", 18),
        pytest.param("along other axes", 1, marks=long),
        ("along other axes", 5),
        pytest.param("along other axes", 18, marks=long),
    ],
)
def test_a_scan_is_done_step_by_step(name: str, length: int) -> None:
    b, said = 2, SCANS[name]
    rows = f"float[{length},{b},3]"
    proto = parsed(f"""{HEAD} g (float[{b},3] start, {rows} x, {rows} y)
        => (float[{b},3] last, float[n,{b},3] sums, float[k,l,m] products) {{
            last, sums, products = Scan<num_scan_inputs = 2 {said}, body = b
                (float[{b},3] s, float[{b},3] p, float[{b},3] q)
                => (float[{b},3] t, float[{b},3] u, float[{b},3] v)
                {{ t = Add(s, p)  u = Identity(t)  v = Mul(t, q) }}>(start, x, y)
        }}""")
    if "axes" in said:
        proto.graph.input[1].type.tensor_type.shape.CopyFrom(
            parsed(f"{HEAD} g (float[{b},{length},3] x) => (float[1] x) {{}}")
            .graph.input[0]
            .type.tensor_type.shape
        )
        feeds = {"start": floats(b, 3), "x": floats(b, length, 3), "y": floats(length, b, 3)}
    else:
        feeds = {"start": floats(b, 3), "x": floats(length, b, 3), "y": floats(length, b, 3)}
    compare(proto, feeds)


@pytest.mark.parametrize(
    ("proto", "why"),
    [
        (parsed(loop("257"), w=W), "it takes more than 256 steps, which are unrolled"),
        (
            parsed(f"""{HEAD} g (float[2] x, int64 n) => (float[2] y) {{
                y = Loop(n, , x) <body = b (int64 i, bool c, float[2] s) => (bool d, float[2] t)
                {{ d = Identity(c)  t = Neg(s) }}> }}"""),
            "how many steps it takes is known only when the model runs",
        ),
        (
            parsed(f"""{HEAD} g (float[2] x) => (float[2] y) {{
                true = Constant<value = bool {{1}}>()
                y = Loop(, true, x) <body = b (int64 i, bool c, float[2] s) => (bool d, float[2] t)
                {{ t = Neg(s)  sum = ReduceSum<keepdims = 0>(t)
                   zero = Constant<value = float {{0}}>()
                   d = Less(sum, zero) }}> }}"""),
            "whether it goes on is known only when the model runs",
        ),
        (
            parsed(f"""{HEAD} g (float[n,2] x, float[2] z) => (float[2] y) {{
                y = Scan<num_scan_inputs = 1, body = b (float[2] s, float[2] p) => (float[2] t)
                {{ t = Add(s, p) }}>(z, x) }}"""),
            "how many steps it takes is no number but n",
        ),
        (
            parsed(f"""{HEAD} g (float[300,2] x, float[2] z) => (float[2] y) {{
                y = Scan<num_scan_inputs = 1, body = b (float[2] s, float[2] p) => (float[2] t)
                {{ t = Add(s, p) }}>(z, x) }}"""),
            "it takes 300 steps, and 1 to 256 are unrolled",
        ),
    ],
)
def test_steps_that_are_not_known_or_too_many_are_refused(proto: object, why: str) -> None:
    said = refusal(proto)
    assert why in said
    assert "operator Loop (node of output " in said or "operator Scan (node of output y)" in said


def test_an_unknown_operator_within_a_graph_is_named() -> None:
    proto = parsed(f"""{HEAD} g (float[2] x) => (float[2] y) {{
        trips = Constant<value = int64 {{2}}>()
        y = Loop(trips, , x) <body = b (int64 i, bool c, float[2] s) => (bool d, float[2] t)
            {{ d = Identity(c)  t = Det(s) }}>
    }}""")
    assert "does not know operator Det (node of output t)" in refusal(proto)
