"""A program bound by memory as threads go through it: the items they share out, the places of each
item, and what each stage reads there."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any

from spaces.ir import rewrite
from spaces.templates.gpu_memory.bodies import Body
from spaces.templates.memory.stages import Stage


class Walk(Enum):
    """How neighbouring threads share a program out.

    ROWS: the places of an item, along which memory is read in order.
    COLUMNS: items, along which memory is read in order.
    FLAT: the places of one item, which is the whole program; blocks share them too.
    TILES: tiles of the whole program, which is read in order along one side and written in order
        along the other: the last two groups of places.
    """

    ROWS = "rows"
    COLUMNS = "columns"
    FLAT = "flat"
    TILES = "tiles"


@dataclass(frozen=True, slots=True)
class Group:
    """Axes that threads go through as one.

    Attributes:
        axes: their numbers in a stage, outermost first; of items, in the last stage.
        place: the variable that stands for the place along them.
        extent: the number of places, an expression of TVM's.
    """

    axes: tuple[int, ...]
    place: Any
    extent: Any


@dataclass(frozen=True, slots=True)
class Read:
    """Where a stage reads one of the program's parameters.

    Attributes:
        load: TVM's expression in the value that the stage computes.
        buffer: the parameter.
        index: the index in the flat tensor, of places.
        growth: of the index with each step along which vectors lie; None where that varies.
        number: equal for reads of the same elements in several stages.
        guard: the condition, of places but that along which vectors lie, without which it does not
            read; None where it does whatever a condition says.
    """

    load: Any
    buffer: Any
    index: Any
    growth: int | None
    number: int
    guard: Any = None


@dataclass(frozen=True, slots=True)
class Part:
    """A stage.

    Attributes:
        lanes: the places of an item, outermost group first; empty where it has one.
        body: what it computes, of places.
        index: where it writes in the flat tensor, of places.
    """

    stage: Stage
    lanes: tuple[Group, ...]
    body: Body
    index: Any
    reads: tuple[Read, ...]


@dataclass(frozen=True, slots=True)
class Program:
    """A program after inlining.

    Attributes:
        items: groups of the items, outermost first.
        along: the place along which vectors lie.
        kind: the type of its indices.
    """

    walk: Walk
    parts: tuple[Part, ...]
    items: tuple[Group, ...]
    along: Any
    kind: str

    def vector_groups(self) -> list[Group]:
        """The groups along which vectors lie, of each part that has one."""
        if self.walk is Walk.COLUMNS:
            return [self.items[-1]]
        if self.walk is Walk.TILES:
            return [*self.parts[-1].lanes[-2:]]
        return [part.lanes[-1] for part in self.parts if part.lanes]

    def is_turned(self, read: Read) -> bool:
        """Whether a tensor is read in order along the first side of a tile."""
        import tvm

        if self.walk is not Walk.TILES or read.growth in (0, 1):
            return False
        across = self.parts[-1].lanes[-2].place
        return rewrite.growth(tvm.sym.Analyzer(), read.index, across) == 1

    def shared_reads(self) -> dict[int, Read]:
        """What several parts read, by its number."""
        parts = [{read.number: read for read in part.reads} for part in self.parts if part.lanes]
        every = [number for part in parts for number in part]
        return {n: read for part in parts for n, read in part.items() if every.count(n) > 1}
