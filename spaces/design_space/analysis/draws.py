"""What the sampling instructions of a trace drew, and drawing it anew without a schedule."""

from __future__ import annotations

import json
import math
import random
from dataclasses import dataclass
from typing import Any

from spaces.design_space.analysis.extents import Draws
from spaces.design_space.analysis.tiles import number_of_tiles, perfect_tile
from spaces.ir.schedules import whole_payload


@dataclass(frozen=True, slots=True)
class TileDraw:
    """A `SamplePerfectTile` over a loop of known extent."""

    extent: int
    parts: int
    most_innermost: int

    def draw(self, rng: random.Random) -> tuple[list[int], Any]:
        """What it gives, and its decision."""
        factors = perfect_tile(self.extent, self.parts, self.most_innermost, rng)
        return factors, factors


@dataclass(frozen=True, slots=True)
class ChoiceDraw:
    """A `SampleCategorical`."""

    values: tuple[int, ...]
    odds: tuple[float, ...]

    def draw(self, rng: random.Random) -> tuple[list[int], Any]:
        """What it gives, and its decision."""
        place = rng.choices(range(len(self.values)), self.odds)[0]
        return [self.values[place]], place


Draw = TileDraw | ChoiceDraw


def draws(instruction: Any) -> bool:
    """Whether an instruction of a trace draws a decision."""
    return str(instruction.kind.name).startswith("Sample")


def read_draws(trace: Any) -> Draws:
    """The integers that each sampling instruction of a trace gave. All must be decided."""
    return [_read_decision(i, trace.get_decision(i)) for i in trace.insts if draws(i)]


def number_of_points(trace: Any) -> int:
    """The number of ways to decide a trace, its tiles being of extents as it decided them; where
    blocks are computed is not counted.
    """
    return math.prod(_ways(i, trace.get_decision(i)) for i in trace.insts if draws(i))


def _ways(instruction: Any, decision: Any) -> int:
    kind = str(instruction.kind.name)
    if kind == "SampleCategorical":
        return len(instruction.attrs[0])
    if kind != "SamplePerfectTile" or decision is None:
        return 1
    factors = [int(factor) for factor in decision]
    return number_of_tiles(math.prod(factors), len(factors), int(instruction.attrs[1]))


def form(trace: Any) -> str:
    """What traces of one sketch have in common, whatever they drew: their instructions."""
    return form_and_decisions(whole_payload(trace))[0]


def form_and_decisions(payload: str) -> tuple[str, dict[int, Any]]:
    """The form of a candidate's trace, and its decisions by number of the instruction."""
    instructions, decisions = json.loads(payload)
    return json.dumps(instructions), {int(number): made for number, made in decisions}


def _read_decision(instruction: Any, decision: Any) -> list[int]:
    if str(instruction.kind.name) == "SampleCategorical":
        return [int(instruction.attrs[0][int(decision)])]
    return [int(d) for d in decision] if hasattr(decision, "__len__") else [int(decision)]
