"""Operators between `DequantizeLinear` and `QuantizeLinear`, as operators on the bytes themselves.

A file in QDQ form says where numbers are rounded to 8 bits, and computes in floats in between.
Products of what stands for bytes become products of integers, see
`spaces.frontends.onnx.simplifier.byte_products`. What moves bytes, or chooses among them, is done
on them where it is rounded alike on both sides, which changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from spaces.frontends.onnx.node import STANDARD_DOMAINS
from spaces.frontends.onnx.simplifier.byte_products import Rounded, read_product, write_product
from spaces.frontends.onnx.simplifier.known_tensors import KnownTensors
from spaces.frontends.onnx.simplifier.linear_steps import BYTES, MOVES, Steps, read_steps
from spaces.frontends.onnx.simplifier.names_read import uses
from spaces.frontends.onnx.simplifier.padding import attributes_of
from spaces.frontends.onnx.simplifier.unsigned_steps import round_to_unsigned


def join_byte_groups(nodes: Iterable[Any], known: KnownTensors, kept: set[str]) -> list[Any]:
    """Nodes in order, with those on numbers that stand for bytes as nodes on these bytes.

    Args:
        kept: values that others than nodes read.
    """
    listed = [*nodes]
    moving = _Groups(listed, known, kept)
    listed = [node for node in listed if moving.keeps(node)]
    listed = round_to_unsigned(listed, known, kept)
    groups = _Groups(listed, known, kept)
    return [made for node in listed for made in groups.multiply(node)]


class _Groups:
    def __init__(self, nodes: list[Any], known: KnownTensors, kept: set[str]) -> None:
        self._known = known
        self._read = uses(nodes, kept)
        self._makers = {name: node for node in nodes for name in node.output}
        self._readers = {node.input[0]: node for node in nodes if node.input}
        self._gone: set[int] = set()

    def keeps(self, node: Any) -> bool:
        """Have a node move bytes, if it can; False for one whose work is done by one before it."""
        if id(node) in self._gone:
            return False
        if node.domain in STANDARD_DOMAINS and node.op_type in MOVES:
            self._move(node)
        return True

    def multiply(self, node: Any) -> list[Any]:
        """What a node becomes: itself, a product of bytes, or nothing where one before it does its
        work."""
        if id(node) in self._gone:
            return []
        if node.domain not in STANDARD_DOMAINS:
            return [node]
        product = read_product(node, self._dequantized, self._known)
        if product is None:
            return [node]
        rounded = self._rounded(node) if product.rounds else None
        written = write_product(product, rounded, self._dequantized, self._known)
        if written is None:
            return [node]
        if rounded is not None:
            self._gone |= {id(after) for after in rounded.nodes}
        return written

    def _dequantized(self, name: str) -> Steps | None:
        return read_steps(self._makers.get(name), "DequantizeLinear", self._known)

    def _only_reader(self, node: Any) -> Any | None:
        """The node that alone reads the first result of another one, as its first operand."""
        name = node.output[0]
        return self._readers.get(name) if self._read[name] == 1 else None

    def _move(self, node: Any) -> None:
        after = self._only_reader(node)
        before = self._dequantized(node.input[0])
        steps = read_steps(after, "QuantizeLinear", self._known)
        if after is None or before is None or steps is None or not before.equals(steps):
            return
        if any(self._read[name] for name in node.output[1:]):
            return
        self._gone.add(id(after))
        node.input[0], node.output[0] = before.data, after.output[0]

    def _rounded(self, node: Any) -> Rounded | None:
        """How the result of a node becomes bytes; None where it does not."""
        low, high = -np.inf, np.inf
        passed: list[Any] = []
        while (after := self._only_reader(passed[-1] if passed else node)) is not None:
            passed.append(after)
            steps = read_steps(after, "QuantizeLinear", self._known)
            if steps is not None:
                if steps.scale.size != 1 or steps.dtype not in BYTES:
                    return None
                least, most = (steps.round(bound) for bound in (low, high))
                return Rounded(steps, tuple(passed), least, most)
            limits = self._limits(after)
            if limits is None:
                return None
            least_of, most_of = limits
            low, high = (float(np.minimum(np.maximum(b, least_of), most_of)) for b in (low, high))
        return None

    def _limits(self, node: Any) -> tuple[float, float] | None:
        """What a node cuts its operand off at; None where it does something else."""
        if node.domain not in STANDARD_DOMAINS or node.op_type not in ("Clip", "Relu"):
            return None
        if node.op_type == "Relu":
            return 0.0, np.inf
        given = attributes_of(node)
        bounds = [given.get("min", -np.inf), given.get("max", np.inf)]
        for place, name in enumerate(node.input[1:]):
            if name:
                number = self._known.array(name)
                if number is None or number.size != 1:
                    return None
                bounds[place] = number.item()
        return None if np.any(np.isnan(bounds)) else (float(bounds[0]), float(bounds[1]))
