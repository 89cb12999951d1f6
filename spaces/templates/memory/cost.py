"""The values of the memory-bound template's knobs, and estimates of what they cost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from spaces.targets.cpu import Cpu
from spaces.templates.base import Knobs
from spaces.templates.memory.nests import Nest, extent, lane_of, nests_of
from spaces.templates.memory.stages import Stage
from spaces.templates.memory.steps import tile_of, vector_width

_TILES = (16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384, 65536)
_SIDES = (1, 2, 4, 8, 16, 32, 64)
_NARROW_TILES = (4, 8)
_STREAMS = (0, 1, 2, 4, 8, 16)
_VECTORS = (0, 1, 2, 4)

# Estimates for a core of today; only ratios matter.
_CYCLE_S = 0.3e-9
_LAUNCH_S = 4e-6
_BYTES_PER_CYCLE = {1: 64.0, 2: 32.0, 3: 16.0, 4: 6.0}
_HEAVY_CYCLES = 16.0
_ROW_CYCLES = 6.0
_CHAIN_CYCLES = 4.0
_LANE_CYCLES = 5.0
"""Cycles to add a lane to the one before it."""
_TAIL_CYCLES = 4.0
_DIVIDED_CYCLES = 4.0
"""Cycles for a row whose index comes from dividing by a size that is not known."""
_WINDOW, _MOST_AT_ONCE = 32.0, 6.0
"""Vector steps that a core has in flight, and the most short sums that it has begun at once."""
_WIDE_TILE = 64
_NEAR, _FETCHED, _LINE_BYTES = 2, 0.7, 64
"""The cache level beyond which it pays to fetch ahead; the share of waiting that then remains."""


@dataclass(frozen=True, slots=True)
class Form:
    """A program after inlining.

    Attributes:
        stages: the stages that remain.
        nests: the loop nests that compute them.
        walks: for each stage the axis along which it walks through memory one element at a time,
            with the axes that can be fused with it; empty where there is no such axis.
    """

    stages: tuple[Stage, ...]
    nests: tuple[Nest, ...]
    walks: tuple[tuple[int, ...], ...]

    @property
    def main(self) -> Nest:
        """The nest whose stages have the most steps."""
        return max(self.nests, key=lambda nest: sum(self.stages[n].points for n in nest.stages))

    @property
    def symbolic(self) -> bool:
        """Whether an extent is known only when the program runs."""
        return any(axis.symbolic for stage in self.stages for axis in stage.axes)


def form_of(stages: Sequence[Stage]) -> Form:
    """The form of a program with these stages."""
    along = [stage.contiguous() for stage in stages]
    walks = (() if a is None else lane_of(s, a) for s, a in zip(stages, along, strict=True))
    return Form(tuple(stages), nests_of(stages), tuple(walks))


def choices_of(form: Form, cpu: Cpu, lanes: int, *, optional: bool) -> dict[str, tuple[int, ...]]:
    """Values of each knob; see `Template.choices`.

    keep: store what would otherwise be computed again for each consumer.
    fused: row loops that are fused into the parallel one; 0 is serial.
    tile: the most steps of the lane in one row; 0 is all.
    vectors: registers that a vector spans; 0 leaves vectors to the compiler.
    tree: sum the lanes of a vector pairwise.
    stream: reduction steps that are added at once to whole tiles in memory; 0 sums in registers.
    side: steps of a tile across the lane.
    scatter: vectors lie across the lane, where memory is read in order.
    parts: parts of a sum that has too few rows, each summed on its own.
    ahead: rows that are fetched before they are computed; see `spaces.passes.prefetch`.
    """
    nest, last = form.main, form.stages[form.main.stages[-1]]
    lane = extent(last, nest.lane) if nest.lane else 1
    least = max(2, lanes // 2)
    limits: tuple[int, ...] = _TILES
    if nest.across is not None:
        least, limits = 2, (*_NARROW_TILES, *_TILES)
    ragged = is_ragged(last, nest.lane)
    tiles = {
        tile_of(lane, limit, is_symbolic=ragged): limit
        for limit in reversed(limits)
        if limit < lane
    }
    tiles = {found: limit for found, limit in tiles.items() if found >= least}
    rows = sum(last.axes[n].extent > 1 for n in nest.rows)
    most = rows + bool(tiles) + (nest.across is not None)
    reducing = [s for s in form.stages if s.reduces]
    columns = any(
        stage.reduces and walk and not stage.axes[walk[-1]].reduced
        for stage, walk in zip(form.stages, form.walks, strict=True)
    )
    alone = any(form.stages[n.stages[-1]].reduces and len(n.stages) == 1 for n in form.nests)
    divided = any(a.reduced and not a.symbolic for s in reducing for a in s.axes)
    sparse = divided and alone and _rows(form, nest) * max(1, lane // lanes) < 4 * cpu.cores
    across_axes = () if nest.across is None else (nest.across,)
    across = extent(last, across_axes)
    return {
        "keep": (0, 1) if optional else (0,),
        "fused": tuple(range(most + 1)),
        "tile": (0, *sorted(tiles.values())),
        "vectors": tuple(v for v in _VECTORS if v < 2 or v * lanes <= _longest(form)),
        "tree": (0, 1) if any(map(_along, form.stages, form.walks)) else (0,),
        "stream": _STREAMS if columns else (0,),
        "side": tuple(s for s in _SIDES if s <= across) if nest.across is not None else (1,),
        "scatter": (0, 1) if nest.across is not None and not is_ragged(last, across_axes) else (0,),
        "parts": tuple(cpu.cores * n for n in (1, 2, 4)) if sparse and cpu.cores > 1 else (1,),
        "ahead": (0, 1) if not form.symbolic and _reads_again(form) else (0,),
    }


def _reads_again(form: Form) -> bool:
    """Whether two stages of a nest read the same tensor, which no stage of it writes."""
    for nest in form.nests:
        stages = [form.stages[n] for n in nest.stages]
        written = {write.buffer for stage in stages for write in stage.writes}
        reads = [b for stage in stages for b in {r.buffer for r in stage.reads} - written]
        if len(set(reads)) < len(reads):
            return True
    return False


def is_ragged(stage: Stage, axes: Sequence[int]) -> bool:
    """Whether the extent of some axes together is known only when the program runs."""
    return any(stage.axes[n].symbolic for n in axes)


def is_distinct(form: Form, knobs: Knobs) -> bool:
    """Whether no smaller setting gives the same program."""
    nest, last = form.main, form.stages[form.main.stages[-1]]
    lane = extent(last, nest.lane) if nest.lane else 1
    rows = sum(last.axes[n].extent > 1 for n in nest.rows)
    rows += tile_of(lane, knobs["tile"], is_symbolic=is_ragged(last, nest.lane)) < lane
    if nest.across is not None:
        across = last.axes[nest.across]
        rows += tile_of(across.extent, knobs["side"], is_symbolic=across.symbolic) < across.extent
    by_vectors = knobs["tree"] or knobs["ahead"]
    return knobs["fused"] <= max(1, rows) and bool(knobs["vectors"] or not by_vectors)


def cost_s(form: Form, cpu: Cpu, lanes: int, knobs: Knobs) -> float:
    """Estimate a setting's time: traffic, arithmetic and overheads."""
    return sum(_nest_s(form, nest, cpu, lanes, knobs) for nest in form.nests)


def _nest_s(form: Form, nest: Nest, cpu: Cpu, lanes: int, knobs: Knobs) -> float:
    stages = [form.stages[n] for n in nest.stages]
    last = stages[-1]
    lane = extent(last, nest.lane) if nest.lane else 1
    ragged = is_ragged(last, nest.lane)
    tile = tile_of(lane, knobs["tile"], is_symbolic=ragged)
    traffic = _traffic_bytes(stages)
    level = _level(traffic, cpu)
    cycles = traffic / _BYTES_PER_CYCLE[level]
    if knobs["ahead"]:
        cycles = cycles * (_FETCHED if level > _NEAR else 1.0) + traffic / _LINE_BYTES
    rows = _rows(form, nest) * -(-lane // tile)
    cycles += rows * _ROW_CYCLES * len(stages)
    if _divides(last, nest, knobs):
        cycles += rows * _DIVIDED_CYCLES
    for number, stage in zip(nest.stages, stages, strict=True):
        walk = form.walks[number]
        cycles += _stage_cycles(stage, walk, lanes, knobs, strided=nest.across is None)
        cycles += _sum_cycles(stage, walk, rows, tile, lanes, knobs)
    if nest.lane and knobs["vectors"] and not ragged:
        width = vector_width(tile, lanes * knobs["vectors"]) or tile
        cycles += rows * (tile % width + lanes / width) * _TAIL_CYCLES
    if nest.across is not None:
        ordered = knobs["scatter"] and knobs["vectors"] == 1 and knobs["side"] >= lanes // 2
        cycles *= 1 if ordered else 3
        cycles *= 1 + tile / _WIDE_TILE
    return _on_cores(cycles, rows, cpu, knobs) + _LAUNCH_S * (_launches(stages, knobs) - 1)


def _divides(last: Stage, nest: Nest, knobs: Knobs) -> bool:
    """Whether the fused loop has a symbolic axis after its first, so that indices are divided."""
    axes = [last.axes[n] for n in nest.rows]
    loops = [axis for axis in axes if axis.symbolic or axis.extent > 1]
    return any(axis.symbolic for axis in loops[1 : knobs["fused"]])


def _launches(stages: Sequence[Stage], knobs: Knobs) -> int:
    """The number of times that work is shared out to the cores; see `_Writer.write_apart`."""
    ragged = sum(any(a.symbolic and a.reduced for a in stage.axes) for stage in stages)
    apart = ragged > 1 and knobs["fused"] and (knobs["vectors"] or knobs["stream"])
    return len(stages) if apart else 1


def _stage_cycles(
    stage: Stage, walk: Sequence[int], lanes: int, knobs: Knobs, *, strided: bool
) -> float:
    """Cycles of arithmetic, and of loads from the nearest cache."""
    work = 1 + len(stage.reads) + _HEAVY_CYCLES * stage.heavy
    steps = {read.steps[walk[-1]] for read in stage.reads} if walk else set()
    if not knobs["vectors"]:
        return stage.points * work / 8
    # A vector of elements that are not contiguous is loaded one by one.
    cycles = stage.points * work / (2 if strided and not steps <= {0, 1} else 2 * lanes)
    if not is_ragged(stage, walk):
        return cycles
    # The remainder, which fills no vector, is done one by one, under a predicate for each lane.
    width, length = lanes * knobs["vectors"], extent(stage, walk)
    left = length % width
    ends = stage.points / length
    return cycles * (length - left) / length + ends * (left * work / 2 + width * (left > 0))


def _sum_cycles(
    stage: Stage, walk: Sequence[int], rows: int, tile: int, lanes: int, knobs: Knobs
) -> float:
    """Cycles of waiting for sums: chains of additions, and sums over the lanes."""
    if not stage.reduces:
        return 0.0
    if _along(stage, walk):
        steps = extent(stage, walk)
        width = vector_width(steps // 2, lanes * knobs["vectors"]) or 1
        tail = steps % width
        chain = stage.points / width * _CHAIN_CYCLES / 2
        across = width / 2 + 16 if knobs["tree"] else _LANE_CYCLES * width
        at_once = min(max(_WINDOW / (steps / width), 1.0), _MOST_AT_ONCE)
        return (chain + rows * across) / at_once + rows * _TAIL_CYCLES * tail
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
    """Steps of the longest walk through memory; half of those of a sum, which needs two vectors."""
    found = [1]
    for nest in form.nests:
        last = form.stages[nest.stages[-1]]
        found.append(extent(last, nest.lane))
        if nest.across is not None:
            found.append(last.axes[nest.across].extent)
    for stage, walk in zip(form.stages, form.walks, strict=True):
        if walk:
            found.append(extent(stage, walk) // (1 + stage.axes[walk[-1]].reduced))
    return max(found)


def _rows(form: Form, nest: Nest) -> int:
    return extent(form.stages[nest.stages[-1]], nest.rows)


def _along(stage: Stage, walk: Sequence[int]) -> bool:
    """Whether vectors lie along a reduction axis."""
    return bool(walk) and stage.axes[walk[-1]].reduced


def _traffic_bytes(stages: Sequence[Stage]) -> int:
    """Bytes that a nest reads and writes beyond its own rows, each tensor once."""
    inside = {write.buffer for stage in stages[:-1] for write in stage.writes}
    accesses = [a for stage in stages for a in (*stage.reads, *stage.writes)]
    sizes = {a.buffer: a.elements * a.bits // 8 for a in accesses if a.buffer not in inside}
    return sum(sizes.values())


def _level(traffic: int, cpu: Cpu) -> int:
    sizes: Sequence[int] = (cpu.l1_bytes, cpu.l2_bytes, cpu.l3_bytes)
    return next((n for n, size in enumerate(sizes, 1) if traffic <= size), 4)
