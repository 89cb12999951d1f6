"""The time of worker slots in words, and as a picture can show it: at most so many stretches."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from tuner.storage.history import coalesce
from tuner.utilisation import BUILDER, BUSY, RUNNER, SPACE, STARTING, WAITING, Idle, SlotSpan

Slot = tuple[str, str]
_STEPS = 1600
"""The most steps in time: more cannot be told apart on a screen."""
_LEAST_STEPS = 60


_JOBS = {SPACE: "draft", BUILDER: "build", RUNNER: "measure"}

_WORDS = {
    STARTING: "starting",
    WAITING: "waiting",
    str(Idle.NO_CANDIDATES): "idle: the search has no candidates",
    str(Idle.NO_BUILDS): "idle: everything is still being built",
    str(Idle.NOT_NEEDED): "idle: there is plenty of its product",
    str(Idle.FINALISTS): "idle: finalists are timed again",
    str(Idle.DRAINING): "idle: the budget is spent",
}


def use_of(kind: str, category: str) -> str:
    """What a stretch of a slot's time went to: `draft`, `build`, `measure`, `waiting`, `starting`
    or `idle`."""
    if category == BUSY:
        return _JOBS.get(kind, kind)
    return category if category in (STARTING, WAITING) else "idle"


def words_of(kind: str, category: str) -> str:
    """The same with the reason why a slot was idle."""
    return _WORDS.get(category, use_of(kind, category))


def drawable(spans: Sequence[SlotSpan], most: int) -> list[SlotSpan]:
    """The spans, or where there are more than `most` a coarser picture of them: time is cut into
    steps, and each step of a slot shows what took the most of it.

    The picture has no more than `most` spans unless there are more slots than `most` has room for.
    """
    if len(spans) <= most:
        return list(spans)
    start_s = min(span.started_s for span in spans)
    end_s = max(span.ended_s for span in spans)
    slots = len({(span.kind, span.slot) for span in spans})
    steps = min(_STEPS, max(_LEAST_STEPS, 4 * most // slots))
    while True:
        drawn = _rasterise(spans, start_s, (end_s - start_s) / steps)
        if len(drawn) <= most or steps <= _LEAST_STEPS:
            return drawn
        steps = max(_LEAST_STEPS, steps // 2)


def _rasterise(spans: Iterable[SlotSpan], start_s: float, step_s: float) -> list[SlotSpan]:
    """One span for each step of each slot, those alike in a row merged: the category that took the
    most of it, and the task that took the most of that."""
    parts: dict[Slot, dict[int, dict[str, dict[str, float]]]] = defaultdict(
        lambda: defaultdict(lambda: defaultdict(lambda: defaultdict(float)))
    )
    for span in spans:
        mine = parts[span.kind, span.slot]
        first = math.floor((span.started_s - start_s) / step_s)
        last = math.ceil((span.ended_s - start_s) / step_s)
        for step in range(first, last):
            lower_s, upper_s = start_s + step * step_s, start_s + (step + 1) * step_s
            inside_s = min(span.ended_s, upper_s) - max(span.started_s, lower_s)
            mine[step][span.category][span.task_key] += inside_s
    return coalesce(
        _most_of(slot, shares, start_s + step * step_s, start_s + (step + 1) * step_s)
        for slot, mine in parts.items()
        for step, shares in sorted(mine.items())
    )


def _most_of(
    slot: Slot, shares: Mapping[str, Mapping[str, float]], start_s: float, end_s: float
) -> SlotSpan:
    """What took the most of a step, given the seconds by category and task."""
    category = max(shares, key=lambda name: (sum(shares[name].values()), name))
    tasks = shares[category]
    task_key = max(tasks, key=lambda key: (tasks[key], key))
    return SlotSpan(*slot, category, start_s, end_s, task_key)


def lanes(spans: Iterable[SlotSpan]) -> Mapping[Slot, int]:
    """Slots in the order of a picture, each with its place: by kind, then by its first moment."""
    first: dict[Slot, float] = {}
    for span in spans:
        slot = span.kind, span.slot
        first[slot] = min(span.started_s, first.get(slot, math.inf))
    ordered = sorted(first, key=lambda slot: (slot[0], first[slot], slot[1]))
    return {slot: place for place, slot in enumerate(ordered)}
