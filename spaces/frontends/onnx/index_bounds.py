"""How large the numbers in a tensor can be, where it numbers rows: what a `Gather` may read.

Positions that a graph counts out (`Range`, then `Gather` from a table) go beyond a table's end
where a model is run with longer sequences than it has positions for. ONNX calls that an error; a
program of TVM would read some other row.
"""

from __future__ import annotations

from spaces.frontends.onnx.node import Node
from spaces.frontends.onnx.sizes import Size

_KEEP = frozenset(
    {
        *{"Identity", "Cast", "Reshape", "Flatten", "Transpose"},
        *{"Squeeze", "Unsqueeze", "Slice", "Expand", "Tile"},
    }
)
"""Operators whose results hold nothing that was not in their first operand."""


def largest_number(node: Node) -> Size | None:
    """The largest number that a result holds; None where that is not known."""
    first = node.input(0)
    if node.operator == "Range":
        bounds = [node.sizes(number) for number in range(3)]
        known = [bound.flat()[0] for bound in bounds if bound is not None]
        upwards = len(known) == 3 and isinstance(known[2], int) and known[2] > 0
        return known[1] - 1 if upwards else None
    if node.operator in _KEEP:
        return None if first is None else first.largest
    if node.operator == "Add":
        pairs = ((0, 1), (1, 0))
        return next((s for a, b in pairs if (s := _add_size(node, a, b)) is not None), None)
    return None


def _add_size(node: Node, moved: int, by: int) -> Size | None:
    """The largest number of one operand, with the other one added, if that is known."""
    value, offsets = node.input(moved), node.sizes(by)
    if value is None or value.largest is None or offsets is None or offsets.values.size != 1:
        return None
    return value.largest + offsets.flat()[0]


def require_rows(node: Node) -> None:
    """Have the model refuse shapes for which a `Gather` reads beyond the end."""
    indices, dims = node.input(1), node.dims(0)
    if indices is None or dims is None:
        return
    symbolic = (
        () if indices.sizes is None else (s for s in indices.sizes.flat() if not _is_known(s))
    )
    counted = () if indices.largest is None else (indices.largest,)
    for row in (*symbolic, *counted):
        node.require(row + 1, dims[node.attributes.get("axis", 0)])


def _is_known(size: Size) -> bool:
    return isinstance(size, int)
