"""A user's predicate on what a template draws: only draws for which it holds are points."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from typing import Any

from spaces.design_space.analysis.draws import draws, form, read_draws
from spaces.design_space.analysis.extents import Draws
from tuner.errors import UsageError

Place = tuple[int, int]
"""Of an integer that was drawn: the number of its sampling instruction in a trace, and of its
result among that instruction's."""
_Named = Place | list[Place | int | None]
"""Where what was named comes from; a list may have integers that were not drawn, and open ones."""


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
        self._places: dict[str, dict[str, _Named]] = {}
        for trace, named in sketches:
            places = _places(trace, {name: named[name] for name in wanted if name in named})
            if missing := [name for name in wanted if name not in places]:
                what = "used by no primitive" if missing[0] in named else "named by nothing"
                raise UsageError(f"where: {missing[0]} is {what}")
            self._places[form(trace)] = places

    def refused(self, trace: Any) -> frozenset[int]:
        """The numbers of the sampling instructions to draw anew; none where the predicate holds."""
        places = self._places.get(form(trace), {})
        values = read_draws(trace)
        known = {name: _look_up(place, values) for name, place in places.items()}
        if not places or self._predicate(**known):
            return frozenset()
        whole = chain.from_iterable(p if isinstance(p, list) else [p] for p in places.values())
        return frozenset(place[0] for place in whole if isinstance(place, tuple))


def _look_up(place: _Named, values: Draws) -> Any:
    """What was drawn at a place, or at those of a list."""
    if isinstance(place, list):
        return [values[p[0]][p[1]] if isinstance(p, tuple) else p for p in place]
    return values[place[0]][place[1]]


def _places(trace: Any, named: Mapping[str, Any]) -> dict[str, _Named]:
    """The places of what was named; without those that no primitive uses."""
    sampling = [instruction for instruction in trace.insts if draws(instruction)]
    outputs = [
        (output, (number, result))
        for number, instruction in enumerate(sampling)
        for result, output in enumerate(instruction.outputs)
    ]

    def place(value: Any) -> Any:
        if value is None or isinstance(value, int):
            return value
        return next((at for output, at in outputs if output.same_as(value)), "")

    found: dict[str, _Named] = {}
    for name, value in named.items():
        at = [place(v) for v in value] if isinstance(value, list | tuple) else place(value)
        if isinstance(at, tuple) or (isinstance(at, list) and "" not in at):
            found[name] = at
    return found
