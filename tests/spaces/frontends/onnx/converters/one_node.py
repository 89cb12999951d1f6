"""Models of one node, compared with what another runtime makes of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import helper

from tests.spaces.frontends.onnx.beside_onnxruntime import Runtime, by_onnxruntime, compare

Array = npt.NDArray[Any]


def model(
    operator: str,
    fed: Mapping[str, Array],
    *,
    opset: int = 17,
    fixed: Mapping[str, Array] | None = None,
    operands: Sequence[str] | None = None,
    results: Sequence[str] = ("y",),
    domain: str = "",
    **attributes: Any,
) -> Any:
    """A node of an operator.

    Args:
        fed: operands that are inputs of the model, by name; `fixed` those that are constants.
        operands: names in the order of the operator's, empty for one that is left out.
        results: names likewise.
    """
    constants = fixed or {}
    names = operands or [*fed, *constants]
    node = helper.make_node(operator, names, results, domain=domain, **attributes)
    inputs = [
        helper.make_tensor_value_info(
            name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape
        )
        for name, array in fed.items()
    ]
    outputs = [helper.make_empty_tensor_value_info(name) for name in results if name]
    weights = [onnx.numpy_helper.from_array(array, name) for name, array in constants.items()]
    graph = helper.make_graph([node], "one", inputs, outputs, weights)
    imports = [helper.make_opsetid("", opset)] + (
        [helper.make_opsetid(domain, 1)] if domain else []
    )
    return helper.make_model(graph, opset_imports=imports, ir_version=8 if opset < 19 else 10)


def beside(
    operator: str,
    fed: Mapping[str, Any],
    *,
    peer: Runtime = by_onnxruntime,
    within: float = 1e-5,
    **said: Any,
) -> Any:
    """Compare one node with a peer's; arguments as those of `model`, and of `compare`."""
    arrays = {name: np.asarray(array) for name, array in fed.items()}
    fixed = {name: np.asarray(array) for name, array in said.pop("fixed", {}).items()}
    proto = model(operator, arrays, fixed=fixed, **said)
    wanted = peer(proto, arrays)
    names = [output.name for output in proto.graph.output]
    del proto.graph.output[:]
    for name, array in zip(names, map(np.asarray, wanted), strict=True):
        dtype = helper.np_dtype_to_tensor_dtype(array.dtype)
        proto.graph.output.append(helper.make_tensor_value_info(name, dtype, array.shape))
    return compare(proto, arrays, peer=lambda *_: wanted, within=within)


def values(*wanted: Any) -> Runtime:
    """A runtime that gives these."""
    return lambda *_: [np.asarray(array) for array in wanted]
