"""Products of bytes: exact sums of rounded numbers, scaled by what they were scaled by."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest

from spaces.design_space.knob_space import KnobSpace
from spaces.ir import tvm_compat
from spaces.lowering.extract_tasks import extract
from spaces.lowering.lower import lower
from spaces.precision.calibrate import calibrate
from spaces.precision.convert import in_precision
from spaces.targets.cpu import cpu_of
from spaces.targets.target import resolve_target
from spaces.templates.registry import templates_of
from tests.contracts.programs import write_down
from tests.spaces.frontends.onnx import packed_networks as packed
from tests.spaces.precision.typed_models import (
    INNER,
    LLVM,
    WIDTH,
    Array,
    calls,
    constants,
    dense,
    images,
    imported,
    normal,
    outputs,
    parsed,
)
from tests.spaces.templates.contraction.test_pair_products import wrong
from tuner.dynamic.shapes import joint
from tuner.errors import TunerError
from tuner.precision import Precision

pytestmark = pytest.mark.tvm
INT8 = Precision("int8", "int8")


def of_bytes(weight: Array, axis: int | tuple[int, ...] = 0) -> tuple[Array, Array]:
    scales = np.abs(weight).max(axis, keepdims=True) / np.float32(127)
    return np.rint(weight / scales).astype("int64"), scales


def product(x: Array, weight: Array, largest: float | None = None, least: int = -127) -> Array:
    """A product whose rows are rounded by the largest number in them, or by one that is known."""
    most = 255 if least == 0 else 127
    scale = np.float32(np.abs(x).max() if largest is None else largest) / np.float32(most)
    rows = np.clip(np.rint(x * (np.float32(1) / scale)), least, most).astype("int64")
    codes, scales = of_bytes(weight)
    return np.asarray((rows @ codes).astype("float32") * (scales * scale))


def only(rows: str = "5", width: int = 24) -> object:
    return parsed(
        f"only (float[{rows}, {WIDTH}] x) => (float[{rows}, {width}] y) {{ y = MatMul(x, w) }}",
        w=normal(WIDTH, width),
    )


def test_each_tensor_is_scaled_by_its_own_largest_number() -> None:
    model = imported(only())
    for size in (0.01, 1.0, 300.0):
        x = normal(5, WIDTH, seed=2) * np.float32(size)
        (got,) = outputs(model, x, precision=INT8)
        np.testing.assert_allclose(got, product(x, normal(WIDTH, 24)), rtol=1e-5)
    assert not outputs(model, np.zeros((5, WIDTH), "float32"), precision=INT8)[0].any()


def test_weights_are_bytes_with_a_scale_for_each_output_channel() -> None:
    found = [a for a in constants(imported(only()), INT8) if a.dtype == np.int8]
    codes, _ = of_bytes(normal(WIDTH, 24))
    assert len(found) == 1
    assert (found[0] == codes).all()
    assert (np.abs(found[0]).max(0) == 127).all()


def test_open_rows() -> None:
    model = imported(only("N"), {"N": (1, 6)})
    for rows in (1, 6):
        x = normal(rows, WIDTH)
        (got,) = outputs(model, x, precision=INT8)
        np.testing.assert_allclose(got, product(x, normal(WIDTH, 24)), rtol=1e-5)


OPEN = {
    "products": (dense("T"), {"T": 7}),
    "a convolution": (
        parsed(
            "images (float[T, 8, 7, 9] x) => (float[T, 20, 7, 9] y) {"
            " a = Conv <pads = [1, 1, 1, 1]> (x, w)  y = Relu(a) }",
            w=normal(20, 8, 3, 3),
        ),
        {"T": 3},
    ),
}


@pytest.mark.parametrize("name", OPEN)
def test_products_of_open_sizes_are_multiplied_four_at_a_time(name: str) -> None:
    target = resolve_target("llvm", cores=1)
    if not cpu_of(target).vnni:
        pytest.skip("this CPU has no VNNI")
    proto, sizes = OPEN[name]
    model = imported(proto, dict.fromkeys(sizes, (1, 40)))
    lowered = lower(in_precision(model, INT8).module, target)
    grouped = [
        (task, template)
        for task in extract(lowered, target, shapes=model.shapes)
        for template in templates_of(task)[:1]
        if "-of-groups-" in template.name
    ]
    assert len(grouped) == sum(node.op_type in ("MatMul", "Conv") for node in proto.graph.node)
    for task, template in grouped:
        space = KnobSpace(task, template)
        module = write_down(space, space.ranked[0]).schedule.mod
        assert not wrong(task, module, sizes)


def test_ranges_are_those_of_all_samples() -> None:
    model = imported(dense())
    samples = [[normal(6, WIDTH, seed=seed)] for seed in range(3)]
    ranges = calibrate(model, LLVM, samples)
    rows = np.concatenate([x for (x,) in samples])
    hidden = np.maximum(rows @ normal(WIDTH, INNER), 0)
    np.testing.assert_allclose(ranges[0], (rows.min(), rows.max()), rtol=1e-6)
    np.testing.assert_allclose(ranges[1], (0, hidden.max()), rtol=1e-5)


def test_a_known_range_scales_all_and_cuts_off_what_is_beyond() -> None:
    model = imported(only())
    known = Precision("int8", "int8", ranges=((-0.5, 0.25),))
    x = normal(5, WIDTH) * 8
    assert np.abs(x).max() > 0.5
    (got,) = outputs(model, x, precision=known)
    np.testing.assert_allclose(got, product(x, normal(WIDTH, 24), largest=0.5), rtol=1e-5)


def test_rows_that_are_never_below_zero_have_eight_bits_for_what_is_above() -> None:
    known = Precision("int8", "int8", ranges=((0.0, 2.0),))
    model = imported(only())
    (found,) = calls(model, known, "matmul")
    assert [tvm_compat.param_dtype(o) for o in found.args] == ["uint8", "int8"]
    x = np.abs(normal(5, WIDTH))
    (got,) = outputs(model, x, precision=known)
    want = product(x, normal(WIDTH, 24), largest=2.0, least=0)
    np.testing.assert_allclose(got, want, rtol=1e-5)


def test_convolutions_are_padded_with_what_stands_for_zero() -> None:
    model = imported(images())
    x = normal(1, 3, 8, 8)
    ranges = calibrate(model, LLVM, [[x]])
    (want,) = outputs(model, x)
    for precision in (INT8, Precision("int8", "int8", ranges=ranges)):
        found = calls(model, precision, "nn.conv2d")
        assert [tvm_compat.param_dtype(c) for c in found] == ["int32", "int32"]
        (got,) = outputs(model, x, precision=precision)
        assert 0 < np.linalg.norm(got - want) < 0.03 * np.linalg.norm(want)


def test_products_of_two_results_stay_floats() -> None:
    proto = parsed("pair (float[4, 8] x, float[8, 4] y) => (float[4, 4] z) { z = MatMul(x, y) }")
    (found,) = calls(imported(proto), INT8, "matmul")
    assert [tvm_compat.param_dtype(o) for o in found.args] == ["float32", "float32"]


def test_samples_without_a_finite_range_are_refused() -> None:
    x = np.full((5, WIDTH), np.inf, "float32")
    with pytest.raises(TunerError, match=r"--calibrate: .* not finite"):
        calibrate(imported(only()), resolve_target(LLVM), [[x]])


VNNI = '{"kind":"llvm","mcpu":"cascadelake","num-cores":1}'


@pytest.mark.parametrize("form", ["MatMulNBits", "DequantizeLinear"])
def test_rows_of_products_with_packed_weights_become_bytes_of_blocks(form: str) -> None:
    """The programs are those of a file that allows it with `accuracy_level`."""
    sizes = {"columns": 48, "depth": 64}
    allowed, as_it_is = (packed.product(4, 32, accuracy_level=n, **sizes)[0] for n in (4, 0))
    rows = {"m": (1, 8)}
    shapes = joint([*rows.items()])
    proto = as_it_is if form == "MatMulNBits" else write_blocked_product(**sizes)
    model = imported(proto, rows)
    found, wanted, before = (
        {task.key for task in extract(lower(each.module, VNNI), VNNI, shapes=shapes)}
        for each in (in_precision(model, INT8), imported(allowed, rows), model)
    )
    assert found == wanted
    assert not found & before


def write_blocked_product(columns: int, depth: int) -> Any:
    """A product with a weight of 4 bits in blocks, in ONNX's own operators."""
    codes = np.random.default_rng(0).integers(-8, 8, (depth, columns))
    proto = onnx.parser.parse_model(
        f"""<ir_version: 10, opset_import: ["": 21]>
        g (float[m, {depth}] x) => (float[m, {columns}] y) {{
        w = DequantizeLinear<axis = 0, block_size = 32>(codes, scales) y = MatMul(x, w) }}"""
    )
    element = onnx.TensorProto.INT4
    proto.graph.initializer.extend(
        [
            onnx.helper.make_tensor("codes", element, codes.shape, codes.reshape(-1).tolist()),
            onnx.numpy_helper.from_array(np.abs(normal(depth // 32, columns)), "scales"),
        ]
    )
    return proto
