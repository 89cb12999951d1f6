"""Products of floats of 8 bits in graphs: casts, moves and scales do not keep tensor cores from
them."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest
from onnx import TensorProto, helper, numpy_helper

from spaces.codegen.executable import compile_module, run_once
from spaces.deploy.apply import apply_best
from spaces.design_space.knob_space import KnobSpace
from spaces.frontends.declared import resolve
from spaces.frontends.onnx.model import read_onnx_proto
from spaces.lowering.extract_tasks import extract
from spaces.lowering.lower import lower
from spaces.templates.registry import templates_of
from tests.spaces.frontends.onnx.beside_onnxruntime import by_reference
from tests.spaces.templates.tensor_cores.byte_float_products import ADA, E4M3, E5M2
from tests.spaces.templates.tensor_cores.products import AMPERE, HOPPER
from tests.spaces.templates.tensor_cores.test_byte_float_products import HALVES, WARPGROUPS, WARPS
from tuner.candidate import of_knobs
from tuner.dynamic.shapes import Domain

pytestmark = [pytest.mark.tvm, pytest.mark.filterwarnings("ignore::RuntimeWarning")]

Array = npt.NDArray[Any]
ROWS, TERMS, COLUMNS = 29, 96, 40
CODES = {E4M3: (TensorProto.FLOAT8E4M3FN, ml_dtypes.float8_e4m3fn)}
CODES[E5M2] = (TensorProto.FLOAT8E5M2, ml_dtypes.float8_e5m2)


def spaces_of(module: Any, target: str) -> list[str]:
    """The spaces for products of a lowered graph."""
    found = [t.name for task in extract(module, target) for t in templates_of(task)]
    return [name for name in found if "product" in name]


def run_best(module: Any, target: str, inputs: list[Array]) -> Array:
    """What a graph gives with the best predicted kernels."""
    lowered = lower(module, target)
    best = {}
    for task in extract(lowered, target):
        space = KnobSpace(task, templates_of(task)[0])
        best[task.key] = of_knobs(space.ranked[0], space.name)
    (found,) = run_once(compile_module(apply_best(best, target)(lowered), target), inputs)
    return found


# ---- casts


def casting(kind: str, gives: str = "") -> Any:
    """X by the transpose of W, both cast, with a bias, in 8 bits again."""
    from tvm import relax

    b = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((ROWS, TERMS), E4M3))
    w = relax.Var("w", relax.TensorType((COLUMNS, TERMS), E4M3))
    bias = relax.Var("bias", relax.TensorType((COLUMNS,), "float32"))
    with b.function("main", [x, w, bias]):
        with b.dataflow():
            turned = b.emit(relax.op.permute_dims(b.emit(relax.op.astype(w, kind))))
            wide = b.emit(relax.op.astype(x, kind))
            total = b.emit(relax.op.matmul(wide, turned, out_dtype=gives or None))
            moved = b.emit(relax.op.add(b.emit(relax.op.astype(total, "float32")), bias))
            out = b.emit_output(relax.op.astype(moved, E4M3))
        b.emit_func_output(out)
    return b.get()


@pytest.mark.parametrize(
    ("kind", "target", "space"),
    [
        ("float32", ADA, HALVES),
        ("bfloat16", ADA, WARPS),
        ("float16", HOPPER, HALVES),
    ],
)
def test_what_is_cast_before_a_product_is_cast_in_it(kind: str, target: str, space: str) -> None:
    lowered = lower(casting(kind), target)
    assert space in spaces_of(lowered, target)
    rng = np.random.default_rng(0)
    x, w = (
        rng.standard_normal(shape).astype(ml_dtypes.float8_e4m3fn)
        for shape in ((ROWS, TERMS), (COLUMNS, TERMS))
    )
    bias = rng.standard_normal(COLUMNS).astype(np.float32)
    got = run_best(casting(kind), target, [x, w, bias])
    exact = x.astype(np.float64) @ w.astype(np.float64).T + bias
    assert got.dtype == ml_dtypes.float8_e4m3fn
    # Half a step of the result, and what bfloat16 rounds the sum to.
    np.testing.assert_allclose(got.astype(np.float64), exact, rtol=2**-4 + 2**-7, atol=2**-6)


def test_sums_in_a_wider_type_stay_in_it() -> None:
    lowered = lower(casting("bfloat16", "float32"), HOPPER)
    assert HALVES in spaces_of(lowered, HOPPER)
    assert WARPGROUPS not in spaces_of(lowered, HOPPER)


# ---- ONNX's codes


def quantized(
    kind: str, axis: int | None, *, turned: bool = False, constant: bool = True
) -> tuple[Any, Array]:
    """X, which is quantized, by W, which is dequantized with a scale or one for each place of an
    axis; and W."""
    number, dtype = CODES[kind]
    rng = np.random.default_rng(1)
    shape = (COLUMNS, TERMS) if turned else (TERMS, COLUMNS)
    w = rng.standard_normal(shape).astype(dtype)
    several = () if axis is None else (shape[axis],)
    initial = [
        helper.make_tensor("z", number, (), b"\0", raw=True),
        helper.make_tensor("zs", number, several, b"\0" * max(1, *several, 1), raw=True),
        numpy_helper.from_array(np.float32(0.02), "sx"),
        numpy_helper.from_array(rng.uniform(0.01, 0.03, several).astype(np.float32), "sw"),
        numpy_helper.from_array(rng.standard_normal(COLUMNS).astype(np.float32), "bias"),
    ]
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, (ROWS, TERMS))]
    if constant:
        initial.append(helper.make_tensor("w", number, shape, w.tobytes(), raw=True))
    else:
        inputs.append(helper.make_tensor_value_info("w", number, shape))
    along = {} if axis is None else {"axis": axis}
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "sx", "z"], ["codes"]),
        helper.make_node("DequantizeLinear", ["codes", "sx", "z"], ["xd"]),
        helper.make_node("DequantizeLinear", ["w", "sw", "zs"], ["wd"], **along),
        helper.make_node("Gemm", ["xd", "wd", "bias"], ["total"], transB=int(turned)),
        helper.make_node("Relu", ["total"], ["y"]),
    ]
    result = helper.make_tensor_value_info("y", TensorProto.FLOAT, (ROWS, COLUMNS))
    graph = helper.make_graph(nodes, "quantized", inputs, [result], initial)
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)])
    proto.ir_version = 9
    return proto, w


def imported(proto: Any) -> Any:
    source = read_onnx_proto(proto, "quantized")
    domain = Domain(())
    return source.imported(resolve(source.declared, (), domain), domain)


@pytest.mark.parametrize(
    ("kind", "axis", "turned", "constant"),
    [
        (E4M3, None, False, True),
        (E4M3, 1, False, True),
        (E5M2, None, True, True),
        (E4M3, 0, True, True),
        (E4M3, None, False, False),
    ],
)
def test_quantized_products_multiply_codes(
    kind: str, axis: int | None, turned: bool, constant: bool
) -> None:
    proto, w = quantized(kind, axis, turned=turned, constant=constant)
    module = imported(proto)
    assert spaces_of(lower(module, ADA), ADA) == [HALVES]
    assert HALVES not in spaces_of(lower(module, AMPERE), AMPERE)
    x = np.random.default_rng(2).standard_normal((ROWS, TERMS)).astype(np.float32)
    feeds = {"x": x} if constant else {"x": x, "w": w}
    (wanted,) = by_reference(proto, feeds)
    got = run_best(module, ADA, list(feeds.values()))
    np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-5)


def test_scales_of_terms_stay_inside_of_the_sum() -> None:
    module = imported(quantized(E4M3, 0)[0])
    assert HALVES not in spaces_of(lower(module, ADA), ADA)
