"""What one of TVM's converters honours, as a row of the table."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, TypeAlias

from spaces.frontends.onnx.node import Node

Types: TypeAlias = frozenset[str]
Values: TypeAlias = tuple[object, ...] | None
"""Values of an attribute that are honoured besides its default, text as such; `ANY` is all."""
Limit: TypeAlias = Callable[[Node], str | None]
"""Says what about a node is not honoured that the columns of a row cannot tell."""

ANY: Final = None
NONE: Types = frozenset()
"""Of an operand that is not honoured."""
BOOL: Types = frozenset({"bool"})
BFLOAT: Types = frozenset({"bfloat16"})
REALS: Types = frozenset({"float16", "float32", "float64"})
FLOATS = REALS | BFLOAT
SINGLE: Types = frozenset({"float32"})
SIGNED: Types = frozenset({"int8", "int16", "int32", "int64"})
UNSIGNED: Types = frozenset({"uint8", "uint16", "uint32", "uint64"})
INTEGERS = SIGNED | UNSIGNED
WIDE: Types = frozenset({"int32", "int64", "uint32", "uint64"})
NUMBERS = FLOATS | INTEGERS
PLAIN = NUMBERS | BOOL
FLOAT8: Types = frozenset(
    f"float8_{name}" for name in ("e4m3fn", "e4m3fnuz", "e5m2", "e5m2fnuz", "e8m0fnu")
)
MOVED = PLAIN | FLOAT8
"""Of operands whose elements are only moved."""
INDEX: Types = frozenset({"int32", "int64"})
INT64: Types = frozenset({"int64"})
REFUSED_TYPES: Types = frozenset(
    {"complex64", "complex128", "object"}
    | {"int4", "uint4", "int2", "uint2", "float4_e2m1fn", "float6_e2m3fn", "float6_e3m2fn"}
)
"""Types of elements that no converter of TVM's honours; `object` is text."""


@dataclass(frozen=True, slots=True)
class Row:
    """What TVM's converter of an operator honours. It gets no node with anything else.

    Attributes:
        since: first version of ONNX's operators whose nodes it takes.
        operands: types of elements that it takes of each; those of the last one hold for all that
            follow where there may be any number.
        gives: how many outputs it computes, of how many there are in any version.
        known: operands that have to be known while the graph is imported.
        limit: what else it does not honour.
        attributes: those of each version from the first one on; `()` is one of which it honours
            the default alone.
    """

    since: int
    operands: tuple[Types, ...]
    gives: tuple[int, int]
    known: tuple[int, ...]
    limit: Limit | None
    attributes: Mapping[str, Values]


def row(
    since: int,
    *operands: Types,
    gives: tuple[int, int] = (1, 1),
    known: tuple[int, ...] = (),
    limit: Limit | None = None,
    **attributes: Values,
) -> Row:
    """A row with its attributes by name."""
    return Row(since, operands, gives, known, limit, MappingProxyType(attributes))


def refuse_all(why: str, *operands: Types, since: int = 1, **attributes: Values) -> Row:
    """The row of an operator of which no node is left to TVM."""
    return Row(since, operands, (1, 1), (), lambda _: why, MappingProxyType(attributes))
