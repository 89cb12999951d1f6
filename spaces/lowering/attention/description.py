"""What attention computes, as expressions of the places that it computes them for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

SUMS = "float32"
"""Type of scores as softmax takes them, and of all that it sums."""


@dataclass(frozen=True, slots=True)
class Axis:
    """A variable and how many values it has: from zero on."""

    var: Any
    extent: Any


@dataclass(frozen=True, slots=True)
class Load:
    """An element of a tensor, at indices that are expressions of axes."""

    tensor: Any
    indices: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Attention:
    """For each row of queries, the mean of rows of values, weighted by the softmax of scores.

    Attributes:
        batch: axes of independent attentions: batches and heads.
        rows: rows of queries; `keys` rows of keys and of values.
        width: elements of a query and of a key, which a score sums over.
        columns: elements of a value.
        query: an element at `batch`, `rows`, `width`; `key` one at `batch`, `keys`, `width`;
            `value` one at `batch`, `keys`, `columns`.
        product: the variable that stands for a sum of products of queries and keys, in the type
            that these are summed in.
        score: what softmax takes for it, in float32: an expression of it, `batch`, `rows`, `keys`.
        is_safe: whether a row all of whose scores are minus infinity has weights of zero. Else it
            has none that is a number.
        total: the variable that stands for a sum of weighted values, in their type.
        result: what is stored for it, an expression of it, `batch`, `rows`, `columns`.
        place: where that is stored.
    """

    batch: tuple[Axis, ...]
    rows: Axis
    keys: Axis
    width: Axis
    columns: Axis
    query: Load
    key: Load
    value: Load
    product: Any
    score: Any
    is_safe: bool
    total: Any
    result: Any
    place: Load
