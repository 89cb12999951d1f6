"""Which values of a graph are read, and by how many."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any


def names_read(node: Any) -> Iterator[str]:
    """The values that a node reads, and those that are read by graphs within it."""
    yield from (name for name in node.input if name)
    yield from read_within(node)


def read_within(node: Any) -> Iterator[str]:
    """All names that are read by the graphs within a node, those of their own values among them."""
    for attribute in node.attribute:
        for graph in [attribute.g] if attribute.HasField("g") else attribute.graphs:
            yield from (value.name for value in graph.output)
            for inner in graph.node:
                yield from names_read(inner)


def uses(nodes: Iterable[Any], kept: Iterable[str]) -> Counter[str]:
    """How often each value is read, by nodes and by who runs the graph."""
    return Counter([name for node in nodes for name in names_read(node)]) + Counter(kept)
