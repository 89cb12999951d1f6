"""Files of few bits, as onnxruntime's tools and PyTorch write them, with drawn weights.

What should come out is what onnxruntime computes node by node, PyTorch of its own archives. Sums
in another order may move a number by a step of 8 bits, so these files have limits of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from benchmarks.byte_networks import mobilenet_v2, resnet50, write_network
from benchmarks.coverage.made import write_calls
from benchmarks.coverage.model_builder import VARIANTS, write_built
from benchmarks.coverage.quantized_archives import KINDS, write_archive, write_groups
from benchmarks.encoder import encoder
from tests.spaces.frontends.onnx.language_models import Sizes, llama, step
from tests.spaces.frontends.onnx.quantizing_tools import (
    Tool,
    dynamically,
    exactly,
    in_blocks,
    in_halves,
    optimised,
    plainly,
    statically,
)

Write = Callable[[Path], None]
_BYTES, _FLOAT8, _HALVES, _BRIEF = 5e-2, 0.125, 1e-2, 3e-2
"""Limits of errors by the largest element: of rows in integers of 8 bits, in E4M3, whose steps
are up to an eighth, in float16 and in bfloat16."""
_CALLS = ((5, 0, 1), (1, 5, 2), (3, 4, 1), (1, 16, 1), (17, 0, 1))
"""New rows of a language model, those of before, and how many in a batch."""
_TUNED = {"b": [1, 2], "s": [1, 3, 5, 17], "p": [1, 4, 5, 16], "t": [5, 6, 7, 17]}
_SIZES = Sizes(words=256, width=256, heads=4, shared=2, head=64, inner=512)
_TABLES = {"op_types_to_quantize": ("MatMul", "Gather")}


def _resnet() -> Any:
    return resnet50(64, (1, 1))


def _mobilenet_v2() -> Any:
    return mobilenet_v2(64)


def _bert() -> Any:
    return encoder(32, 256, 4, 1024, layers=2)


def _whole(network: Callable[[], Any], tool: Tool, within: float, folder: Path) -> None:
    write_network(network(), tool, folder, within)


def _language_model(
    said: Mapping[str, Any], folder: Path, *, within: float = 1e-3, **model: Any
) -> None:
    import onnx

    proto = llama(sizes=_SIZES, **model)
    proto = in_blocks(proto, **said) if said else proto
    onnx.save(proto, folder / "model.onnx")
    calls = [step(proto, *call) for call in _CALLS]
    write_calls(folder, calls, [exactly(proto, call) for call in calls], _TUNED, within)


def _in_whole(tool: Tool, folder: Path) -> None:
    """A language model through a tool that takes any network."""
    import onnx

    onnx.save(llama(sizes=_SIZES), folder / "whole.onnx")
    tool(folder / "whole.onnx", folder / "model.onnx", ())
    proto = onnx.load(folder / "model.onnx")
    calls = [step(proto, *call) for call in _CALLS]
    write_calls(folder, calls, [plainly(proto, call) for call in calls], _TUNED, _BYTES)


def _in_brief(folder: Path) -> None:
    """A network in bfloat16, for which onnxruntime has no products on CPUs: beside the same
    weights in float32."""
    import ml_dtypes
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    exact, brief = _bert(), _bert()
    for kept, narrow in zip(exact.graph.initializer, brief.graph.initializer, strict=True):
        array = numpy_helper.to_array(kept)
        if array.dtype == np.float32:
            rounded = array.astype(ml_dtypes.bfloat16)
            narrow.CopyFrom(numpy_helper.from_array(rounded, kept.name))
            kept.CopyFrom(numpy_helper.from_array(rounded.astype("float32"), kept.name))
    result = brief.graph.output[0].name
    for node in brief.graph.node:
        renamed = ["narrow x" if name == "x" else name for name in node.input]
        node.input[:] = renamed
    nodes = [
        helper.make_node("Cast", ["x"], ["narrow x"], to=TensorProto.BFLOAT16),
        *brief.graph.node,
        helper.make_node("Cast", [result], ["y"], to=TensorProto.FLOAT),
    ]
    del brief.graph.node[:]
    brief.graph.node.extend(nodes)
    brief.graph.output[0].name = "y"
    onnx.save(brief, folder / "model.onnx")
    call = {"x": np.random.default_rng(0).standard_normal((1, 32, 256)).astype("float32")}
    write_calls(folder, [call], [plainly(exact, call)], within=_BRIEF)


def _after(tool: Tool, level: str) -> Tool:
    """What onnxruntime's optimiser makes of what a tool wrote."""

    def write(source: Path, into: Path, calibrated: Any) -> None:
        between = into.with_name("between.onnx")
        tool(source, between, calibrated)
        optimised(between, into, level)

    return write


def _unchanged(source: Path, into: Path, _: Any) -> None:
    into.write_bytes(source.read_bytes())


_CHANNELS: Mapping[str, Any] = {"activations": "QUInt8", "per_channel": True}
_STATIC: Mapping[str, tuple[Tool, float]] = MappingProxyType(
    {
        "QDQ, scales of channels, rows of uint8": (statically("QDQ", **_CHANNELS), _BYTES),
        "QOperator, scales of channels, rows of uint8": (
            statically("QOperator", **_CHANNELS),
            _BYTES,
        ),
        "QDQ, one scale, rows of int8": (statically("QDQ"), _BYTES),
        "QOperator, one scale, all of uint8": (statically("QOperator", "QUInt8", "QUInt8"), _BYTES),
        "dynamic": (dynamically, _BYTES),
        "float16": (in_halves, _HALVES),
    }
)
_MORE: Mapping[str, tuple[Callable[[], Any], Tool, float]] = MappingProxyType(
    {
        "bert, QDQ, rows of uint16": (_bert, statically("QDQ", "QUInt16"), _BYTES),
        "bert, QDQ, weights of int4": (_bert, statically("QDQ", "QUInt8", "QInt4"), _BYTES),
        "resnet, QDQ, all of float8": (
            _resnet,
            statically("QDQ", "QFLOAT8E4M3FN", "QFLOAT8E4M3FN"),
            _FLOAT8,
        ),
        "bert, optimised": (_bert, _after(_unchanged, "ORT_ENABLE_EXTENDED"), 1e-3),
        "bert, QDQ, optimised": (
            _bert,
            _after(statically("QDQ", **_CHANNELS), "ORT_ENABLE_EXTENDED"),
            _BYTES,
        ),
        "resnet, QDQ, optimised": (
            _resnet,
            _after(statically("QDQ", **_CHANNELS), "ORT_ENABLE_EXTENDED"),
            _BYTES,
        ),
    }
)
_LANGUAGE: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {
        "4 bits, blocks of 16": {"block_size": 16, "is_symmetric": True},
        "4 bits, blocks of 32, zero points": {},
        "4 bits, blocks of 128, zero points": {"block_size": 128},
        "4 bits, blocks of 32, words as well": {"is_symmetric": True, **_TABLES},
        "4 bits, HQQ": {"algorithm": "HQQ"},
        "4 bits, k-quant": {"algorithm": "KQuant"},
        "4 bits, round to nearest": {"algorithm": "RTN"},
        "8 bits, blocks of 64": {"bits": 8, "block_size": 64, "is_symmetric": True},
        "8 bits, blocks of 32, zero points, words as well": {"bits": 8, **_TABLES},
        "2 bits, blocks of 32, zero points": {"bits": 2},
        "QDQ of int4 in blocks of 32": {"form": "QDQ", "is_symmetric": True},
        "QDQ of uint4 in blocks of 64, zero points": {"form": "QDQ", "block_size": 64},
        "QDQ of int4, scales of channels": {
            "form": "QDQ",
            "is_symmetric": True,
            "channel_wised_quantize": True,
        },
    }
)
FILES: Mapping[str, Write] = MappingProxyType(
    {
        **{f"llama, {how}": partial(_language_model, said) for how, said in _LANGUAGE.items()},
        "qwen3, 4 bits, blocks of 32": partial(_language_model, {"is_symmetric": True}, norms=True),
        "llama, float16": partial(_language_model, {}, dtype="float16", within=_BRIEF),
        "llama, float16, 4 bits": partial(
            _language_model, {"is_symmetric": True}, dtype="float16", within=_BRIEF
        ),
        "llama, dynamic": partial(
            _in_whole, partial(dynamically, extra_options={"DefaultTensorType": 1})
        ),
        **{f"archive, {kind}": partial(write_archive, kind) for kind in KINDS},
        "archive, rows of tokens, weights of 4 bits in groups": write_groups,
        **{
            f"{name}, {how}": partial(_whole, network, tool, within)
            for name, network in (
                ("bert", _bert),
                ("resnet", _resnet),
            )
            for how, (tool, within) in _STATIC.items()
        },
        **{
            f"mobilenet_v2, {how}": partial(_whole, _mobilenet_v2, *_STATIC[how])
            for how in list(_STATIC)[:2]
        },
        **{name: partial(_whole, *made) for name, made in _MORE.items()},
        "bert, bfloat16": _in_brief,
        **{f"built, {name}": partial(write_built, name, _CALLS, _BYTES) for name in VARIANTS},
    }
)
"""By name, who writes a file and its calls into a folder."""
