"""The operations of a graph that run channels-last: a decision on bytes, without any program.

Convolutions are faster with the channels innermost, where one vector load feeds many outputs; the
operations between them have no preference of their own, and some cannot run that way. Where
neighbours differ, the value between them is converted: read and written once more. The choice of
least total cost is a minimum cut, found exactly.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

_NEVER = 1 << 60


@dataclass(frozen=True, slots=True)
class Node:
    """One operation.

    Attributes:
        inputs: numbers of the operations whose results it reads in its own layout.
        result_bytes: size of its result; 0 where another layout costs nothing.
        gain_bytes: time that running channels-last saves, as the bytes that could be moved in it.
        fixed: whether it must run channels-first.
        tied: whether it must run as its first input does.
    """

    inputs: tuple[int, ...] = ()
    result_bytes: int = 0
    gain_bytes: int = 0
    fixed: bool = False
    tied: bool = False


def choose_layouts(nodes: Sequence[Node]) -> list[bool]:
    """For each operation, whether it runs channels-last.

    The choice minimizes the sum of gains forgone and of bytes moved for conversions; of equally
    good choices it has the most operations channels-last, so that operations after a convolution
    are fused with it before a conversion. A result is converted once, however many operations read
    it in the other layout.
    """
    network = _Network(2 + len(nodes))
    last, first = len(nodes), len(nodes) + 1
    readers: list[list[int]] = [[] for _ in nodes]
    for number, node in enumerate(nodes):
        if node.gain_bytes:
            network.connect(last, number, node.gain_bytes)
        if node.fixed:
            network.connect(number, first, _NEVER)
        for source in node.inputs:
            readers[source].append(number)
        if node.tied:
            network.connect(node.inputs[0], number, _NEVER)
            network.connect(number, node.inputs[0], _NEVER)
    for number, node in enumerate(nodes):
        if readers[number] and node.result_bytes:
            _charge(network, number, readers[number], 2 * node.result_bytes)
    at_first = network.cut(last, first)
    return [number not in at_first for number in range(len(nodes))]


def _charge(network: _Network, number: int, readers: Sequence[int], price: int) -> None:
    """Charge `price` if any reader's layout is not that of the result."""
    to_first, to_last = network.add(), network.add()
    network.connect(number, to_first, price)
    network.connect(to_last, number, price)
    for reader in readers:
        network.connect(to_first, reader, _NEVER)
        network.connect(reader, to_last, _NEVER)


class _Network:
    """A flow network, with the capacity that each edge has left."""

    def __init__(self, size: int) -> None:
        self._left: list[dict[int, int]] = [{} for _ in range(size)]

    def add(self) -> int:
        """Add a vertex; return its number."""
        self._left.append({})
        return len(self._left) - 1

    def connect(self, tail: int, head: int, capacity: int) -> None:
        """Add capacity between two vertices."""
        self._left[tail][head] = self._left[tail].get(head, 0) + capacity
        self._left[head].setdefault(tail, 0)

    def cut(self, source: int, sink: int) -> set[int]:
        """The sink's side of a minimum cut, the smallest one.

        Shortest augmenting paths are filled until none is left.
        """
        while sink in (came_from := self._search(source, sink)):
            path = [sink]
            while path[-1] != source:
                path.append(came_from[path[-1]])
            edges = list(zip(path[1:], path, strict=False))
            amount = min(self._left[tail][head] for tail, head in edges)
            for tail, head in edges:
                self._left[tail][head] -= amount
                self._left[head][tail] += amount
        return self._reaching(sink)

    def _reaching(self, sink: int) -> set[int]:
        """Vertices from which more can flow to the sink."""
        found, waiting = {sink}, deque([sink])
        while waiting:
            head = waiting.popleft()
            for tail in self._left[head]:
                if tail not in found and self._left[tail][head] > 0:
                    found.add(tail)
                    waiting.append(tail)
        return found

    def _search(self, source: int, sink: int) -> dict[int, int]:
        """Vertices that more can flow to, each with its predecessor; it ends at the sink."""
        came_from = {source: source}
        waiting = deque([source])
        while waiting and sink not in came_from:
            vertex = waiting.popleft()
            for head, capacity in self._left[vertex].items():
                if capacity > 0 and head not in came_from:
                    came_from[head] = vertex
                    waiting.append(head)
        return came_from
