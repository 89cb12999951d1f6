"""Sizes that only a run knows: computed by a program of its own, then symbols of the graph.

What depends on them is left untuned, as what depends on the result of a `NonZero` is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from spaces.frontends.onnx.node import Node
from spaces.frontends.onnx.sizes import Size

Read: TypeAlias = Callable[[Any], Any]
"""One number of a tensor, as an expression in int64."""


def compute_sizes(
    node: Node,
    builder: Any,
    tensors: Sequence[Any],
    number: int,
    calculate: Callable[..., tuple[Callable[[Any], Any], Any]],
) -> list[Size]:
    """Sizes that follow from tensors of integers.

    Args:
        number: of sizes.
        calculate: gives, with a `Read` of each tensor, the size of a place and whether all hold.
            Where they do not, the model ends with an error when it is run.

    Returns:
        A symbol for each size.
    """
    from tvm import relax, te, tirx

    def program(*operands: Any) -> Any:
        size, holds = calculate(*map(reader, operands))
        broken = tirx.Select(holds, tirx.const(0, "int64"), tirx.const(1, "int64"))
        return te.compute(
            (number + 1,),
            lambda place: tirx.if_then_else(place < number, size(place), broken),
            name="sizes",
        )

    vector = builder.emit_te(program, *tensors, primfunc_name_hint="sizes")
    found = builder.emit(relax.op.tensor_to_shape(vector))
    symbols = [tirx.Var(f"{node.operator.lower()}_{place}", "int64") for place in range(number)]
    builder.match_cast(found, relax.ShapeType([*symbols, tirx.const(0, "int64")]))
    return symbols


def stage(number: int, calculate: Callable[[Any], Any]) -> Read:
    """Numbers that a program keeps: an expression of them all would be long."""
    from tvm import te

    return reader(te.compute((number,), calculate, name="stage"))


def length_of(node: Node, number: int) -> int:
    """How many numbers an operand holds.

    Raises:
        TunerError: that is not known.
    """
    dims = node.shape(number)
    if len(dims) > 1 or any(not isinstance(size, int) for size in dims):
        raise node.refused(f"how many numbers are in its operand {number} is not known")
    return dims[0] if dims else 1


def reader(tensor: Any) -> Read:
    """What reads an operand's numbers within a program."""

    def read(place: int) -> Any:
        element = tensor[place] if len(tensor.shape) else tensor()
        return element.astype("int64")

    return read


def choose_value(place: Any, values: Sequence[Any]) -> Any:
    """One of some values, as an expression."""
    from tvm import tirx

    found = values[-1]
    for number, value in reversed([*enumerate(values[:-1])]):
        found = tirx.Select(place == number, value, found)
    return found
