"""Normalisations of the last axis, with what is added up before them."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from spaces.frontends.onnx.contributed.text import Lines, Write, has, read_attribute, real
from spaces.frontends.onnx.node import Node
from spaces.ir.element_types import HALVES


def _simplify(node: Node) -> str:
    lines = Lines()
    first = read_attribute(node, "axis", -1) % node.rank(0)
    _scale(node, lines, "x", "scale", list(range(first, node.rank(0))))
    return lines.function(["x", "scale"], ["y", "inverse"])


def _scale(node: Node, lines: Lines, value: str, scale: str, axes: list[int]) -> None:
    """Bind `y`, a value over its root mean square, and `inverse`, one over that, which is computed
    in float32 where the value has fewer digits."""
    narrow = node.operand(0).dtype in HALVES
    value = lines.set("wide", f"Cast<to = 1>({value})") if narrow else value
    squares = lines.set("squares", f"Mul({value}, {value})")
    mean = lines.set("mean", f"ReduceMean({squares}, {lines.numbers('axes', axes)})")
    small = lines.real("epsilon", read_attribute(node, "epsilon", 1e-5), value)
    root = lines.set("root", f"Sqrt({lines.set('above_zero', f'Add({mean}, {small})')})")
    inverse = lines.set("inverse", f"Reciprocal({root})")
    normal = lines.set("normal", f"Mul({value}, {inverse})")
    normal = lines.set("rounded", f"CastLike({normal}, {scale})") if narrow else normal
    lines.set("y", f"Mul({normal}, {scale})")


def _sum(node: Node, lines: Lines, bias: int) -> str:
    """What is normalised: the operand, what skipped a layer, and a bias where there is one."""
    if has(node, bias):
        lines.set("partial", "Add(x, skip)")
        return lines.set("total", "Add(partial, bias)")
    return lines.set("total", "Add(x, skip)")


def _skip(node: Node) -> str:
    lines = Lines()
    total, beta = _sum(node, lines, 4), ", beta" if has(node, 3) else ""
    operands = f"{total}, gamma{beta}"
    results = ["y", "mean", "inverse", "total"]
    found = ", ".join(results[:3] if any(node.outputs[1:3]) else ["y"])
    norm = (
        f"LayerNormalization<axis = -1, epsilon = {real(read_attribute(node, 'epsilon', 1e-12))}>"
    )
    lines.written.append(f"{found} = {norm}({operands})")
    return lines.function(["x", "skip", "gamma", "beta", "bias"], results)


def _skip_simplified(node: Node) -> str:
    lines = Lines()
    _scale(node, lines, _sum(node, lines, 3), "gamma", [-1])
    results = ["y", "mean", "inverse", "total"]
    return lines.function(["x", "skip", "gamma", "bias"], results)


def _embedding(node: Node) -> str:
    lines = Lines()
    total = lines.set("word", "Gather(words, ids)")
    if has(node, 8):
        place = lines.set("place", "Gather(places, position_ids)")
    else:
        numbers = lines.places("position", "ids", 1)
        place = lines.set("place", f"Gather(places, {numbers})")
    total = lines.set("placed", f"Add({total}, {place})")
    if has(node, 1):
        kind = lines.set("kind", "Gather(kinds, segments)")
        total = lines.set("of_kind", f"Add({total}, {kind})")
    lines.set("total", f"Identity({total})")
    epsilon = real(read_attribute(node, "epsilon", 1e-12))
    lines.set("y", f"LayerNormalization<axis = -1, epsilon = {epsilon}>(total, gamma, beta)")
    counted = "mask" if has(node, 7) else lines.set("none", "Sub(ids, ids)")
    lines.set("index", f"ReduceSum<keepdims = 0>({counted}, {lines.numbers('last', [1])})")
    operands = ["ids", "segments", "words", "places", "kinds", "gamma", "beta", "mask",
                "position_ids"]  # fmt: skip
    return lines.function(operands, ["y", "index", "total"])


NORMALIZATION: Mapping[str, Write] = MappingProxyType(
    {
        "EmbedLayerNormalization": _embedding,
        "SimplifiedLayerNormalization": _simplify,
        "SkipLayerNormalization": _skip,
        "SkipSimplifiedLayerNormalization": _skip_simplified,
    }
)
