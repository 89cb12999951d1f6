"""Activations, and operators that have one fused in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from spaces.frontends.onnx.contributed.text import (
    Lines,
    Write,
    has,
    pass_attributes,
    read_attribute,
    real,
)
from spaces.frontends.onnx.node import Node

_CONVOLUTION = (
    "auto_pad: string", "dilations: ints", "group: int",
    "kernel_shape: ints", "pads: ints", "strides: ints",
)  # fmt: skip


def _gelu(_: Node) -> str:
    return "(x) => (y) { y = Gelu(x) }"


def _bias_gelu(_: Node) -> str:
    return "(x, bias) => (y) { sum = Add(x, bias) y = Gelu(sum) }"


def _fast_gelu(node: Node) -> str:
    if has(node, 1):
        return '(x, bias) => (y) { sum = Add(x, bias) y = Gelu<approximate = "tanh">(sum) }'
    return '(x) => (y) { y = Gelu<approximate = "tanh">(x) }'


def _quick_gelu(node: Node) -> str:
    lines = Lines()
    alpha = lines.real("alpha", read_attribute(node, "alpha", 1.702), "x")
    scaled = lines.set("scaled", f"Mul(x, {alpha})")
    gate = lines.set("gate", f"Sigmoid({scaled})")
    lines.set("y", f"Mul(x, {gate})")
    return lines.function(["x"], ["y"])


def _activate(node: Node, lines: Lines, value: str, parameters: Sequence[float]) -> str:
    """A value after the activation that a call names; gives its name."""
    kind = read_attribute(node, "activation", "")
    if not kind:
        return value
    if kind == "Clip":
        low, high = (lines.real(f"end{n}", p, value) for n, p in enumerate(parameters[:2]))
        return lines.set("active", f"Clip({value}, {low}, {high})")
    named = {
        "Relu": (), "Tanh": (), "Sigmoid": (), "HardSwish": (), "Softplus": (), "Softsign": (),
        "LeakyRelu": ("alpha",), "Elu": ("alpha",), "HardSigmoid": ("alpha", "beta"),
    }  # fmt: skip
    if kind not in named:
        raise node.refused(f"its activation {kind} is not known")
    pairs = zip(named[kind], parameters, strict=False)
    attributes = ", ".join(f"{name} = {real(number)}" for name, number in pairs)
    return lines.set("active", f"{kind}{f'<{attributes}>' if attributes else ''}({value})")


def _fuse_convolution(node: Node) -> str:
    lines = Lines()
    bias = ", b" if has(node, 2) else ""
    found = lines.set("total", f"Conv{pass_attributes(_CONVOLUTION)}(x, w{bias})")
    if has(node, 3):
        found = lines.set("sum", f"Add({found}, z)")
    found = _activate(node, lines, found, read_attribute(node, "activation_params", ()))
    lines.set("y", f"Identity({found})")
    return lines.function(["x", "w", "b", "z"], ["y"])


def _fuse_gemm(node: Node) -> str:
    lines = Lines()
    names = ("alpha: float", "beta: float", "transA: int", "transB: int")
    found = lines.set("total", f"Gemm{pass_attributes(names)}(a, b{', c' if has(node, 2) else ''})")
    given = [read_attribute(node, f"activation_{name}", None) for name in ("alpha", "beta")]
    found = _activate(node, lines, found, [p for p in given if p is not None])
    lines.set("y", f"Identity({found})")
    return lines.function(["a", "b", "c"], ["y"])


def _fuse_product(node: Node) -> str:
    lines = Lines()
    a, b = (_turn(node, lines, number, name) for number, name in enumerate("ab"))
    alpha = read_attribute(node, "alpha", 1.0)
    product = lines.set("product", f"MatMul({a}, {b})")
    if alpha != 1.0:
        product = lines.set("scaled", f"Mul({product}, {lines.real('alpha', alpha, product)})")
    lines.set("y", f"Identity({product})")
    return lines.function(["a", "b"], ["y"])


def _turn(node: Node, lines: Lines, number: int, name: str) -> str:
    """An operand of a product, in the order of axes that the product takes it in."""
    axes = list(range(node.rank(number)))
    if read_attribute(node, f"transBatch{name.upper()}", 0):
        axes = [*axes[1:-1], axes[0], axes[-1]]
    if read_attribute(node, f"trans{name.upper()}", 0) and len(axes) > 1:
        axes[-2:] = axes[:-3:-1]
    if axes == sorted(axes):
        return name
    return lines.set(f"{name}_turn", f"Transpose<perm = [{', '.join(map(str, axes))}]>({name})")


ELEMENTWISE: Mapping[str, Write] = MappingProxyType(
    {
        "BiasGelu": _bias_gelu,
        "FastGelu": _fast_gelu,
        "FusedConv": _fuse_convolution,
        "FusedGemm": _fuse_gemm,
        "FusedMatMul": _fuse_product,
        "Gelu": _gelu,
        "QuickGelu": _quick_gelu,
    }
)
