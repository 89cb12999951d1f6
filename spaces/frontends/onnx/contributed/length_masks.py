"""Masks whose sums are lengths: drawn at random, they say lengths that no call can have.

Model builders write `GroupQueryAttention` so: how many keys an entry of a batch has is the sum of a
mask over past and new rows. Where these are fewer than the new rows, onnxruntime refuses them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from tuner.request.model_spec import IntRange

ONES = IntRange(1, 1)
"""What such a mask is drawn from: all rows are there."""
_LENGTHS = 5
"""The operand of `GroupQueryAttention` that says lengths."""
_KEPT = frozenset({"Add", "Cast", "Identity", "Reshape", "Squeeze", "Sub", "Unsqueeze"})
"""What may lie between a mask, its sum and the operand."""


def find_length_masks(graph: Any) -> frozenset[str]:
    """Names of a graph's inputs that are masks whose sums are lengths."""
    makers = {name: node for node in graph.node for name in node.output}
    lengths = [
        node.input[_LENGTHS]
        for node in graph.node
        if node.op_type == "GroupQueryAttention" and len(node.input) > _LENGTHS
    ]
    ends = [makers[end] for one in lengths for end in _sources(one, makers) if end in makers]
    summed = dict.fromkeys(end.input[0] for end in ends if end.op_type == "ReduceSum")
    masks = {mask for one in summed for mask in _sources(one, makers)}
    return frozenset(value.name for value in graph.input if value.name in masks)


def _sources(name: str, makers: Mapping[str, Any]) -> Iterator[str]:
    """Names of the values that one is made of by operators of `_KEPT` alone."""
    left, seen = [name], {name}
    while left:
        one = left.pop()
        maker = makers.get(one)
        if maker is None or maker.op_type not in _KEPT:
            yield one
            continue
        left.extend(each for each in maker.input if each not in seen)
        seen.update(maker.input)
