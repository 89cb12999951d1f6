"""What the knobs of the memory-bound template may be, and what they are likely to cost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from spaces.cpu import Cpu
from spaces.knobs import Knobs
from spaces.templates.memory_nests import Nest, extent, lane_of
from spaces.templates.memory_schedule import divisor_up_to, vector_width
from spaces.templates.stages import Stage

_TILES = (16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384, 65536)
_SIDES = (1, 2, 4, 8, 16, 32, 64)
_NARROW_TILES = (4, 8)
_STREAMS = (0, 1, 2, 4, 8, 16)
_VECTORS = (0, 1, 2, 4)

# Of a core of today; only ratios matter.
_CYCLE_S = 0.3e-9
_LAUNCH_S = 4e-6
_BYTES_PER_CYCLE = {1: 64.0, 2: 32.0, 3: 16.0, 4: 6.0}
_HEAVY_CYCLES = 16.0
_ROW_CYCLES = 6.0
_CHAIN_CYCLES = 4.0
_TAIL_CYCLES = 4.0
_WIDE_TILE = 64


@dataclass(frozen=True, slots=True)
class Form:
    """A program after inlining.

    Attributes:
        stages: what is left.
        nests: how they are put together.
    """

    stages: tuple[Stage, ...]
    nests: tuple[Nest, ...]

    @property
    def main(self) -> Nest:
        """The nest that does most."""
        return max(self.nests, key=lambda nest: sum(self.stages[n].points for n in nest.stages))


def choices_of(form: Form, cpu: Cpu, lanes: int, *, optional: bool) -> dict[str, tuple[int, ...]]:
    """Values of each knob; see `Template.choices`.

    keep: compute once what would be computed for each reader, and store it.
    fused: rows loops that make up the parallel one; 0 is serial.
    tile: steps of the lane in one row, at most; 0 is all.
    vectors: registers side by side; 0 leaves it to the compiler.
    tree: sum the lanes of a vector pairwise.
    stream: sum whole tiles in memory, so many at once; 0 is in registers.
    side: steps of a tile across the lane.
    scatter: vectors lie across the lane, where memory is read in order.
    parts: of a sum that has too few rows, each summed on its own.
    """
    nest, last = form.main, form.stages[form.main.stages[-1]]
    lane = extent(last, nest.lane) if nest.lane else 1
    least = max(2, lanes // 2)
    limits: tuple[int, ...] = _TILES
    if nest.across is not None:
        least, limits = 2, (*_NARROW_TILES, *_TILES)
    tiles = {divisor_up_to(lane, limit): limit for limit in reversed(limits) if limit < lane}
    tiles = {found: limit for found, limit in tiles.items() if found >= least}
    rows = sum(last.axes[n].extent > 1 for n in nest.rows)
    most = rows + bool(tiles) + (nest.across is not None)
    reducing = [s for s in form.stages if s.reduces]
    columns = any(
        (along := s.contiguous()) is not None and not s.axes[along].reduced for s in reducing
    )
    alone = any(form.stages[n.stages[-1]].reduces and len(n.stages) == 1 for n in form.nests)
    sparse = alone and _rows(form, nest) * max(1, lane // lanes) < 4 * cpu.cores
    across = 1 if nest.across is None else last.axes[nest.across].extent
    return {
        "keep": (0, 1) if optional else (0,),
        "fused": tuple(range(most + 1)),
        "tile": (0, *sorted(tiles.values())),
        "vectors": tuple(v for v in _VECTORS if v < 2 or v * lanes <= _longest(form)),
        "tree": (0, 1) if any(_along(s) for s in reducing) else (0,),
        "stream": _STREAMS if columns else (0,),
        "side": tuple(s for s in _SIDES if s <= across) if nest.across is not None else (1,),
        "scatter": (0, 1) if nest.across is not None else (0,),
        "parts": tuple(cpu.cores * n for n in (1, 2, 4)) if sparse and cpu.cores > 1 else (1,),
    }


def is_distinct(form: Form, knobs: Knobs) -> bool:
    """Whether no smaller setting gives the same program."""
    nest, last = form.main, form.stages[form.main.stages[-1]]
    lane = extent(last, nest.lane) if nest.lane else 1
    rows = sum(last.axes[n].extent > 1 for n in nest.rows)
    rows += divisor_up_to(lane, knobs["tile"]) < lane
    if nest.across is not None:
        across = last.axes[nest.across].extent
        rows += divisor_up_to(across, knobs["side"]) < across
    return knobs["fused"] <= max(1, rows) and bool(knobs["vectors"] or not knobs["tree"])


def cost_s(form: Form, cpu: Cpu, lanes: int, knobs: Knobs) -> float:
    """Traffic, arithmetic and overheads of a setting."""
    return sum(_nest_s(form, nest, cpu, lanes, knobs) for nest in form.nests)


def _nest_s(form: Form, nest: Nest, cpu: Cpu, lanes: int, knobs: Knobs) -> float:
    stages = [form.stages[n] for n in nest.stages]
    last = stages[-1]
    lane = extent(last, nest.lane) if nest.lane else 1
    tile = divisor_up_to(lane, knobs["tile"])
    traffic = _traffic_bytes(stages)
    cycles = traffic / _BYTES_PER_CYCLE[_level(traffic, cpu)]
    rows = _rows(form, nest) * (lane // tile)
    cycles += rows * _ROW_CYCLES * len(stages)
    for stage in stages:
        cycles += _stage_cycles(stage, lanes, knobs, strided=nest.across is None)
        cycles += _sum_cycles(stage, rows, tile, lanes, knobs)
    if nest.lane and knobs["vectors"]:
        width = vector_width(tile, lanes * knobs["vectors"]) or tile
        cycles += rows * (tile % width + lanes / width) * _TAIL_CYCLES
    if nest.across is not None:
        ordered = knobs["scatter"] and knobs["vectors"] == 1 and knobs["side"] >= lanes // 2
        cycles *= 1 if ordered else 3
        cycles *= 1 + tile / _WIDE_TILE
    return _on_cores(cycles, rows, cpu, knobs)


def _stage_cycles(stage: Stage, lanes: int, knobs: Knobs, *, strided: bool) -> float:
    """Arithmetic, and loads that go to the nearest cache."""
    work = 1 + len(stage.reads) + _HEAVY_CYCLES * stage.heavy
    along = stage.contiguous()
    steps = set() if along is None else {read.steps[along] for read in stage.reads}
    if not knobs["vectors"]:
        return stage.points * work / 8
    # A vector of elements that lie apart is loaded one by one.
    return stage.points * work / (2 if strided and not steps <= {0, 1} else 2 * lanes)


def _sum_cycles(stage: Stage, rows: int, tile: int, lanes: int, knobs: Knobs) -> float:
    """What waits for sums: chains of additions, and sums over the lanes."""
    if not stage.reduces:
        return 0.0
    if _along(stage):
        along = stage.contiguous()
        steps = 1 if along is None else extent(stage, lane_of(stage, along))
        width = vector_width(steps // 2, lanes * knobs["vectors"]) or 1
        tail = steps % width
        chain = stage.points / width * _CHAIN_CYCLES / 2
        across = width / 4 + 8 if knobs["tree"] else width
        return chain + rows * (2 * across + _TAIL_CYCLES * tail)
    if knobs["stream"]:
        return stage.points / lanes / knobs["stream"] * 2
    narrow = tile < 4 * lanes
    return stage.points / lanes * (_CHAIN_CYCLES / max(1, knobs["vectors"]) + narrow)


def _on_cores(cycles: float, rows: int, cpu: Cpu, knobs: Knobs) -> float:
    if not knobs["fused"] or cpu.cores == 1:
        return cycles * _CYCLE_S
    chunks = max(1, rows * knobs["parts"])
    rounds = -(-chunks // cpu.cores)
    return cycles * _CYCLE_S * rounds / chunks + _LAUNCH_S


def _longest(form: Form) -> int:
    """Steps of the longest walk through memory; of a sum half, since it takes two vectors."""
    found = [1]
    for nest in form.nests:
        last = form.stages[nest.stages[-1]]
        found.append(extent(last, nest.lane))
        if nest.across is not None:
            found.append(last.axes[nest.across].extent)
    for stage in form.stages:
        along = stage.contiguous()
        if along is not None:
            lane = lane_of(stage, along)
            found.append(extent(stage, lane) // (1 + stage.axes[along].reduced))
    return max(found)


def _rows(form: Form, nest: Nest) -> int:
    return extent(form.stages[nest.stages[-1]], nest.rows)


def _along(stage: Stage) -> bool:
    """Whether vectors lie along what is summed over."""
    along = stage.contiguous()
    return along is not None and stage.axes[along].reduced


def _traffic_bytes(stages: Sequence[Stage]) -> int:
    """What comes from and goes to farther than the rows of a nest, each tensor once."""
    inside = {write.buffer for stage in stages[:-1] for write in stage.writes}
    accesses = [a for stage in stages for a in (*stage.reads, *stage.writes)]
    sizes = {a.buffer: a.elements * a.bits // 8 for a in accesses if a.buffer not in inside}
    return sum(sizes.values())


def _level(traffic: int, cpu: Cpu) -> int:
    sizes: Sequence[int] = (cpu.l1_bytes, cpu.l2_bytes, cpu.l3_bytes)
    return next((n for n, size in enumerate(sizes, 1) if traffic <= size), 4)
