"""The steps in which a thread goes through the places of an item."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

from spaces.ir import rewrite, tvm_compat
from spaces.templates.gpu_memory.elements import Elements, Places, Slot
from spaces.templates.gpu_memory.program import Group, Part, Read
from spaces.templates.gpu_memory.rows.joined_sums import Threads
from spaces.templates.gpu_memory.rows.setting import SHARED, Setting

Compute = Callable[[Mapping[int, Slot], Places], None]
"""Computes a vector of a part from what was loaded."""


@dataclass(frozen=True, slots=True)
class Way:
    """How a thread goes through a part.

    Attributes:
        total: vectors of an item, of the type of indices.
        end: those that there are for this thread: none where its item is beyond the last.
        first: the vector that the block begins with.
        steps: the most steps of a thread; None where that is known at run time only.
        held: steps whose elements are held.
        width: elements of a vector, and `lanes` those of them that lie along the places.
        is_even: whether no thread has a step beyond the end.
    """

    total: Any
    end: Any
    first: Any
    steps: int | None
    held: int
    width: int
    lanes: int
    is_even: bool


class Steps:
    """Writes loops over steps.

    Args:
        T: TVM's script.
        held: numbers of the reads whose elements are held.
        spread: gives the places of a vector by its number.
    """

    def __init__(
        self,
        T: Any,
        setting: Setting,
        threads: Threads,
        elements: Elements,
        held: frozenset[int],
        spread: Callable[[Any, Sequence[Group], int], Places],
    ) -> None:
        self._t, self._setting, self._threads = T, setting, threads
        self._elements, self._numbers, self._spread = elements, held, spread
        self._held: dict[int, Any] = {}

    def go(self, part: Part, way: Way, compute: Compute) -> None:
        """Go through a part: the steps first whose elements are held, then the rest."""
        if way.held:
            self._go_held(part, way, compute)
        if way.steps is None or way.steps > way.held:
            self._go_on(part, way, compute)

    def load(self, part: Part, places: Places, width: int) -> Mapping[int, Slot]:
        """Load what a part reads at one place."""
        slots = self._slots(_distinct(part.reads), width, 1)
        for read in _distinct(part.reads):
            self._elements.load(slots[read.number], read, places, width)
        return slots

    def _go_held(self, part: Part, way: Way, compute: Compute) -> None:
        T = self._t
        reads = _distinct(part.reads)
        kept = [read for read in reads if read.number in self._numbers]
        others = [read for read in reads if read.number not in self._numbers]
        if fresh := [read for read in kept if read.number not in self._held]:
            self._hold(part, way, fresh)
        own = self._slots(kept if self._setting.held == SHARED else [], way.width, 1)
        loaded = self._slots(others, way.width, 1)
        with T.unroll(way.held) as step, self._within(way, step) as number:
            places = self._spread(number, part.lanes, way.lanes)
            slots = dict(loaded)
            for read in others:
                self._elements.load(loaded[read.number], read, places, way.width)
            for read in kept:
                slots[read.number] = self._fetch(read, step, way.width, own)
            compute(slots, places)

    def _hold(self, part: Part, way: Way, reads: Sequence[Read]) -> None:
        """Load what is held."""
        T = self._t
        is_shared = self._setting.held == SHARED
        loaded = self._slots(reads if is_shared else [], way.width, 1)
        for read in reads:
            each = _each(read, way.width)
            size = way.held * each * (int(self._setting.threads) if is_shared else 1)
            scope = "shared" if is_shared else "local"
            kind = str(read.buffer.dtype)
            self._held[read.number] = T.alloc_buffer((size,), kind, scope=scope, align=16)
        with T.unroll(way.held) as step, self._within(way, step) as number:
            places = self._spread(number, part.lanes, way.lanes)
            for read in reads:
                own, each = self._place_held(read, step, way.width)
                to = loaded[read.number] if is_shared else Slot(self._held[read.number], own, each)
                self._elements.load(to, read, places, way.width)
                if is_shared:
                    self._move(to.array, 0, self._held[read.number], own, each)

    def _fetch(self, read: Read, step: Any, width: int, own: Mapping[int, Slot]) -> Slot:
        """Where the elements of a step are."""
        place, each = self._place_held(read, step, width)
        if read.number not in own:
            return Slot(self._held[read.number], place, each)
        self._move(self._held[read.number], place, own[read.number].array, 0, each)
        return own[read.number]

    def _place_held(self, read: Read, step: Any, width: int) -> tuple[Any, int]:
        each = _each(read, width)
        if self._setting.held != SHARED:
            return step * each, each
        return (step * int(self._setting.threads) + self._threads.number) * each, each

    def _move(self, source: Any, at: Any, to: Any, place: Any, each: int) -> None:
        """Copy a vector between arrays of the block."""
        T = self._t
        most = max(1, 128 // tvm_compat.element_bits(source.dtype))
        width = min(each, most)
        for first in range(0, each, width):
            if width == 1:
                T.buffer_store(to, source[at + first], [place + first])
                continue
            with T.vectorized(width) as i:
                T.buffer_store(to, source[at + first + i], [place + first + i])

    def _go_on(self, part: Part, way: Way, compute: Compute) -> None:
        """Go through what is not held, several vectors at a time."""
        T, unroll = self._t, int(self._setting.unroll)
        together = int(self._setting.lane_threads) * unroll
        if way.steps is None:
            left = way.total - (way.held * int(self._setting.lane_threads) - (together - 1))
            rounds: Any = T.max(left, rewrite.constant(0, left)) // together
        else:
            rounds = -(-(way.steps - way.held) // unroll)
        reads = _distinct(part.reads)
        slots = self._slots(reads, way.width, unroll)
        with T.serial(rounds) if rounds != 1 else nullcontext(0) as turn:
            with T.unroll(unroll) as u:
                step = turn * unroll + way.held + u if rounds != 1 else way.held + u
                with self._within(way, step) as number:
                    places = self._spread(number, part.lanes, way.lanes)
                    own = _at(slots, u)
                    for read in reads:
                        self._elements.load(own[read.number], read, places, way.width)
                    if unroll == 1:
                        compute(own, places)
            if unroll == 1:
                return
            with T.unroll(unroll) as u:
                step = turn * unroll + way.held + u if rounds != 1 else way.held + u
                with self._within(way, step) as number:
                    compute(_at(slots, u), self._spread(number, part.lanes, way.lanes))

    def _within(self, way: Way, step: Any) -> AbstractContextManager[Any]:
        """What is done of a step where it is not beyond the last; gives the vector's number."""
        return _Within(self._t, way, self._number_of(way, step))

    def _number_of(self, way: Way, step: Any) -> Any:
        kind = str(way.total.ty.dtype)
        own, lane = (rewrite.cast(kind, number) for number in (step, self._threads.lane))
        return self._t.Bind(way.first + own * int(self._setting.lane_threads) + lane)

    def _slots(self, reads: Sequence[Read], width: int, steps: int) -> dict[int, Slot]:
        """Room for what is read in some steps."""
        found = {}
        for read in reads:
            each = _each(read, width)
            kind = str(read.buffer.dtype)
            array = self._t.alloc_buffer((each * steps,), kind, scope="local", align=16)
            found[read.number] = Slot(array, 0, each)
        return found


class _Within:
    """A condition on the number of a vector, where one is needed."""

    def __init__(self, T: Any, way: Way, number: Any) -> None:
        self._number = number
        self._contexts = [] if way.is_even else [T.If(number < way.end), T.Then()]

    def __enter__(self) -> Any:
        for context in self._contexts:
            context.__enter__()
        return self._number

    def __exit__(self, *error: Any) -> None:
        for context in reversed(self._contexts):
            context.__exit__(*error)


def _each(read: Read, width: int) -> int:
    return 1 if read.growth == 0 else width


def _at(slots: Mapping[int, Slot], step: Any) -> dict[int, Slot]:
    return {n: Slot(s.array, step * s.each, s.each) for n, s in slots.items()}


def _distinct(reads: Sequence[Read]) -> list[Read]:
    return list({read.number: read for read in reads}.values())
