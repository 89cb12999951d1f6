"""Functions in ONNX's text form, made for one call: what is written depends on its attributes and
on which operands it has."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from spaces.frontends.onnx.node import Node

Write: TypeAlias = Callable[[Node], str]
"""Writes the function of one call: `(operands) => (results) { nodes }`."""
OPSET = 24
"""Version of ONNX that the functions are written in."""


@dataclass(slots=True)
class Lines:
    """The nodes of a function, one after the other."""

    written: list[str] = field(default_factory=list)

    def set(self, name: str, expression: str) -> str:
        """Bind one value; gives its name."""
        self.written.append(f"{name} = {expression}")
        return name

    def function(self, operands: Sequence[str], results: Sequence[str]) -> str:
        """The whole function."""
        return f"({', '.join(operands)}) => ({', '.join(results)}) {{ {' '.join(self.written)} }}"

    def numbers(self, name: str, values: Sequence[int]) -> str:
        """Bind a vector of whole numbers."""
        return self.set(name, f"Constant<value_ints = [{', '.join(map(str, values))}]>()")

    def number(self, name: str, value: int) -> str:
        """Bind one whole number."""
        return self.set(name, f"Constant<value_int = {value}>()")

    def places(self, name: str, tensor: str, axis: int) -> str:
        """Bind the numbers of the places along an axis of a tensor, in order, as `{name}_places`,
        and how many there are as `{name}_size`."""
        shape = self.set(f"{name}_shape", f"Shape({tensor})")
        size = self.set(f"{name}_size", f"Gather({shape}, {self.number(f'{name}_axis', axis)})")
        zero, one = self.number(f"{name}_zero", 0), self.number(f"{name}_one", 1)
        return self.set(f"{name}_places", f"Range({zero}, {size}, {one})")

    def real(self, name: str, value: float, like: str) -> str:
        """Bind one number of the type that another value has."""
        constant = self.set(f"{name}_real", f"Constant<value_float = {real(value)}>()")
        return self.set(name, f"CastLike({constant}, {like})")


def pass_attributes(attributes: Sequence[str]) -> str:
    """Attributes, each with its type, that a node has from the call; nothing where there are
    none."""
    given = ", ".join(f"{text} = @{text.partition(':')[0]}" for text in attributes)
    return f"<{given}>" if given else ""


def real(value: float) -> str:
    """A number as the text form takes it."""
    text = repr(float(value))
    return text if "." in text or "e" in text else f"{text}.0"


def has(node: Node, number: int) -> bool:
    """Whether an operand is given."""
    return node.input(number) is not None


def read_attribute(node: Node, name: str, usual: Any) -> Any:
    """An attribute, text as such."""
    found = node.attributes.get(name, usual)
    return found.decode() if isinstance(found, bytes) else found
