"""Graphs made simpler before they are imported.

Nothing here changes a value by more than a rounding: what cannot be seen to be safe stays.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from spaces.frontends.onnx.node import STANDARD_DOMAINS
from spaces.frontends.onnx.simplifier.byte_groups import join_byte_groups
from spaces.frontends.onnx.simplifier.convolutions import merge_convolutions
from spaces.frontends.onnx.simplifier.folding import with_computed_constants
from spaces.frontends.onnx.simplifier.known_tensors import KnownTensors
from spaces.frontends.onnx.simplifier.names_read import names_read, read_within, uses

_DRAWS = frozenset(
    {
        *("Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike"),
        *("RandomUniform", "RandomUniformLike", "Dropout"),
    }
)
"""Operators of which two with the same operands may give different values."""
_SIZED_BY_VALUES = frozenset({"Compress", "NonZero", "NonMaxSuppression", "Range", "Unique"})
"""Operators whose results have as many elements as their operands say."""


def split_sums(proto: Any) -> None:
    """Turn each `Sum` of several tensors into additions, in place.

    The importer stacks the tensors and reduces the stack, which copies them and keeps the
    addition of a residual block from being fused with its convolution.
    """
    import onnx

    nodes = []
    for node in proto.graph.node:
        if node.op_type != "Sum" or node.domain not in STANDARD_DOMAINS or len(node.input) < 2:
            nodes.append(node)
            continue
        left = node.input[0]
        for number, right in enumerate(node.input[1:], start=1):
            last = number == len(node.input) - 1
            out = node.output[0] if last else f"{node.output[0]}/partial{number}"
            nodes.append(onnx.helper.make_node("Add", [left, right], [out], name=node.name))
            left = out
    del proto.graph.node[:]
    proto.graph.node.extend(nodes)


def simplify(proto: Any) -> None:
    """Simplify a graph, in place: what depends on constants alone is computed, equal nodes become
    one, padding and factors go into the convolutions beside them, what stands for bytes is worked
    out on these, and what nobody reads goes."""
    graph = proto.graph
    known = KnownTensors(graph)
    own = {(f.domain, f.name) for f in proto.functions}
    kept = {value.name for value in graph.output}
    read_inside = {name for node in graph.node for name in read_within(node)}
    nodes = list(_sort(graph.node))
    nodes = with_computed_constants(nodes, known, proto.opset_import, own)
    nodes = _without_repeated(nodes, known, own, kept | read_inside)
    nodes = merge_convolutions(nodes, known, kept)
    nodes = join_byte_groups(nodes, known, kept)
    nodes, read = _find_needed(nodes, kept)
    del graph.node[:]
    graph.node.extend(nodes)
    known.keep_in(graph, read)


def _sort(nodes: Iterable[Any]) -> Iterator[Any]:
    """Nodes after what computes their operands; else in the order that they have.

    What only a run knows the size of comes first, with all that it needs: TVM may fuse a program
    over such a size into one that stands before it, and the size is not known there.
    """
    listed = list(nodes)
    makers = {name: place for place, node in enumerate(listed) for name in node.output if name}
    needs = [
        {makers[name] for name in names_read(node) if makers.get(name, place) != place}
        for place, node in enumerate(listed)
    ]
    early: set[int] = set()
    waiting = [place for place, node in enumerate(listed) if node.op_type in _SIZED_BY_VALUES]
    while waiting:
        if (place := waiting.pop()) not in early:
            early.add(place)
            waiting.extend(needs[place])
    readers: dict[int, list[int]] = {}
    for place, wanted in enumerate(needs):
        for maker in wanted:
            readers.setdefault(maker, []).append(place)
    left = [len(wanted) for wanted in needs]
    ready = [(place not in early, place) for place, number in enumerate(left) if not number]
    heapq.heapify(ready)
    while ready:
        _, place = heapq.heappop(ready)
        yield listed[place]
        for reader in readers.get(place, ()):
            left[reader] -= 1
            if not left[reader]:
                heapq.heappush(ready, (reader not in early, reader))
    # In a circle: the importer says which operand nothing computes.
    yield from (node for node, number in zip(listed, left, strict=True) if number)


def _without_repeated(
    nodes: list[Any], known: KnownTensors, own: set[tuple[str, str]], kept: set[str]
) -> list[Any]:
    """Nodes without those that compute what one before them does, of the same constants bit by bit
    and the same other operands, and without those that give what they are given."""
    renamed = known.repeated()
    seen: dict[tuple[Any, ...], Any] = {}
    read = uses(nodes, kept)
    rest = []
    for node in nodes:
        for place, name in enumerate(node.input):
            node.input[place] = renamed.get(name, name)
        if (node.domain, node.op_type) in own or not kept.isdisjoint(node.output):
            rest.append(node)
        elif _is_copy(node, known) and not any(read[name] for name in node.output[1:]):
            renamed[node.output[0]] = node.input[0]
        else:
            key = _computation(node)
            first = seen.setdefault(key, node) if key else node
            if first is node:
                rest.append(node)
            else:
                renamed |= dict(zip(node.output, first.output, strict=True))
    return rest


def _is_copy(node: Any, known: KnownTensors) -> bool:
    """Whether the first result is the first operand."""
    if node.domain not in STANDARD_DOMAINS or node.op_type not in ("Identity", "Dropout"):
        return False
    training = known.array(node.input[2]) if len(node.input) > 2 and node.input[2] else False
    return training is not None and not np.any(training)


def _computation(node: Any) -> tuple[Any, ...]:
    """What a node computes, to compare it with others; empty where it cannot be told."""
    holds_graphs = any(a.HasField("g") or a.graphs for a in node.attribute)
    if holds_graphs or node.op_type in _DRAWS or node.domain not in STANDARD_DOMAINS:
        return ()
    attributes = sorted(a.SerializeToString(deterministic=True) for a in node.attribute)
    return node.op_type, (*node.input,), (*map(bool, node.output),), (*attributes,)


def _find_needed(nodes: list[Any], kept: set[str]) -> tuple[list[Any], set[str]]:
    """The nodes that something reads, and all names that are read."""
    read = set(kept)
    found = []
    for node in reversed(nodes):
        if not read.isdisjoint(node.output):
            found.append(node)
            read.update(names_read(node))
    return found[::-1], read
