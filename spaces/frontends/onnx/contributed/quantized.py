"""Operators on 8-bit integers that quantizing tools write, as operators on what these stand for."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from types import MappingProxyType

from spaces.frontends.onnx.contributed.text import (
    Lines,
    Write,
    has,
    pass_attributes,
    read_attribute,
)
from spaces.frontends.onnx.node import Node

_POOL = ("auto_pad: string", "ceil_mode: int", "count_include_pad: int", "kernel_shape: ints",
         "pads: ints", "strides: ints")  # fmt: skip


def _pair(operator: str, _: Node) -> str:
    return _of_two(f"{operator}({{}}, {{}})", [])


def _choose(_: Node) -> str:
    return _of_two("Where(which, {}, {})", ["which"])


def _of_two(call: str, before: list[str]) -> str:
    """An operator on what two operands stand for.

    Args:
        before: operands before these.
    """
    lines = Lines()
    a, b = (
        lines.set(f"{n}_real", f"DequantizeLinear({n}, {n}_scale, {n}_zero)") for n in ("a", "b")
    )
    lines.set("y", f"QuantizeLinear({lines.set('found', call.format(a, b))}, scale, zero)")
    operands = ["a", "a_scale", "a_zero", "b", "b_scale", "b_zero", "scale", "zero"]
    return lines.function([*before, *operands], ["y"])


def _one(operator: str, attributes: tuple[str, ...], node: Node) -> str:
    if read_attribute(node, "channels_last", 0):
        raise node.refused("its channels are last")
    lines = Lines()
    real = lines.set("x_real", "DequantizeLinear(x, x_scale, x_zero)")
    found = lines.set("found", f"{operator}{pass_attributes(attributes)}({real})")
    lines.set("y", f"QuantizeLinear({found}, scale, zero)")
    return lines.function(["x", "x_scale", "x_zero", "scale", "zero"], ["y"])


def _join(node: Node) -> str:
    lines, operands, parts = Lines(), ["scale", "zero"], []
    for number in range((len(node.inputs) - 2) // 3):
        names = [f"{name}{number}" for name in ("x", "scale", "zero")]
        operands += names
        parts.append(lines.set(f"real{number}", f"DequantizeLinear({', '.join(names)})"))
    joined = f"Concat<axis = {read_attribute(node, 'axis', 0)}>({', '.join(parts)})"
    lines.set("y", f"QuantizeLinear({lines.set('found', joined)}, scale, zero)")
    return lines.function(operands, ["y"])


def _gemm(node: Node) -> str:
    lines = Lines()
    a, b = (
        lines.set(f"{name}_turned", f"Transpose({name})")
        if read_attribute(node, f"trans{up}", 0)
        else name
        for name, up in (("a", "A"), ("b", "B"))
    )
    total = lines.set("total", f"MatMulInteger({a}, {b}, a_zero, b_zero)")
    if has(node, 6):
        total = lines.set("sum", f"Add({total}, c)")
    real = lines.set("real", f"CastLike({total}, a_scale)")
    scale = lines.set("both", "Mul(a_scale, b_scale)")
    if (alpha := read_attribute(node, "alpha", 1.0)) != 1.0:
        scale = lines.set("all_of_it", f"Mul({scale}, {lines.real('alpha', alpha, scale)})")
    found = lines.set("found", f"Mul({real}, {scale})")
    lines.set(
        "y", f"QuantizeLinear({found}, scale, zero)" if has(node, 7) else f"Identity({found})"
    )
    operands = ["a", "a_scale", "a_zero", "b", "b_scale", "b_zero", "c", "scale", "zero"]
    return lines.function(operands, ["y"])


def _to_reals(node: Node) -> str:
    lines = Lines()
    zeros = ", a_zero" if has(node, 4) else ", " if has(node, 5) else ""
    zeros += ", b_zero" if has(node, 5) else ""
    lines.set("total", f"MatMulInteger(a, b{zeros})")
    _scale(lines, bias=has(node, 6))
    operands = ["a", "b", "a_scale", "b_scale", "a_zero", "b_zero", "bias"]
    return lines.function(operands, ["y"])


def _scale(lines: Lines, *, bias: bool) -> None:
    """Bind `y`, what `total` stands for, with a bias where there is one."""
    real = lines.set("real", "CastLike(total, b_scale)")
    found = lines.set("found", f"Mul({real}, {lines.set('scale', 'Mul(a_scale, b_scale)')})")
    lines.set("y", f"Add({found}, bias)" if bias else f"Identity({found})")


def _dynamic_product(node: Node) -> str:
    lines = Lines()
    lines.written.append("a, a_scale, a_zero = DynamicQuantizeLinear(x)")
    zero = ", b_zero" if has(node, 3) else ""
    lines.set("total", f"MatMulInteger(a, b, a_zero{zero})")
    _scale(lines, bias=has(node, 4))
    return lines.function(["x", "b", "b_scale", "b_zero", "bias"], ["y"])


def _linear(operator: str, node: Node) -> str:
    axis, size = read_attribute(node, "axis", 1), read_attribute(node, "block_size", 0)
    along = f"axis = {axis}, block_size = {size}"
    return f"(x, scale, zero) => (y) {{ y = {operator}<{along}>(x, scale, zero) }}"


def _softmax(node: Node) -> str:
    axis, last = read_attribute(node, "axis", -1), node.rank(0) - 1
    if read_attribute(node, "opset", 13) < 13 and axis not in (-1, last):
        raise node.refused("it normalises all axes from its axis on")
    return _one("Softmax", ("axis: int",), node)


QUANTIZED: Mapping[str, Write] = MappingProxyType(
    {
        "DequantizeLinear": partial(_linear, "DequantizeLinear"),
        "DynamicQuantizeMatMul": _dynamic_product,
        "MatMulIntegerToFloat": _to_reals,
        "QGemm": _gemm,
        "QLinearAdd": partial(_pair, "Add"),
        "QLinearAveragePool": partial(_one, "AveragePool", _POOL),
        "QLinearConcat": _join,
        "QLinearGlobalAveragePool": partial(_one, "GlobalAveragePool", ()),
        "QLinearLeakyRelu": partial(_one, "LeakyRelu", ("alpha: float",)),
        "QLinearMul": partial(_pair, "Mul"),
        "QLinearSigmoid": partial(_one, "Sigmoid", ()),
        "QLinearSoftmax": _softmax,
        "QLinearWhere": _choose,
        "QuantizeLinear": partial(_linear, "QuantizeLinear"),
    }
)
