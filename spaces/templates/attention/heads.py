"""The sizes of an attention."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import numpy as np

from spaces.ir import tvm_compat
from spaces.ir.symbolic import value_of
from spaces.lowering.attention.description import Attention
from spaces.templates.attention.causal import find_limit
from spaces.templates.attention.groups import find_group

_SEEN_CAUSAL = 0.5
"""The share of rows by keys of which a causal mask leaves something."""


@dataclass(frozen=True, slots=True)
class Heads:
    """The sizes of an attention; of one shape, or of many as arrays.

    Attributes:
        batch: independent attentions; `together` so many in a row have the same keys and values.
        rows: rows of queries of each; `keys` rows of keys.
        width: elements of a query; `columns` those of a value.
        keys_seen: the share of rows by keys that any row looks at.
    """

    batch: Any
    rows: Any
    keys: Any
    width: int
    columns: int
    keys_seen: float
    together: int = 1


def read_heads(attention: Attention) -> Heads:
    """What is the same in every shape."""
    width, columns = (
        tvm_compat.as_int(a.extent) or 0 for a in (attention.width, attention.columns)
    )
    seen = 1.0 if find_limit(attention) is None else _SEEN_CAUSAL
    return Heads(1, 1, 1, width, columns, seen, find_group(attention).heads)


def size_heads(attention: Attention, heads: Heads, values: Mapping[str, int]) -> Heads:
    """The sizes of an attention in a shape."""
    batch, rows, keys = (
        prod(value_of(axis.extent, values) or 0 for axis in axes)
        for axes in (attention.batch, [attention.rows], [attention.keys])
    )
    return replace(heads, batch=batch, rows=rows, keys=keys)


def cover_heads(each: Sequence[Heads]) -> Heads:
    """The largest sizes of several shapes."""
    batch, rows, keys = (max(sizes) for sizes in zip(*map(_list_sizes, each), strict=True))
    return replace(each[0], batch=batch, rows=rows, keys=keys)


def stack_heads(each: Sequence[Heads]) -> Heads:
    """The sizes of several shapes as arrays."""
    batch, rows, keys = np.array([_list_sizes(heads) for heads in each]).T
    return replace(each[0], batch=batch, rows=rows, keys=keys)


def count_scores(heads: Heads) -> int:
    """Products of a query and a key, of all attentions."""
    return int(heads.batch * heads.rows * heads.keys)


def _list_sizes(heads: Heads) -> tuple[Any, Any, Any]:
    return heads.batch, heads.rows, heads.keys
