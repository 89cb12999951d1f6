"""Operators that ONNX has under the same name, or nearly so."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from spaces.frontends.onnx.contributed.text import (
    Lines,
    Write,
    has,
    pass_attributes,
    read_attribute,
)
from spaces.frontends.onnx.node import Node

_MODES = MappingProxyType({"bilinear": "linear", "bicubic": "cubic"})
_INT32, _UINT32 = 6, 12


def _trilu(node: Node) -> str:
    k = ", k" if has(node, 1) else ""
    return f"(x, k) => (y) {{ y = Trilu{pass_attributes(['upper: int'])}(x{k}) }}"


def _pad(node: Node) -> str:
    lines = Lines()
    pads = "pads"
    if len(node.dims(1) or []) > 1:
        pads = lines.set("flat", f"Reshape(pads, {lines.numbers('all', [-1])})")
    value = ", value" if has(node, 2) else ""
    lines.set("y", f"Pad{pass_attributes(['mode: string'])}(data, {pads}{value})")
    return lines.function(["data", "pads", "value"], ["y"])


def _grid_sample(node: Node) -> str:
    mode = read_attribute(node, "mode", "bilinear")
    names = pass_attributes(["padding_mode: string", "align_corners: int"])[:-1]
    sample = f'GridSample{names}, mode = "{_MODES.get(mode, mode)}">(x, grid)'
    return f"(x, grid) => (y) {{ y = {sample} }}"


def _product(node: Node) -> str:
    signs = [value is not None and value.dtype == "uint16" for value in node.inputs[:2]]
    wide = f"Cast<to = {_UINT32 if all(signs) else _INT32}>"
    return f"(a, b) => (y) {{ left = {wide}(a) right = {wide}(b) y = MatMul(left, right) }}"


AS_ONNX: Mapping[str, Write] = MappingProxyType(
    {"GridSample": _grid_sample, "MatMulInteger16": _product, "Pad": _pad, "Trilu": _trilu}
)
