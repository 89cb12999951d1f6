"""`GroupQueryAttention`: what onnxruntime computes, at many lengths, with a cache and without."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
import pytest

from spaces.ir.symbolic import value_of
from spaces.lowering.relax_rewrite import tir_calls
from tests.spaces.frontends.onnx.beside_onnxruntime import (
    Array,
    Feeds,
    by_onnxruntime,
    compare,
    lowered,
    refusal,
)

pytestmark = pytest.mark.tvm

long = pytest.mark.long
RNG = np.random.default_rng(0)
Dims = dict[str, tuple[int | str, ...]]
HEADS, SHARED, WIDTH, MOST = 4, 2, 16, 64
"""Heads of queries, of keys and values, how wide each is, and rows of tables for rotation."""
OPERANDS = (
    *("query", "key", "value", "past_k", "past_v", "last", "total", "cosines", "sines"),
    *("places", "bias", "sink", "k_scale", "v_scale", "q_norm", "k_norm", "lengths"),
)
CALL: Dims = {
    "query": ("b", "s", HEADS * WIDTH),
    **dict.fromkeys(("key", "value"), ("b", "s", SHARED * WIDTH)),
}
PAST: Dims = dict.fromkeys(("past_k", "past_v"), ("b", SHARED, "p", WIDTH))
TABLES: Dims = dict.fromkeys(("cosines", "sines"), (MOST, WIDTH // 2))
NORMS: Dims = dict.fromkeys(("q_norm", "k_norm"), (WIDTH,))


def network(
    operands: Mapping[str, tuple[int | str, ...]],
    dtype: str = "float32",
    *,
    tidy: bool = True,
    **said: Any,
) -> Any:
    """One node. Its lengths follow from a mask of (batch, total), as model builders have it.

    Args:
        operands: shapes of those that are floats, and of `places`; known ones are weights.
        tidy: whether what is nobody's, such as rows of queries that are padding, is made 0.
    """
    info, node, proto = onnx.helper.make_tensor_value_info, onnx.helper.make_node, onnx.TensorProto
    real = onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    present = {*operands, "last", "total"}
    names = [name if name in present else "" for name in OPERANDS]
    while not names[-1]:
        names.pop()
    constants = {"one": np.array([1]), "place": np.array(1), "single": np.array(1, "int32")}
    for name, shape in operands.items():
        if all(isinstance(size, int) for size in shape):
            constants[name] = RNG.standard_normal(shape).astype(dtype)
    tidied = onnx.parser.parse_graph("""g (float all_y) => (float y) {
        zero, unit = Split<axis = 0, num_outputs = 2>(range) none = Cast<to = 7>(zero)
        first = Squeeze(zero) step = Squeeze(unit) ends = Unsqueeze(marked, unit)
        length = Shape<start = 2, end = 3>(all_k) rows = Squeeze(length)
        filled = Range(first, rows, step) inside = Less(filled, ends)
        kept = Unsqueeze(inside, axes) nothing = CastLike(zero, all_y)
        present_k = Where(kept, all_k, nothing) present_v = Where(kept, all_v, nothing)
        calls = Shape<start = 1, end = 2>(all_y) called = Squeeze(calls)
        numbers = Range(first, called, step) missed = Sub(ends, calls) before = Max(missed, zero)
        at = Add(before, numbers) some = Less(at, ends) two = Add(unit, unit)
        part = Unsqueeze(some, two) y = Where(part, all_y, nothing) }""").node
    constants |= {"range": np.array([0, 1]), "axes": np.array([1, 3])}
    nodes = [
        node("ReduceSum", ["mask", "one"], ["marked"], keepdims=0),
        node("Cast", ["marked"], ["number"], to=proto.INT32),
        node("Sub", ["number", "single"], ["last"]),
        node("Shape", ["mask"], ["mask_shape"]),
        node("Gather", ["mask_shape", "place"], ["columns"], axis=0),
        node("Cast", ["columns"], ["total"], to=proto.INT32),
        node("GroupQueryAttention", names, ["all_y", "all_k", "all_v"], "heads",
             domain="com.microsoft", num_heads=HEADS, kv_num_heads=SHARED, **said),
        *(tidied if tidy else ()),
    ]  # fmt: skip
    given = [
        info(name, proto.INT64 if name == "places" else real, shape)
        for name, shape in operands.items()
        if name not in constants
    ]
    graph = onnx.helper.make_graph(
        nodes,
        "g",
        [*given, info("mask", proto.INT64, ("b", "t"))],
        [
            info(name, real, None)
            for name in (("y", "present_k", "present_v") if tidy else ("all_y", "all_k", "all_v"))
        ],
        [onnx.numpy_helper.from_array(array, name) for name, array in constants.items()],
    )
    opsets = [onnx.helper.make_opsetid("", 18), onnx.helper.make_opsetid("com.microsoft", 1)]
    return onnx.helper.make_model(graph, opset_imports=opsets, ir_version=10)


def feeds_of(proto: Any, rows: int, past: int, ends: tuple[int, ...], room: int = 0) -> Feeds:
    """What is fed in.

    Args:
        rows: of this call.
        past: rows of the buffer that is given.
        ends: how many keys each of a batch has after this call.
        room: that the buffer has besides.
    """
    total = max(ends)
    sizes = {"b": len(ends), "s": rows, "p": past + room, "t": total}
    found: dict[str, Array] = {}
    for value in proto.graph.input:
        tensor = value.type.tensor_type
        shape = [d.dim_value or sizes[d.dim_param] for d in tensor.shape.dim]
        dtype = onnx.helper.tensor_dtype_to_np_dtype(tensor.elem_type)
        if value.name == "mask":
            found[value.name] = (np.arange(total) < np.array(ends)[:, None]).astype("int64")
        elif value.name == "places":
            found[value.name] = np.array(ends)[:, None] - rows + np.arange(rows)
        else:
            found[value.name] = RNG.standard_normal(shape).astype(dtype)
    return found


def check(proto: Any, *calls: tuple[Any, ...], within: float = 1e-4) -> None:
    fed = [feeds_of(proto, *call) for call in calls]
    compare(proto, *fed, peer=by_onnxruntime, within=within)


@pytest.mark.parametrize(
    ("operands", "said"),
    [
        (CALL | PAST, {}),
        (CALL | PAST | TABLES, {"do_rotary": 1}),
        (CALL | PAST | TABLES, {"do_rotary": 1, "rotary_interleaved": 1, "scale": 0.3}),
        (CALL | PAST, {"local_window_size": 3, "softcap": 2.0}),
        (CALL | PAST, {"smooth_softmax": 1}),
        (CALL | PAST | {"sink": (HEADS,)}, {}),
        (CALL | PAST | {"bias": ("b", 1, "s", "t")}, {}),
        (CALL | PAST | TABLES | {"places": ("b", "s")}, {"do_rotary": 1}),
        ({"query": ("b", "s", (HEADS + 2 * SHARED) * WIDTH)} | PAST | TABLES, {"do_rotary": 1}),
        (CALL | PAST, {"causal": 0}),
    ],
    ids=[
        *("plain", "rotary", "interleaved", "a window and a soft cap", "a smooth softmax", "sinks"),
        *("a bias", "places", "one operand", "both ways"),
    ],
)
def test_prompts_and_steps_with_a_growing_cache(
    operands: Mapping[str, tuple[int | str, ...]], said: Mapping[str, Any]
) -> None:
    proto = network(operands, **said)
    check(proto, (5, 0, (5,)), (1, 5, (6,)), (1, 9, (10, 10)), (3, 4, (7,)))


@pytest.mark.each_value
@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("said", [{}, {"local_window_size": 2}], ids=["all", "a window"])
def test_a_batch_of_several_lengths(said: Mapping[str, Any], dtype: str) -> None:
    """Prompts are padded on the right; then each has keys of its own number."""
    proto = network(CALL | PAST | TABLES, dtype, do_rotary=1, **said)
    within = 1e-4 if dtype == "float32" else 1e-2
    check(proto, (6, 0, (6, 2, 4)), (1, 6, (7, 3, 5)), within=within)


@pytest.mark.parametrize("ties", [(), (("t", "p+s"),)])
def test_each_cache_is_written_once(ties: tuple[tuple[str, str], ...]) -> None:
    """Whatever its length: not made longer by one program and filled by another."""
    module = lowered(network(CALL | PAST | TABLES, tidy=False, do_rotary=1), ties=ties)
    written = [call.ty_args[0].shape.values for call in tir_calls(module)]
    sizes = {"b": 1, "s": 1, "p": 40, "t": 30}
    length = 41 if ties else 40
    shapes = [[value_of(dim, sizes) for dim in dims] for dims in written]
    assert shapes.count([1, SHARED, length, WIDTH]) == 2  # keys and values
    assert any("max" in str(dim) for dims in written for dim in dims) == (not ties)


def test_buffers_that_are_longer_than_what_they_hold() -> None:
    """As where past and present are one buffer."""
    proto = network(CALL | PAST | TABLES | {"bias": (1, HEADS, "s", "t")}, do_rotary=1)
    check(proto, (4, 0, (4, 2), 12), (1, 4, (5, 3), 8), (3, 4, (7,), 9), (1, 9, (10,), 0))


@pytest.mark.parametrize("past", [{}, PAST], ids=["no past", "a past"])
def test_sizes_that_are_known(past: Mapping[str, Any]) -> None:
    sizes = {"b": 2, "s": 3 if not past else 1, "t": 3, "p": 2}
    proto = network(CALL | past | TABLES, do_rotary=1)
    for value in proto.graph.input:
        for dim in value.type.tensor_type.shape.dim:
            if dim.dim_param:
                dim.dim_value = sizes[dim.dim_param]
    check(proto, (sizes["s"], sizes["p"] if past else 0, (3, 3)))


def test_a_call_without_past() -> None:
    check(network(CALL | TABLES, do_rotary=1), (5, 0, (5, 3)), (1, 0, (1,)))


def test_norms_of_heads() -> None:
    """Which onnxruntime has for devices alone: it is given what they make of queries and keys."""
    proto = network(CALL | PAST | TABLES | NORMS, do_rotary=1, qk_norm_epsilon=1e-5)
    weights = {t.name: onnx.numpy_helper.to_array(t) for t in proto.graph.initializer}

    def norm(rows: Array, scale: Array) -> Array:
        heads = rows.reshape(*rows.shape[:2], -1, WIDTH)
        root = np.sqrt((heads**2).mean(-1, keepdims=True) + 1e-5)
        return (heads / root * scale).reshape(rows.shape)

    def peer(_proto: Any, feeds: Feeds) -> Any:
        plain = type(proto)()
        plain.CopyFrom(proto)
        (call,) = (n for n in plain.graph.node if n.op_type == "GroupQueryAttention")
        del call.input[9:]
        normal = {
            n: norm(feeds[f], weights[n]) for n, f in (("q_norm", "query"), ("k_norm", "key"))
        }
        fed = {**feeds, "query": normal["q_norm"], "key": normal["k_norm"]}
        return by_onnxruntime(plain, fed)

    fed = [feeds_of(proto, *call) for call in ((5, 0, (5,)), (1, 5, (6, 6)))]
    compare(proto, *fed, peer=peer, within=1e-4)


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ({"sliding_window_cache": 1, "local_window_size": 4}, "windowed_kv_cache=false"),
        ({"qk_output": 1}, "qk_output"),
        ({"k_quant_type": "PER_TENSOR"}, "what is past is quantized"),
        ({"kv_num_heads": 3}, "heads share no keys"),
    ],
)
def test_what_is_not_taken_is_refused(said: Mapping[str, Any], why: str) -> None:
    proto = network(CALL | PAST)
    (call,) = (node for node in proto.graph.node if node.op_type == "GroupQueryAttention")
    kept = [a for a in call.attribute if a.name not in said]
    del call.attribute[:]
    call.attribute.extend([*kept, *(onnx.helper.make_attribute(*pair) for pair in said.items())])
    message = refusal(proto)
    assert why in message
    assert "operator com.microsoft.GroupQueryAttention (node heads)" in message


def test_a_length_that_only_a_run_knows_is_refused() -> None:
    proto = network(CALL | PAST)
    (node,) = (node for node in proto.graph.node if node.output[0] == "total")
    proto.graph.node.remove(node)
    info = onnx.helper.make_tensor_value_info("total", onnx.TensorProto.INT32, ())
    proto.graph.input.append(info)
    assert "does not follow from the shapes of inputs" in refusal(proto)
