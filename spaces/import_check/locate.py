"""Where an imported model and its source part: the first node of the graph, by bisection.

A part of a graph agrees if all that comes out of it is near. Between a part that agrees and one
that is a node longer and does not, that node is at fault, unless the source itself, fed with what
we computed before it, gives what we give: then rounding has grown there, and the search goes on
behind it with the source's values.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from spaces.frontends.onnx.node import describe_node
from spaces.import_check.bounds import part
from spaces.import_check.graph_parts import GraphPart, all_values, cut
from spaces.import_check.sources import CannotRun
from tuner.errors import TunerError, first_line

Array = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class Fault:
    """A node that computes something else than in the source.

    Attributes:
        node: as messages call it; empty where only an output is known.
        said: how its result differs.
        inputs, got, want: values by name: what went in, what we give, what the source does.
    """

    node: str
    said: str
    inputs: Mapping[str, Array]
    got: Mapping[str, Array]
    want: Mapping[str, Array]


@dataclass(frozen=True, slots=True)
class Grown:
    """Rounding that grew, and nothing else.

    Attributes:
        nodes: where it did.
    """

    nodes: tuple[str, ...]


def locate(
    proto: Any,
    names: Sequence[str],
    feeds: Sequence[Array],
    target: str,
    limit_s: float,
    step: float,
) -> Fault | Grown | str:
    """Find the node where an imported graph parts from its source.

    Args:
        proto: with all data in it.
        names: of its inputs.
        limit_s: seconds for the search.
        step: of the coarsest rounding within the graph, see `coarsest_step`.

    Returns:
        The node, or that rounding has grown; why neither was found, in a few words.
    """
    until_s = time.monotonic() + limit_s
    try:
        return _Bisection(proto, all_values(proto, names, feeds), target, until_s, step).find()
    except TimeoutError:
        return f"the node was not found within {limit_s:.0f} s"
    except (CannotRun, TunerError) as error:
        return f"the node was not found: {first_line(error)}"


class _Bisection:
    def __init__(
        self, proto: Any, values: Mapping[str, Array], target: str, until_s: float, step: float
    ) -> None:
        self._proto = proto
        self._values = values
        self._target = target
        self._until_s = until_s
        self._count = len(proto.graph.node)
        self._step = step

    def find(self) -> Fault | Grown:
        start, grown = 0, list[str]()
        while start < self._count and self._difference(start, self._count):
            near, end = start, self._count
            while end - near > 1:
                middle = (near + end) // 2
                if self._difference(start, middle):
                    end = middle
                else:
                    near = middle
            if (fault := self._fault(start, near, end)) is not None:
                return fault
            grown.append(describe_node(self._proto.graph.node[near]))
            start = end
        return Grown(tuple(grown))

    def _apart(self, got: Array, want: Array) -> str:
        return part(got, want, narrow=True, step=self._step)

    def _ours(self, start: int, end: int) -> tuple[GraphPart, dict[str, Array]]:
        if time.monotonic() > self._until_s:
            raise TimeoutError
        found = cut(self._proto, start, end, self._values)
        return found, found.by_us(self._values, self._target)

    def _difference(self, start: int, end: int) -> str:
        """How what comes out of a part differs first; empty if it does not."""
        _, ours = self._ours(start, end)
        said = ((name, part(ours[name], self._values[name], step=self._step)) for name in ours)
        return next((f"{name}: {why}" for name, why in said if why), "")

    def _fault(self, start: int, near: int, end: int) -> Fault | None:
        """The node between two parts, if the source makes something else of what we fed it."""
        before = dict(self._values)
        if near > start:
            before |= self._ours(start, near)[1]
        _, ours = self._ours(start, end)
        node = cut(self._proto, near, end, self._values, every=True)
        want = cut(self._proto, near, end, before, every=True).by_source(before)
        for name in node.outputs:
            if name in ours and (said := self._apart(ours[name], want[name])):
                inputs = {n: before[n] for n in node.inputs}
                got = {name: ours[name]}
                return Fault(
                    describe_node(self._proto.graph.node[near]),
                    said,
                    inputs,
                    got,
                    {name: want[name]},
                )
        return None


def save_fault(fault: Fault, folder: Any) -> None:
    """Keep the values of a fault as `.npy` files in a folder.

    Raises:
        OSError: it cannot be written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for kind, values in (("input", fault.inputs), ("got", fault.got), ("want", fault.want)):
        for number, value in enumerate(values.values()):
            np.save(folder / f"{kind}-{number}.npy", value, allow_pickle=False)
