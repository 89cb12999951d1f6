"""A user's predicate on what a template draws: only draws for which it holds are points."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from spaces.design_space.analysis.draws import drawn, draws, form
from tuner.errors import UsageError

Place = tuple[int, int | None]
"""Of what was named: the number of its sampling instruction in a trace, and of its result among
that instruction's; None is all of them."""


class Constraint:
    """A predicate, with the places of what it is about in each sketch of a space.

    Args:
        sketches: traces, dead code removed, each with what was named in it, by name.

    Raises:
        UsageError: the predicate has a parameter that nothing is named, or that no schedule uses.
    """

    def __init__(
        self, predicate: Callable[..., bool], sketches: Sequence[tuple[Any, Mapping[str, Any]]]
    ) -> None:
        self._predicate = predicate
        wanted = [*inspect.signature(predicate).parameters]
        self._places: dict[str, dict[str, Place]] = {}
        for trace, named in sketches:
            places = _places(trace, {name: named[name] for name in wanted if name in named})
            if missing := [name for name in wanted if name not in places]:
                what = "used by no primitive" if missing[0] in named else "named by nothing"
                raise UsageError(f"where: {missing[0]} is {what}")
            self._places[form(trace)] = places

    def refused(self, trace: Any) -> frozenset[int]:
        """The numbers of the sampling instructions to draw anew; none where the predicate holds."""
        places = self._places.get(form(trace), {})
        values = drawn(trace)
        known = {
            name: values[at] if result is None else values[at][result]
            for name, (at, result) in places.items()
        }
        if not places or self._predicate(**known):
            return frozenset()
        return frozenset(at for at, _ in places.values())


def _places(trace: Any, named: Mapping[str, Any]) -> dict[str, Place]:
    sampling = [instruction for instruction in trace.insts if draws(instruction)]
    found: dict[str, Place] = {}
    for name, value in named.items():
        whole = isinstance(value, list | tuple)
        first = value[0] if whole else value
        for number, instruction in enumerate(sampling):
            for result, output in enumerate(instruction.outputs):
                if output.same_as(first):
                    found[name] = (number, None if whole else result)
    return found
