"""Sizes that only a run knows: computed by a program of its own, then symbols of the graph.

What depends on them is left untuned, as what depends on the result of a `NonZero` is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from spaces.frontends.onnx.node import Node
from spaces.frontends.onnx.sizes import Size

Read: TypeAlias = Callable[[int], Any]
"""One number of an operand, as an expression in int64."""


def computed_sizes(
    node: Node,
    builder: Any,
    operands: Sequence[int],
    number: int,
    calculate: Callable[..., tuple[Sequence[Any], Any]],
) -> list[Size]:
    """Sizes that follow from operands of integers.

    Args:
        operands: which ones.
        number: of sizes.
        calculate: gives the sizes and whether they hold, from a `Read` of each operand. Where they
            do not hold, the model ends with an error when it is run.

    Returns:
        A symbol for each size.
    """
    from tvm import relax, te, tirx

    def program(*tensors: Any) -> Any:
        reads = [reader(tensor) for tensor in tensors]
        sizes, holds = calculate(*reads)
        broken = tirx.Select(holds, tirx.const(0, "int64"), tirx.const(1, "int64"))
        return te.compute((number + 1,), lambda i: _chosen(i, [*sizes, broken]), name="sizes")

    tensors = [node.tensor(place, builder) for place in operands]
    vector = builder.emit_te(program, *tensors, primfunc_name_hint="sizes")
    found = builder.emit(relax.op.tensor_to_shape(vector))
    stem = f"{node.operator.lower()}_{len(node.requirements)}"
    symbols = [tirx.Var(f"{stem}_{place}", "int64") for place in range(number)]
    builder.match_cast(found, relax.ShapeType([*symbols, tirx.const(0, "int64")]))
    return symbols


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


def _chosen(index: Any, values: Sequence[Any]) -> Any:
    from tvm import tirx

    found = values[-1]
    for place, value in reversed([*enumerate(values[:-1])]):
        found = tirx.Select(index == place, value, found)
    return found
