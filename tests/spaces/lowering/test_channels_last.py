"""Graphs moved to channels-last: the same numbers, and as few conversions as there can be."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from spaces.codegen.executable import compile_module, run_once
from spaces.frontends.model import load_model
from spaces.ir import tvm_compat
from spaces.lowering.layouts import channels_last as module_under_test
from spaces.lowering.layouts.channels_last import channels_last, conversions
from spaces.lowering.layouts.gains import cuda_gains
from spaces.lowering.lower import lower
from spaces.lowering.relax_rewrite import tensor_bytes
from tuner.request.model_spec import ModelSpec
from tuner.request.target_text import tf32

pytestmark = pytest.mark.tvm

EXAMPLES = Path(__file__).parents[3] / "examples"
LLVM = '{"kind":"llvm","num-cores":1}'


def cuda(arch: str) -> str:
    return f'{{"kind":"cuda","arch":"{arch}"}}'


def random(*shape: int) -> Any:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype("float32")


def const(*shape: int) -> Any:
    from tvm import relax

    return relax.const(random(*shape))


def graph(compute: Callable[[Any, Any], Any], shape: tuple[Any, ...] = (1, 8, 12, 12)) -> Any:
    """A graph of one input, all that `compute` nests emitted."""
    from tvm import relax

    b = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType(shape, "float32"))
    with b.function("main", [x]):
        with b.dataflow():
            out = b.emit_output(b.normalize(compute(b, x)))
        b.emit_func_output(out)
    return b.get()


def conv(b: Any, x: Any, out: int = 64, size: int = 3, groups: int = 1, **more: Any) -> Any:
    """A convolution, big enough to be worth it."""
    from tvm import relax

    channels = int(x.ty.shape[1])
    weight = const(out, channels // groups, size, size)
    return b.emit(relax.op.nn.conv2d(x, weight, padding=size // 2, groups=groups, **more))


def plain(module: Any) -> Any:
    """Compiled as it is, nothing moved."""
    from tvm import relax, transform
    from tvm.target import Target

    passes = [relax.transform.DecomposeOpsForInference(), relax.transform.LegalizeOps()]
    with Target({"kind": "llvm", "num-cores": 1}):
        return compile_module(transform.Sequential(passes)(module), LLVM)


def check(module: Any, shape: tuple[int, ...] = (1, 8, 12, 12)) -> Any:
    """See that lowering changes no number; the graph moved."""
    x = random(*shape)
    expected = run_once(plain(module), [x])
    for got, want in zip(run_once(compile_module(lower(module, LLVM), LLVM), [x]), expected):  # noqa: B905
        assert got.shape == want.shape
        np.testing.assert_allclose(got, want, rtol=1e-3, atol=1e-3)
    return channels_last(module)


def test_a_number_that_is_computed_is_the_same_in_both_layouts() -> None:
    """As the zero point of what is quantized while the network runs."""
    from tvm import relax

    def compute(b: Any, x: Any) -> Any:
        largest = b.emit(relax.op.max(x))
        twice = b.emit(relax.op.add(largest, largest))
        return b.emit(relax.op.subtract(conv(b, x), twice))

    assert "NHWC" in check(graph(compute)).script()


def convolutions(module: Any) -> list[Any]:
    calls = [b.value for block in module["main"].body.blocks for b in block.bindings]
    return [call for call in calls if tvm_compat.operator_name(call) == "relax.nn.conv2d"]


def layouts(module: Any) -> list[str]:
    return [str(call.attrs.data_layout) for call in convolutions(module)]


def between(*middles: Callable[[Any, Any], Any]) -> Any:
    """The graph of something between two convolutions; of several, each between its own two."""
    from tvm import relax

    def convolved(b: Any, x: Any, middle: Callable[[Any, Any], Any]) -> Any:
        value = middle(b, conv(b, x))
        return conv(b, value if isinstance(value, relax.Var) else b.emit(value))

    def compute(b: Any, x: Any) -> Any:
        found = [convolved(b, x, middle) for middle in middles]
        return found[0] if len(found) == 1 else relax.Tuple(found)

    return graph(compute)


def middles() -> dict[str, Callable[[Any, Any], Any]]:
    from tvm import relax

    op = relax.op

    def prelu(b: Any, x: Any) -> Any:
        return op.nn.prelu(x, const(64), axis=1)

    def halves(b: Any, x: Any) -> Any:
        parts = b.emit(op.split(x, 2, axis=1))
        first, second = (b.emit(relax.TupleGetItem(parts, i)) for i in (0, 1))
        return op.concat([second, first], axis=1)

    def steps(b: Any, x: Any, number: int) -> Any:
        """Rounded to steps of 16 bits, fine enough that a tie makes no difference."""
        scale = relax.const(np.linspace(5e-5, 1e-4, number, dtype="float32"))
        zero = relax.const(np.arange(number, dtype="int16"))
        whole = b.emit(op.quantize(x, scale, zero, axis=1, out_dtype="int16"))
        return op.dequantize(whole, scale, zero, axis=1)

    return {
        "bias": lambda b, x: op.add(x, const(1, 64, 1, 1)),
        "bias without batch": lambda b, x: op.add(const(64, 1, 1), x),
        "along the last axis": lambda b, x: op.multiply(x, const(12)),
        "a number": lambda b, x: op.multiply(x, relax.const(2.0, "float32")),
        "relu": lambda b, x: op.nn.relu(x),
        "leaky relu": lambda b, x: op.nn.leakyrelu(x, 0.2),
        "clip": lambda b, x: op.clip(x, -1, 1),
        "residual": lambda b, x: op.add(x, conv(b, x, size=1)),
        "concat": lambda b, x: op.concat([x, conv(b, x, 32, size=1)], axis=1),
        "split": halves,
        "prelu": prelu,
        "max pool": lambda b, x: op.nn.max_pool2d(x, (3, 3), (2, 2), (1, 1), ceil_mode=True),
        "average pool": lambda b, x: op.nn.avg_pool2d(x, (2, 2), (2, 2)),
        "adaptive pool": lambda b, x: op.nn.adaptive_avg_pool2d(x, (6, 6)),
        "pad": lambda b, x: op.nn.pad(x, (0, 0, 1, 0, 2, 1, 0, 3)),
        "softmax": lambda b, x: op.nn.softmax(x, axis=1),
        "gate": lambda b, x: op.multiply(
            x, b.emit(op.sigmoid(b.emit(op.mean(x, [2, 3], keepdims=True))))
        ),
        "steps": lambda b, x: steps(b, x, 1),
        "steps of channels": lambda b, x: steps(b, x, 64),
        "depthwise": lambda b, x: conv(b, x, groups=64),
        "grouped": lambda b, x: conv(b, x, groups=4, strides=(2, 2)),
    }


# Spelt out, since making them needs TVM.
MIDDLES = [
    *("bias", "bias without batch", "along the last axis", "a number", "relu", "leaky relu"),
    *("clip", "residual", "concat", "split", "prelu", "max pool", "average pool"),
    *("adaptive pool", "pad", "softmax", "gate", "steps", "steps of channels"),
    *("depthwise", "grouped"),
]


@pytest.mark.parametrize("name", MIDDLES)
def test_what_is_between_convolutions_moves_with_them(name: str) -> None:
    moved = channels_last(between(middles()[name]))
    assert set(layouts(moved)) == {"NHWC"}
    assert conversions(moved) == 2  # the graph's own input and output


@pytest.mark.parametrize("names", [MIDDLES[n::3] for n in range(3)], ids=" - ".join)
def test_what_moves_with_convolutions_computes_the_same(names: list[str]) -> None:
    moved = check(between(*(middles()[name] for name in names)))
    assert set(layouts(moved)) == {"NHWC"}
    assert conversions(moved) == 1 + len(names)


def test_every_middle_is_tried() -> None:
    assert list(middles()) == MIDDLES, "one that is not listed is not tried"


def test_a_weight_changes_layout_ahead() -> None:
    lowered = lower(graph(lambda b, x: conv(b, x)), LLVM)
    shapes = [
        tvm_compat.param_shape(f.params[1])
        for n, f in tvm_compat.prim_funcs(lowered)
        if "conv2d" in n
    ]
    assert shapes == [[3, 3, 8, 64]]


def test_a_convolution_is_fused_with_what_follows() -> None:
    from tvm import relax

    def compute(b: Any, x: Any) -> Any:
        first = b.emit(relax.op.add(conv(b, x), const(1, 64, 1, 1)))
        second = b.emit(relax.op.add(conv(b, first), first))
        return conv(b, b.emit(relax.op.nn.relu(second)))

    found = [n for n, _ in tvm_compat.prim_funcs(lower(graph(compute), LLVM))]
    convolutions = [n for n in found if "transpose" not in n]
    assert convolutions == ["conv2d1", "fused_conv2d1_add1_relu", "fused_conv2d_add"]


def test_pooling_away_the_map_needs_no_conversion() -> None:
    from tvm import relax

    def compute(b: Any, x: Any) -> Any:
        pooled = b.emit(relax.op.nn.adaptive_avg_pool2d(conv(b, x), (1, 1)))
        return relax.op.reshape(pooled, (1, 64))

    module = graph(compute)
    assert conversions(check(module)) == 1
    found = [n for n, _ in tvm_compat.prim_funcs(lower(module, LLVM))]
    assert not [n for n in found if n.startswith("reshape")] or len(found) == 4


def test_a_mean_that_drops_axes_needs_no_conversion() -> None:
    from tvm import relax

    assert conversions(check(graph(lambda b, x: relax.op.mean(conv(b, x), [2, 3])))) == 1
    kept = graph(lambda b, x: relax.op.mean(conv(b, x), [3]))
    assert conversions(check(kept)) == 2


def test_an_operator_without_a_rule_gets_its_layout_back() -> None:
    from tvm import relax

    def flatten(b: Any, x: Any) -> Any:
        wide = b.emit(relax.op.reshape(x, (1, 8, 96, 12)))
        return relax.op.reshape(wide, (1, 64, 12, 12))

    moved = check(between(flatten))
    assert layouts(moved) == ["NHWC", "NHWC"]
    assert conversions(moved) == 4


def test_transposes_of_a_channels_last_model_cancel() -> None:
    from tvm import relax

    def compute(b: Any, x: Any) -> Any:
        first = b.emit(relax.op.permute_dims(x, (0, 3, 1, 2)))
        return relax.op.permute_dims(conv(b, first), (0, 2, 3, 1))

    from tvm.relax.transform import DeadCodeElimination

    moved = check(graph(compute, (1, 12, 12, 8)), (1, 12, 12, 8))
    assert conversions(DeadCodeElimination()(moved)) == 0


def test_a_transposed_convolution_stays_and_others_move() -> None:
    from tvm import relax

    def compute(b: Any, x: Any) -> Any:
        up = b.emit(relax.op.nn.conv2d_transpose(conv(b, x), const(64, 16, 2, 2), strides=(2, 2)))
        return conv(b, up)

    assert layouts(check(graph(compute))) == ["NHWC", "NHWC"]


def test_a_convolution_of_a_weight_that_is_no_constant_stays() -> None:
    from tvm import relax

    def compute(b: Any, x: Any) -> Any:
        return relax.op.nn.conv2d(x, b.emit(relax.op.nn.relu(b.emit(relax.op.exp(x)))), padding=6)

    assert layouts(check(graph(compute))) == ["NCHW"]


def test_a_conversion_costs_what_its_bytes_take_to_move() -> None:
    from tvm import relax

    for kind, item in (("float32", 4), ("float16", 2), ("uint8", 1), ("bool", 1)):
        assert tensor_bytes(relax.Var("x", relax.TensorType((2, 3, 5, 7), kind))) == 210 * item


def test_a_small_convolution_stays() -> None:
    moved = channels_last(graph(lambda b, x: conv(b, x, 8, groups=8)))
    assert layouts(moved) == ["NCHW"]


@pytest.mark.parametrize(
    ("target", "dtype", "number", "wanted"),
    [
        (cuda("sm_80"), "float16", 2, "NHWC"),
        (cuda("sm_90a"), "bfloat16", 2, "NHWC"),
        (cuda("sm_75"), "float16", 2, "NCHW"),
        (cuda("sm_90a"), "float32", 2, "NCHW"),
        (cuda("sm_90a"), "float32", 6, "NHWC"),
        (cuda("sm_80"), "float32", 6, "NCHW"),
        (tf32(cuda("sm_80")), "float32", 2, "NHWC"),
        (tf32(cuda("sm_75")), "float32", 6, "NCHW"),
    ],
)
def test_on_a_gpu_those_move_that_gain_more_than_conversions_cost(
    target: str, dtype: str, number: int, wanted: str
) -> None:
    """Singles that threads multiply gain little, and only where all instructions take time from
    products."""
    from tvm import relax
    from tvm.target import Target

    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((4, 64, 28, 28), dtype))
    with builder.function("main", [x]):
        with builder.dataflow():
            found: Any = x
            for _ in range(number):
                weight = relax.const(random(64, 64, 3, 3).astype("float32"), dtype)
                found = builder.emit(relax.op.nn.conv2d(found, weight, padding=1))
                found = builder.emit(relax.op.nn.relu(found))
            found = builder.emit_output(found)
        builder.emit_func_output(found)
    gains = cuda_gains(Target(json.loads(target)))
    module = builder.get()
    moved = module if gains is None else channels_last(module, gains)
    assert layouts(moved) == [wanted] * number
    assert conversions(moved) == (2 if wanted == "NHWC" else 0)


@pytest.mark.parametrize(("channels", "wanted"), [(48, "OHWI"), (40, "HWIO")])
def test_kernels_of_bytes_have_their_channels_last_where_these_come_in_whole_loads(
    channels: int, wanted: str
) -> None:
    from tvm import relax
    from tvm.target import Target

    builder, rng = relax.BlockBuilder(), np.random.default_rng(0)
    x = relax.Var("x", relax.TensorType((2, channels, 28, 28), "uint8"))
    kernel = rng.integers(-128, 128, (64, channels, 3, 3), "int8")
    with builder.function("main", [x]):
        with builder.dataflow():
            summed = relax.op.nn.conv2d(x, relax.const(kernel), padding=1, out_dtype="int32")
            found = builder.emit_output(relax.op.astype(builder.emit(summed), "int8"))
        builder.emit_func_output(found)
    module = builder.get()
    moved = channels_last(module, cuda_gains(Target(json.loads(cuda("sm_80")))))
    (call,) = convolutions(moved)
    assert (call.attrs.data_layout, call.attrs.kernel_layout) == ("NHWC", wanted)
    image = rng.integers(0, 256, (2, channels, 28, 28), "uint8")
    (expected,), (got,) = (run_once(plain(each), [image]) for each in (module, moved))
    np.testing.assert_array_equal(got, expected)


def test_symbolic_sizes_move_too() -> None:
    from tvm import tirx

    n = tirx.Var("n", "int64")
    module = graph(lambda b, x: conv(b, conv(b, x)), (n, 8, 12, 12))
    moved = channels_last(module)
    assert layouts(moved) == ["NHWC", "NHWC"]
    x = random(3, 8, 12, 12)
    (expected,) = run_once(plain(module), [x])
    (got,) = run_once(compile_module(lower(module, LLVM), LLVM), [x])
    np.testing.assert_allclose(got, expected, rtol=1e-3, atol=1e-3)


def test_a_graph_that_names_a_size_itself_moves_too() -> None:
    from tvm import relax, tirx

    n = tirx.Var("n", "int64")

    def compute(b: Any, x: Any) -> Any:
        pooled = b.emit(relax.op.mean(conv(b, conv(b, x)), [2, 3], keepdims=True))
        return relax.op.reshape(pooled, (n, 64))

    assert layouts(channels_last(graph(compute, (n, 8, 12, 12)))) == ["NHWC", "NHWC"]


def test_several_results_come_out_channels_first() -> None:
    from tvm import relax

    def compute(b: Any, x: Any) -> Any:
        first = conv(b, x)
        return relax.Tuple([first, conv(b, first, 32)])

    check(graph(compute))


def test_a_graph_without_convolutions_is_left_alone() -> None:
    from tvm import relax
    from tvm_ffi import structural_equal

    module = graph(lambda b, x: relax.op.nn.relu(x))
    assert structural_equal(channels_last(module), module)


def test_a_gpu_keeps_its_layouts() -> None:
    lowered = lower(graph(lambda b, x: conv(b, x)), '{"kind":"cuda","arch":"sm_80"}')
    ((_, program),) = tvm_compat.prim_funcs(lowered)
    assert tvm_compat.param_shape(program.params[1]) == [64, 8, 3, 3]


def test_where_moving_fails_the_model_is_lowered_as_it_is(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    from tvm.error import InternalError

    def broken(*_: Any) -> Any:
        raise InternalError("no such layout")

    module = graph(lambda b, x: conv(b, x))
    monkeypatch.setattr(module_under_test, "choose_layouts", broken)
    with caplog.at_level(logging.WARNING):
        ((_, program),) = tvm_compat.prim_funcs(lower(module, LLVM))
    assert tvm_compat.param_shape(program.params[1]) == [64, 8, 3, 3]
    assert "layouts stay as they are: no such layout" in caplog.text


@pytest.mark.parametrize("network", ["squeezenet"])
def test_a_whole_network_is_converted_once(tmp_path: Path, network: str) -> None:
    sys.path.insert(0, str(EXAMPLES))
    try:
        from squeezenet import seeded_network
    finally:
        sys.path.remove(str(EXAMPLES))
    import onnx

    onnx.save(seeded_network(network), str(tmp_path / "net.onnx"))
    lowered = lower(load_model(ModelSpec(str(tmp_path / "net.onnx"))).module, LLVM)
    transposes = [n for n, _ in tvm_compat.prim_funcs(lowered) if "transpose" in n]
    assert transposes == ["transpose"]
