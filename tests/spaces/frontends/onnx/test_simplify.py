"""What a graph is made before it is imported: fewer nodes, and the same values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import pytest

from spaces.frontends.onnx.simplifier.simplify import simplify
from tests.spaces.frontends.onnx.beside_onnxruntime import Array, Feeds, compare, parsed

pytestmark = pytest.mark.tvm
RNG = np.random.default_rng(0)


def drawn(*shape: int) -> Array:
    return RNG.normal(size=shape).astype("float32")


def operators(proto: Any) -> list[str]:
    return [node.op_type for node in proto.graph.node]


def simplified(proto: Any) -> list[str]:
    """The operators that are left."""
    copy = type(proto)()
    copy.CopyFrom(proto)
    simplify(copy)
    onnx.checker.check_model(copy)
    return operators(copy)


def as_written(proto: Any, feeds: Feeds) -> Sequence[Array]:
    """What onnxruntime gives without simplifying anything itself."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    found: Sequence[Array] = onnxruntime.InferenceSession(proto.SerializeToString(), options).run(
        None, dict(feeds)
    )
    return found


def same_values(proto: Any, *feeds: Array) -> Any:
    """The simplified graph, which gives what the graph did."""
    copy = type(proto)()
    copy.CopyFrom(proto)
    simplify(copy)
    onnx.checker.check_model(copy)
    names = [value.name for value in proto.graph.input]
    given = dict(zip(names, feeds, strict=True))
    for want, got in zip(as_written(proto, given), as_written(copy, given), strict=True):
        assert (got.dtype, got.shape) == (want.dtype, want.shape)
        np.testing.assert_allclose(got, want, rtol=2e-4, atol=1e-5)
    return copy


def test_weights_that_stay_are_not_copied() -> None:
    """A protobuf keeps the memory of what is replaced in it: a model would be there twice."""
    proto = parsed(
        """<ir_version: 8, opset_import: ["": 17]>
        small (float[2,3] x) => (float[2,3] y) { y = Mul(x, large) }""",
        large=drawn(2, 3),
        unused=drawn(2, 3),
    )
    before = {tensor.name: tensor for tensor in proto.graph.initializer}
    simplify(proto)
    (large,) = proto.graph.initializer
    assert large is before["large"]


def convolution(
    operator: str, then: str, rank: int = 4, *, given: str = "x", groups: int = 1, **weights: Array
) -> tuple[Any, Array]:
    """A convolution of four channels to four, four elements wide, and what follows it."""
    x = drawn(1, 4, *[4] * (rank - 2))
    pads = ",".join(["1"] * 2 * (rank - 2))
    shape = ",".join(map(str, x.shape))
    proto = parsed(
        f"""<ir_version: 8, opset_import: ["": 17]>
        g (float[{shape}] x) => (float[{",".join("NCHWD"[:rank])}] y) {{
            t = {operator}<pads = [{pads}], group = {groups}>({given}, w, b)
            {then}
        }}""",
        w=drawn(4, 4 // groups, *[3] * (rank - 2)),
        b=drawn(4),
        **weights,
    )
    return proto, x


BOTH = pytest.mark.parametrize("operator", ["Conv", "ConvTranspose"])
CHANNELS = ((), (1,), (4, 1, 1), (1, 4, 1, 1), (1, 1, 1, 1))
OTHERS = ((4,), (4, 1), (1, 1, 4, 1), (2, 1, 1, 1), (1, 4, 4, 1), (1, 1, 1, 1, 1))


@BOTH
@pytest.mark.each_value
@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("shape", CHANNELS)
def test_a_number_for_each_channel_goes_into_the_convolution(
    operator: str, groups: int, shape: Sequence[int]
) -> None:
    then = "u = Mul(t, k) v = Add(m, u) y = Sub(v, k)"
    weights = {"k": drawn(*shape), "m": drawn(*shape)}
    proto, x = convolution(operator, then, groups=groups, **weights)
    assert operators(same_values(proto, x)) == [operator]


@pytest.mark.parametrize("then", ["y = Div(t, k)", "y = Sub(k, t)", "y = Mul(k, t)"])
def test_quotients_and_differences_do_so(then: str) -> None:
    proto, x = convolution("Conv", then, k=drawn(4, 1, 1))
    assert operators(same_values(proto, x)) == ["Conv"]


@BOTH
@pytest.mark.each_value
@pytest.mark.parametrize("shape", OTHERS)
def test_a_constant_along_another_axis_stays(operator: str, shape: Sequence[int]) -> None:
    for then in ("Mul(t, k)", "Add(t, k)"):
        proto, x = convolution(operator, f"y = {then}", k=drawn(*shape))
        if len(shape) < 5:
            assert len(same_values(proto, x).graph.node) == 2
        else:
            assert len(simplified(proto)) == 2


def test_a_constant_that_makes_the_result_larger_stays() -> None:
    proto = parsed(
        """<ir_version: 8, opset_import: ["": 17]>
        g (float[1,2,4] x) => (float[N,C,W] y) { t = Conv(x, w) y = Add(t, k) }""",
        w=drawn(1, 2, 1),
        k=drawn(1, 3, 1),
    )
    assert operators(same_values(proto, drawn(1, 2, 4))) == ["Conv", "Add"]


@BOTH
@pytest.mark.each_value
@pytest.mark.parametrize("rank", [3, 4, 5])
def test_a_batch_norm_goes_into_the_convolution(operator: str, rank: int) -> None:
    stats = {"s": drawn(4), "o": drawn(4), "m": drawn(4), "v": np.abs(drawn(4)) + 1}
    then = "y = BatchNormalization<epsilon = 0.01>(t, s, o, m, v)"
    proto, x = convolution(operator, then, rank, groups=2, **stats)
    assert operators(same_values(proto, x)) == [operator]


def test_weights_that_others_share_are_left_to_them() -> None:
    then = "p = Mul(t, k) u = Conv<pads = [1,1,1,1]>(x, w, b) y = Add(p, u)"
    proto, x = convolution("Conv", then, k=drawn(4, 1, 1))
    assert operators(same_values(proto, x)) == ["Conv", "Conv", "Add"]


@pytest.mark.parametrize("then", ["p = Mul(t, k) y = Add(p, t)", "u = Mul(t, t) y = Mul(u, k)"])
def test_a_result_that_others_read_is_not_changed(then: str) -> None:
    proto, x = convolution("Conv", then, k=drawn(4, 1, 1))
    assert operators(same_values(proto, x)) == ["Conv", *operators(proto)[1:]]


def test_an_output_of_the_model_is_not_changed() -> None:
    proto, x = convolution("Conv", "y = Mul(t, k)", k=drawn(4, 1, 1))
    proto.graph.output.append(onnx.helper.make_tensor_value_info("t", 1, [None] * 4))
    assert operators(same_values(proto, x)) == ["Conv", "Mul"]


@pytest.mark.parametrize("factor", [1e-39, np.inf, np.nan, 3e38])
def test_a_factor_that_a_weight_cannot_take_stays(factor: float) -> None:
    proto, _ = convolution("Conv", "y = Mul(t, k)", k=np.array(factor, "float32"))
    assert simplified(proto) == ["Conv", "Mul"]


def test_a_division_by_zero_stays() -> None:
    proto, _ = convolution("Conv", "y = Div(t, k)", k=np.array(0, "float32"))
    assert simplified(proto) == ["Conv", "Div"]


def padded(pad: str, pads: Sequence[int], *, opset: int = 18, conv: str = "", **more: Any) -> Any:
    """A graph that pads an image, and then convolves it."""
    arrays = {name: np.array(values) for name, values in {"p": pads, **more}.items()}
    return parsed(
        f"""<ir_version: 8, opset_import: ["": {opset}]>
        g (float[1,3,4,4] x) => (float[N,C,H,W] y) {{
            t = {pad}
            y = Conv{conv}(t, w)
        }}""",
        w=drawn(4, 3, 2, 2),
        **arrays,
    )


@pytest.mark.parametrize(
    ("proto", "pads"),
    [
        (padded("Pad(x, p)", [0, 0, 1, 0, 0, 0, 2, 1]), [1, 0, 2, 1]),
        (padded("Pad(x, p)", [0, 0, 1, 0, 0, 0, 2, 1], conv="<pads=[1,1,1,1]>"), [2, 1, 3, 2]),
        (padded('Pad<mode="constant">(x, p, z)', [0] * 7 + [1], z=np.float32(0)), [0, 0, 0, 1]),
        (padded("Pad(x, p, , a)", [0, 1, 2, 3], a=[2, 3]), [0, 1, 2, 3]),
        (padded("Pad(x, p, , a)", [0, 1, 2, 3], a=[-1, -2]), [1, 0, 3, 2]),
        (padded("Pad(x, p)", [0] * 7 + [1], conv='<auto_pad="VALID">'), [0, 0, 0, 1]),
        (padded("Pad<pads=[0,0,1,0,0,0,0,1]>(x)", [0], opset=10), [1, 0, 0, 1]),
    ],
)
def test_a_convolution_pads_with_zeros_itself(proto: Any, pads: list[int]) -> None:
    if proto.opset_import[0].version > 10:  # the reference does not have the older one
        same_values(proto, drawn(1, 3, 4, 4))
    simplify(proto)
    (conv,) = proto.graph.node
    assert [*next(a.ints for a in conv.attribute if a.name == "pads")] == pads


@pytest.mark.parametrize(
    "proto",
    [
        padded("Pad(x, p)", [0, 0, -1, 0, 0, 0, 2, 1]),
        padded("Pad(x, p)", [1, 0, 0, 0, 0, 0, 2, 1]),
        padded("Pad(x, p)", [0, 0, 0, 0, 1, 0, 2, 1]),
        padded('Pad<mode="edge">(x, p)', [0, 0, 1, 0, 0, 0, 2, 1]),
        padded("Pad(x, p, z)", [0, 0, 1, 0, 0, 0, 2, 1], z=np.float32(1)),
        padded("Pad(x, p, , a)", [1, 1], a=[0]),
        padded("Pad(x, p)", [0] * 7 + [1], conv='<auto_pad="SAME_UPPER">'),
    ],
)
def test_other_padding_stays(proto: Any) -> None:
    assert operators(same_values(proto, drawn(1, 3, 4, 4))) == ["Pad", "Conv"]


def test_padding_of_a_result_that_others_read_stays() -> None:
    proto = padded("Pad(x, p)", [0, 0, 1, 0, 0, 0, 2, 1])
    proto.graph.output.append(onnx.helper.make_tensor_value_info("t", 1, [None] * 4))
    assert operators(same_values(proto, drawn(1, 3, 4, 4))) == ["Pad", "Conv"]


def of_constants(text: str, **weights: Array) -> Any:
    return parsed(
        f'<ir_version: 8, opset_import: ["": 17]> g (float[2] x) => (float[N] y) {{ {text} }}',
        **weights,
    )


def test_constants_with_other_bits_are_not_merged() -> None:
    zeros = {"a": np.zeros(2, "float32"), "b": -np.zeros(2, "float32")}
    proto = of_constants(
        "e = Exp(x) s = Mul(e, a) t = Mul(e, b) p = Div(x, s) q = Div(x, t) y = Sub(p, q)", **zeros
    )
    assert len(simplified(proto)) == 6
    x = np.ones(2, "float32")
    assert same_values(proto, x)
    (want,) = as_written(proto, {"x": x})
    assert np.all(want == np.inf)
    compare(proto, {"x": x})


def test_equal_nodes_of_equal_constants_become_one() -> None:
    same = {"a": np.arange(2, dtype="float32"), "b": np.arange(2, dtype="float32")}
    proto = of_constants("s = Mul(x, a) t = Mul(x, b) p = Exp(s) q = Exp(t) y = Add(p, q)", **same)
    assert operators(same_values(proto, drawn(2))) == ["Mul", "Exp", "Add"]


@pytest.mark.parametrize(
    "text",
    [
        "s = Exp(x) t = Sin(x) y = Add(s, t)",
        "s = Selu<alpha = 1.5>(x) t = Selu(x) y = Add(s, t)",
        "s = RandomNormalLike(x) t = RandomNormalLike(x) y = Sub(s, t)",
    ],
)
def test_nodes_that_differ_stay(text: str) -> None:
    assert len(simplified(of_constants(text))) == 3


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("t = Identity(x) u = Dropout(t) y = Exp(u)", ["Exp"]),
        ("t, m = Dropout(x, , f) y = Exp(t)", ["Exp"]),
        ("t = Exp(x) y = Identity(t)", ["Exp", "Identity"]),
        ("t, m = Dropout(x) y = Where(m, t, x)", ["Dropout", "Where"]),
    ],
)
def test_what_only_copies_goes(text: str, left: list[str]) -> None:
    proto = of_constants(text, f=np.array(False))
    assert operators(same_values(proto, drawn(2))) == left


def test_what_drops_elements_stays() -> None:
    proto = of_constants("t = Dropout(x, , f) y = Exp(t)", f=np.array(True))
    assert simplified(proto) == ["Dropout", "Exp"]


def test_an_output_stays_under_its_name() -> None:
    proto = of_constants("y = Exp(x) z = Exp(x)")
    proto.graph.output.append(onnx.helper.make_tensor_value_info("z", 1, [2]))
    same_values(proto, drawn(2))


def test_what_a_branch_reads_stays_under_its_name() -> None:
    branch = "s = Exp(x) t = Exp(x) y = If(c) <then_branch = a () => (float[2] p) { p = Neg(t) },"
    proto = of_constants(f"{branch} else_branch = b () => (float[2] q) {{ q = Abs(t) }}>")
    proto.graph.initializer.append(onnx.numpy_helper.from_array(np.array(True), "c"))
    same_values(proto, drawn(2))
    compare(proto, {"x": drawn(2)})


@pytest.mark.parametrize(
    ("text", "weights"),
    [
        ("w = Transpose(a) v = Reshape(w, s) y = Add(x, v)", {"a": drawn(1, 2)}),
        ("w = Cast<to = 1>(s) v = Sqrt(w) y = Sub(x, v)", {}),
        ("w = Constant<value_floats = [1.5, 2.5]>() v = Exp(w) y = Mul(x, v)", {}),
        ("w = ConstantOfShape(s) y = Add(x, w)", {}),
        ("w = Div(a, z) y = Mul(x, w)", {"a": drawn(2), "z": np.array([0, -0.0], "float32")}),
    ],
)
def test_what_follows_from_constants_is_computed(text: str, weights: dict[str, Array]) -> None:
    proto = of_constants(text, s=np.array([2]), **weights)
    assert len(same_values(proto, drawn(2)).graph.node) == 1


@pytest.mark.parametrize(
    "text",
    [
        "w = RandomNormal<shape = [2]>() y = Add(x, w)",
        "i = Div(s, z) w = Cast<to = 1>(i) y = Add(x, w)",
        "w = ReduceMean<axes = [1], keepdims = 0>(h) v = Cast<to = 1>(w) y = Add(x, v)",
    ],
)
def test_what_the_reference_may_have_wrong_is_not(text: str) -> None:
    weights = {"s": np.array([2]), "z": np.array([0]), "h": drawn(2, 2).astype("float16")}
    proto = of_constants(text, **weights)
    assert len(simplified(proto)) == len(proto.graph.node)


def test_what_would_not_fit_into_memory_is_left_to_the_run() -> None:
    proto = of_constants(
        "w = Expand(a, s) v = ReduceMax<keepdims = 0>(w) y = Add(x, v)",
        a=drawn(1),
        s=np.array([1 << 40]),
    )
    assert len(simplified(proto)) == 3


def test_what_nobody_reads_goes() -> None:
    proto = of_constants("y = Exp(x) z = Loop(x)", a=drawn(3))
    copy = type(proto)()
    copy.CopyFrom(proto)
    simplify(copy)
    assert operators(copy) == ["Exp"]
    assert not copy.graph.initializer


def test_nodes_may_stand_in_any_order() -> None:
    proto = of_constants("y = Exp(s) s = Sin(x)")
    compare(proto, {"x": drawn(2)}, peer=lambda _, feeds: [np.exp(np.sin(feeds["x"]))])


def test_what_a_run_knows_the_size_of_comes_first() -> None:
    proto = parsed(
        """<ir_version: 8, opset_import: ["": 17]>
        g (int32 x) => (float[N] y) {
            zero = Constant<value = float {0.0}>() one = Constant<value = float {1.0}>()
            size = Cast<to = 1>(x) s = Sub(size, one) t = Mul(s, size) d = Div(one, t)
            r = Range(zero, size, one) y = Mul(r, d)
        }"""
    )
    compare(proto, {"x": np.array(5, "int32")})


def test_a_transpose_of_a_single_row_is_a_reshape() -> None:
    proto = parsed(
        """<ir_version: 8, opset_import: ["": 17]>
        g (float[1,N,4] x) => (float[N,A,B] y) { y = Transpose<perm = [1, 0, 2]>(x) }"""
    )
    module = compare(proto, {"x": drawn(1, 5, 4)})
    assert "transpose" not in str(module)


def test_other_transposes_are_none() -> None:
    proto = parsed(
        """<ir_version: 8, opset_import: ["": 17]>
        g (float[2,1,3] x) => (float[A,B,C] y) { y = Transpose(x) }"""
    )
    compare(proto, {"x": drawn(2, 1, 3)})


def test_a_model_from_memory_stays_as_it_is() -> None:
    proto, x = convolution("Conv", "y = Mul(t, k)", k=drawn(4, 1, 1))
    before = proto.SerializeToString()
    compare(proto, {"x": x}, within=1e-4)
    assert proto.SerializeToString() == before
