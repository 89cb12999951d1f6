"""What onnxruntime's own tools make of models, and what it computes of these."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import onnx

from spaces.import_check.unsigned_weights import drop_signs
from tests.spaces.frontends.onnx.beside_onnxruntime import Array, Feeds

Tool = Callable[[Path, Path, Sequence[Feeds]], None]
"""Writes a file of floats as another one; some inputs tell it of ranges."""


def exactly(proto: Any, feeds: Feeds) -> Sequence[Array]:
    """By onnxruntime, without rows that are rounded to 8 bits where a file says nothing of it."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.add_session_config_entry("session.qdq_matmulnbits_accuracy_level", "0")
    session = onnxruntime.InferenceSession(proto.SerializeToString(), options)
    found: Sequence[Array] = session.run(None, dict(feeds))
    return found


def in_blocks(proto: Any, algorithm: str = "", form: str = "QOperator", **said: Any) -> Any:
    """A model with weights of few bits in blocks of 32."""
    from onnxruntime.quantization import QuantFormat
    from onnxruntime.quantization import matmul_nbits_quantizer as tool

    given: dict[str, Any] = {"quant_format": QuantFormat[form], "block_size": 32, **said}
    if algorithm == "HQQ":
        given = {"algo_config": tool.HQQWeightOnlyQuantConfig(block_size=32)}
    elif algorithm:
        names = [node.name for node in proto.graph.node if node.op_type == "MatMul"]
        each = {n: {"bits": 4, "group_size": 32, "scheme": "asym"} for n in names}
        config = getattr(tool, f"{algorithm}WeightOnlyQuantConfig")
        given = {"algo_config": config(customized_weight_config=each)}
    quantizer = tool.MatMulNBitsQuantizer(proto, **given)
    quantizer.process()
    return quantizer.model.model


def statically(form: str, activations: str = "QInt8", weights: str = "QInt8", **said: Any) -> Tool:
    """Types are names of `QuantType`."""

    def quantize(source: Path, into: Path, calibrated: Sequence[Feeds]) -> None:
        from onnxruntime.quantization import (
            CalibrationDataReader,
            CalibrationMethod,
            QuantFormat,
            QuantType,
            quantize_static,
        )

        class Reader(CalibrationDataReader):  # type: ignore[misc]
            def __init__(self) -> None:
                self._left = list(calibrated)

            def get_next(self) -> dict[str, Array] | None:
                return dict(self._left.pop()) if self._left else None

        method = "Distribution" if "FLOAT8" in activations else "MinMax"
        quantize_static(
            source, into, Reader(), quant_format=QuantFormat[form],
            activation_type=QuantType[activations], weight_type=QuantType[weights],
            calibrate_method=CalibrationMethod[method], **said,
        )  # fmt: skip

    return quantize


def dynamically(source: Path, into: Path, _: Sequence[Feeds], **said: Any) -> None:
    from onnxruntime.quantization import quantize_dynamic

    quantize_dynamic(source, into, **said)


def in_halves(source: Path, into: Path, _: Sequence[Feeds]) -> None:
    from onnxruntime.transformers.float16 import convert_float_to_float16

    onnx.save(convert_float_to_float16(onnx.load(source), keep_io_types=True), into)


def optimised(source: Path, into: Path, level: str) -> None:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, level)
    options.optimized_model_filepath = str(into)
    onnxruntime.InferenceSession(str(source), options)


TOOLS: Mapping[str, Tool] = {
    "QOperator": statically("QOperator"),
    "QDQ": statically("QDQ"),
    "QDQ of channels": statically("QDQ", per_channel=True),
    "dynamic": dynamically,
    "float16": in_halves,
}


def plainly(proto: Any, feeds: Feeds) -> Sequence[Array]:
    """By onnxruntime, node by node, bytes added up in full."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(drop_signs(proto).SerializeToString(), options)
    found: Sequence[Array] = session.run(None, dict(feeds))
    return found
