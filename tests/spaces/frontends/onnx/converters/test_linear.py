"""`QuantizeLinear` and its siblings in every form."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest
from onnx import TensorProto, helper, numpy_helper

from tests.spaces.frontends.onnx.beside_onnxruntime import by_reference, compare, parsed

pytestmark = [pytest.mark.tvm, pytest.mark.filterwarnings("ignore::RuntimeWarning")]

Array = npt.NDArray[Any]
X = np.array(
    [[0, 2.5, 3.5, -2.5, 1000, -1000], [1, 0.5, 1.5, 7, -7, 300]], "float32"
)  # ties and what is out of range


def there_and_back(
    x: Array, scale: Any, point: Any, opset: int = 25, back: bool = True, **attributes: Any
) -> Any:
    """Quantized by constants, then freed of that again."""
    weights = {"s": np.asarray(scale), "p": point}
    weights = {name: array for name, array in weights.items() if array is not None}
    operands = ["s", *(["p"] if point is not None else [])]
    along = {k: v for k, v in attributes.items() if k in ("axis", "block_size")}
    nodes = [
        helper.make_node("QuantizeLinear", ["x", *operands], ["q"], **attributes),
        helper.make_node("DequantizeLinear", ["q", *operands], ["y"], **along),
    ]
    kind = helper.np_dtype_to_tensor_dtype(x.dtype)
    graph = helper.make_graph(
        nodes if back else nodes[:1],
        "small",
        [helper.make_tensor_value_info("x", kind, x.shape)],
        [helper.make_empty_tensor_value_info("y" if back else "q")],
        [numpy_helper.from_array(array, name) for name, array in weights.items()],
    )
    graph.output[0].type.tensor_type.elem_type = kind if back else 2
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])
    proto.ir_version = 11
    return proto


@pytest.mark.parametrize(
    "kind",
    [
        *("int8", "uint8", "int16", "uint16", "int4", "uint4", "int2", "uint2"),
        *("float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float4_e2m1fn"),
    ],
)
def test_zero_points_of_every_type(kind: str) -> None:
    dtype = np.dtype(getattr(ml_dtypes, kind, kind))
    point = np.array(1 if "int" in kind else 0, "float32").astype(dtype)
    proto = there_and_back(X, np.float32(2), point)
    compare(proto, {"x": X}, peer=by_reference)


@pytest.mark.each_value
@pytest.mark.parametrize(
    ("scale", "attributes"),
    [
        pytest.param(np.array([1, 2], "float32"), {"axis": 0}, id="of rows"),
        pytest.param(np.array([1, 2, 4, 1, 2, 4], "float32"), {"axis": -1}, id="of columns"),
        pytest.param(
            np.array([[1, 2, 4], [2, 4, 8]], "float32"), {"axis": 1, "block_size": 2}, id="blocks"
        ),
        pytest.param(
            np.array([[1, 2], [2, 4]], "float32"), {"axis": 1, "block_size": 4}, id="a short block"
        ),
    ],
)
@pytest.mark.parametrize("kind", ["uint8", "int4"])
def test_scales_of_an_axis(scale: Array, attributes: dict[str, int], kind: str) -> None:
    point = np.ones(scale.shape, "float32").astype(np.dtype(getattr(ml_dtypes, kind, kind)))
    if scale.shape == (2, 2):  # the reference takes whole blocks alone
        whole = np.repeat(scale, 4, 1)[:, :6]
        wide = there_and_back(X, whole, np.repeat(point, 4, 1)[:, :6], axis=1, block_size=1)
        short = there_and_back(X, scale, point, **attributes)
        compare(short, {"x": X}, peer=lambda _, feeds: by_reference(wide, feeds))
        return
    compare(there_and_back(X, scale, point, **attributes), {"x": X}, peer=by_reference)


def test_half_precision_divides_in_its_own() -> None:
    x = X.astype("float16")
    proto = there_and_back(x, np.float16(0.3), np.uint8(3))
    compare(proto, {"x": x}, peer=by_reference, within=1e-2)


def test_a_precision_is_divided_in() -> None:
    x = X.astype("float16")
    precise = there_and_back(
        x, np.float16(0.3), np.uint8(3), back=False, precision=TensorProto.FLOAT
    )
    compare(precise, {"x": x}, peer=by_reference)


def test_the_type_of_the_result_may_be_said() -> None:
    proto = there_and_back(X, np.float32(2), None, back=False, output_dtype=TensorProto.INT16)
    proto.graph.output[0].type.tensor_type.elem_type = TensorProto.INT16
    compare(proto, {"x": X}, peer=by_reference)


def test_open_dimensions_are_quantized() -> None:
    proto = there_and_back(X, np.array([1, 2, 4, 1, 2, 4], "float16"), None, axis=1)
    x = X.astype("float16")
    proto.graph.input[0].CopyFrom(helper.make_tensor_value_info("x", TensorProto.FLOAT16, ["n", 6]))
    proto.graph.output[0].type.tensor_type.elem_type = TensorProto.FLOAT16
    compare(proto, {"x": x}, {"x": x[:1]}, peer=by_reference, within=1e-2)


@pytest.mark.parametrize("numbers", [[0, 0, 0], [1, 2, 3], [-4, -1, -2], [-1, 0, 2.5]])
def test_zeros_are_quantized_as_zeros(numbers: list[float]) -> None:
    proto = parsed(
        '<ir_version: 8, opset_import: ["": 17]> g (float[3] x) => '
        "(uint8[3] y, float s, uint8 z) { y, s, z = DynamicQuantizeLinear(x) }"
    )
    compare(proto, {"x": np.array(numbers, "float32")})
