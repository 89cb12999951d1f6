"""What is rounded to signed bytes, rounded to unsigned ones instead.

An integer and its zero point are 128 more then, so that they stand for the same number. CPUs have
one instruction for sums of products of unsigned and signed bytes: weights are signed, and rows
should not be. Where a tool rounds what is never negative to signed bytes, its zero point becomes 0.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Any

import numpy as np

from spaces.frontends.onnx.node import STANDARD_DOMAINS
from spaces.frontends.onnx.simplifier.known_tensors import KnownTensors
from spaces.frontends.onnx.simplifier.linear_steps import MOVES, read_steps
from spaces.frontends.onnx.simplifier.names_read import uses
from spaces.frontends.onnx.simplifier.padding import attributes_of

_MORE = 128
_PRODUCTS = ("Conv", "Gemm", "MatMul")


def round_to_unsigned(nodes: Iterable[Any], known: KnownTensors, kept: set[str]) -> list[Any]:
    """Nodes with other zero points, where bytes are moved and read by `DequantizeLinear` alone.

    Args:
        kept: values that others than nodes read.
    """
    listed = [*nodes]
    graph = _Graph(listed, known, kept)
    turned: dict[str, str] = {}
    for node in listed:
        ends = graph.find_ends(node.output[0])
        if not ends or not graph.may_turn(node, ends):
            continue
        for one in (node, *ends):
            one.input[2] = turned.get(one.input[2]) or _turn(one.input[2], known, turned)
    return listed


class _Graph:
    def __init__(self, nodes: list[Any], known: KnownTensors, kept: set[str]) -> None:
        self._known = known
        self._read = uses(nodes, kept)
        self._readers: dict[str, list[Any]] = defaultdict(list)
        for node in nodes:
            for name in {*node.input}:
                self._readers[name].append(node)
        self._makers = {name: node for node in nodes for name in node.output}

    def find_ends(self, name: str) -> list[Any] | None:
        """What turns bytes into numbers; None where anything else than a move reads them."""
        readers = self._readers[name]
        if len(readers) != self._read[name]:
            return None
        ends: list[Any] = []
        for node in readers:
            if node.op_type == "DequantizeLinear" and node.input[0] == name:
                ends.append(node)
                continue
            moved = None
            if node.op_type in MOVES and node.domain in STANDARD_DOMAINS and node.input[0] == name:
                moved = self.find_ends(node.output[0])
            if moved is None:
                return None
            ends += moved
        return ends

    def may_turn(self, node: Any, ends: list[Any]) -> bool:
        """Whether a node makes signed bytes, these are read as such, and by no product of unsigned
        ones."""
        pair = [(node, "QuantizeLinear"), *((end, "DequantizeLinear") for end in ends)]
        if not all(_is_signed(one, operator, self._known) for one, operator in pair):
            return False
        products = [after for end in ends for after in self._readers[end.output[0]]]
        factors = [name for after in products for name in _factors(after)]
        return not any(_is_unsigned(self._makers.get(name), self._known) for name in factors)


def _is_signed(node: Any, operator: str, known: KnownTensors) -> bool:
    """Whether a node is of that operator, and its zero point says that its bytes are signed."""
    steps = read_steps(node, operator, known)
    if steps is None or steps.dtype != "int8" or not steps.zero_name:
        return False
    return not attributes_of(node).get("output_dtype", 0)


def _factors(node: Any) -> list[str]:
    """The operands of a product."""
    return [*node.input[:2]] if node.op_type in _PRODUCTS else []


def _is_unsigned(node: Any, known: KnownTensors) -> bool:
    """Whether a node gives what unsigned bytes stand for."""
    steps = read_steps(node, "DequantizeLinear", known)
    return steps is not None and steps.dtype == "uint8"


def _turn(name: str, known: KnownTensors, turned: dict[str, str]) -> str:
    zero = known.array(name)
    assert zero is not None
    made = (zero.astype("int16") + _MORE).astype(np.uint8)
    turned[name] = known.new(f"{name}/unsigned", made)
    return turned[name]
