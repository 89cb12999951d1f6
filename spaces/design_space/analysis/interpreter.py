"""Reads a sketch: what its kernel's launch will be, as formulas of what is yet to be drawn.

The instructions before the first draw are carried out; those after it are followed by what they do
to loop extents (split, reorder, fuse, bind), to tiles in shared memory (cache_read, compute_at) and
to sums in registers (cache_write). What is not understood is left out: a formula may then allow
what the device does not, which a post-processor or the compiler finds later, but refuses nothing
that it takes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from spaces.design_space.analysis.draws import ChoiceDraw, Draw, TileDraw
from spaces.design_space.analysis.extents import Alignment, Extent, Reach, Tile, product
from spaces.design_space.analysis.launch import Launch
from spaces.ir import tvm_compat
from spaces.ir.affine import read_index
from spaces.ir.schedules import new_schedule
from spaces.targets.gpu import Gpu

_LEAST = "meta_schedule.thread_extent_low_inclusive"
_MOST = "meta_schedule.thread_extent_high_inclusive"
_FETCH = "meta_schedule.cooperative_fetch"
_VECTOR_BYTES, _INDEX_BYTES = 16, 4
"""TVM's limit on vectors, those of indices included, which a gather needs."""
_STAGES = "software_pipeline_stage"
_ASYNC = "software_pipeline_async_stages"
_WARP = "warp_execution"
_WARP_THREADS = 32
_IN_REGISTERS = ("local", "wmma.accumulator")
_REGISTER_BYTES = 4


@dataclass(frozen=True, slots=True)
class Reading:
    """A sketch that was read.

    Attributes:
        draws: what each of its sampling instructions draws; None for one that is not understood.
        whole: all that its kernel asks a device for was followed. Else it may ask for more.
    """

    launch: Launch
    draws: tuple[Draw | None, ...]
    whole: bool = True


@dataclass(frozen=True, slots=True)
class _Loop:
    """A loop as its parts: for each the axis of the block that it moves, and its steps."""

    parts: tuple[tuple[int, Extent], ...]

    @property
    def extent(self) -> Extent:
        return product([extent for _, extent in self.parts])


def read_sketch(module: Any, trace: Any, gpu: Gpu) -> Reading | None:
    """Read a sketch of a GPU kernel; None where it binds no loop to threads, or draws no tile."""
    instructions, _ = trace.as_json()
    kinds = [kind for kind, *_ in instructions]
    drawn = [n for n, kind in enumerate(kinds) if kind.startswith("Sample")]
    if not drawn or "Bind" not in kinds:
        return None
    first = drawn[0]
    reader = _Reader.at(module, instructions[:first])
    for kind, inputs, attributes, outputs in instructions[first:]:
        reader.follow(kind, inputs, attributes, outputs)
    return reader.reading(gpu)


class _Reader:
    """Follows instructions, with loops and numbers known by their names in the trace."""

    def __init__(
        self, block: Any, name: str, loops: dict[str, _Loop], strided: frozenset[int] = frozenset()
    ) -> None:
        self._block, self._name, self._strided = block, name, strided
        self._loops = loops
        self._order = list(loops)
        self._numbers: dict[str, Extent] = {}
        self._draws: list[Draw | None] = []
        self._bound: dict[str, str] = {}  # loops by thread
        self._blocks: list[str] = []  # loops bound to blocks of threads
        self._sums: tuple[str, int] | None = None  # what is kept in registers: a block, a result
        self._summed_in = ""  # the loop in which they are
        self._vthreads: list[str] = []
        self._cached: dict[str, int] = {}  # by block, which operand it reads to shared memory
        self._tiles: dict[str, Tile] = {}  # of such blocks
        self._vectors: list[tuple[Extent, int]] = []
        self._notes: dict[str, int] = {}
        self._versions = 1
        self._pipelined: list[Extent] = []
        self._lost_threads = False  # some loop is bound whose extent is not known
        self._lost_tiles = False  # something is in shared memory that is not in `_tiles`

    @staticmethod
    def at(module: Any, instructions: Sequence[Any]) -> _Reader:
        """Carry out the instructions before the first draw; the loops got last are the nest."""
        from tvm.s_tir.schedule import Trace

        schedule = new_schedule(module)
        Trace.apply_json_to_schedule([list(instructions), []], schedule)
        nest = max(
            (n for n, (kind, *_) in enumerate(instructions) if kind == "GetLoops"), default=None
        )
        if nest is None:
            return _Reader(None, "", {})  # nothing to follow
        name, names = instructions[nest][1][0], instructions[nest][3]
        made = {
            output_name: output
            for (*_, outputs), instruction in zip(instructions, schedule.trace.insts, strict=True)
            for output_name, output in zip(outputs, instruction.outputs, strict=True)
        }
        block, found = made[name], [made[loop] for loop in names]
        strided = _find_strided(schedule, block)
        reader = _Reader(schedule.get(block), name, _loops(schedule, block, names, found), strided)
        for kind, inputs, attributes, _ in instructions:
            if kind == "Annotate":
                reader.follow(kind, inputs, attributes, [])
        return reader

    def follow(self, kind: str, inputs: Any, attributes: Any, outputs: Any) -> None:
        """Follow one instruction; those of other kinds change nothing that is looked at."""
        if kind.startswith("Sample"):
            self._sample(kind, inputs, attributes, outputs)
        elif kind == "Split":
            self._split(inputs[0], inputs[1:], outputs)
        elif kind == "Reorder":
            self._reorder(inputs)
        elif kind == "Fuse":
            self._fuse(inputs, outputs[0])
        elif kind == "Bind":
            self._bind(inputs[0], attributes[0])
        elif kind == "CacheRead" and inputs[0] == self._name:
            if str(attributes[1]).startswith("shared"):
                self._cached[outputs[0]] = int(attributes[0])
        elif kind == "CacheWrite" and inputs[0] == self._name:
            if str(attributes[1]) in _IN_REGISTERS:
                self._sums = outputs[0], int(attributes[0])
        elif kind.endswith("ComputeAt") and self._sums and inputs[0] == self._sums[0]:
            self._summed_in = inputs[1]
        elif kind == "ReadAt":
            self._lost_tiles = True
        elif kind == "ComputeAt" and inputs[0] in self._cached:
            self._place(inputs[0], inputs[1])
        elif kind == "StorageAlign" and inputs[0] in self._tiles:
            alignment = Alignment(*(int(_plain(value)) for value in attributes[1:4]))
            self._tiles[inputs[0]] = replace(self._tiles[inputs[0]], alignment=alignment)
        elif kind == "Annotate":
            self._annotate(inputs[0], str(attributes[0]), _plain(inputs[1]))

    def _sample(self, kind: str, inputs: Any, attributes: Any, outputs: Any) -> None:
        number = len(self._draws)
        draw: Draw | None = None
        if kind == "SamplePerfectTile" and (loop := self._loops.get(inputs[0])) is not None:
            parts, innermost = int(attributes[0]), int(attributes[1])
            if not loop.extent.drawn:
                draw = TileDraw(loop.extent.constant, parts, innermost)
        elif kind == "SampleCategorical":
            values, odds = attributes[0], attributes[1]
            draw = ChoiceDraw(tuple(map(int, values)), tuple(float(_plain(o)) for o in odds))
        self._draws.append(draw)
        if draw is None:
            return  # loops that are split by what it gives are lost
        for result, name in enumerate(outputs):
            self._numbers[name] = Extent(1, ((number, result),))

    def _split(self, loop: str, factors: Any, outputs: Any) -> None:
        known = self._loops.get(loop)
        plain = [_plain(factor) for factor in factors]
        sizes = [Extent(f) if isinstance(f, int) else self._numbers.get(f) for f in plain]
        if known is None or None in sizes or len(known.parts) != 1:
            self._lose(loop)
            return
        axis = known.parts[0][0]
        new = {
            name: _Loop(((axis, size),))
            for name, size in zip(outputs, sizes, strict=True)
            if size is not None
        }
        self._replace([loop], new)

    def _reorder(self, loops: Sequence[str]) -> None:
        wanted = [loop for loop in loops if loop in self._order]
        places = sorted(self._order.index(loop) for loop in wanted)
        for place, loop in zip(places, wanted, strict=True):
            self._order[place] = loop

    def _fuse(self, loops: Sequence[str], output: str) -> None:
        if any(loop not in self._loops for loop in loops):
            for loop in loops:
                self._lose(loop)
            return
        parts = tuple(part for loop in loops for part in self._loops[loop].parts)
        self._replace(loops, {output: _Loop(parts)})

    def _bind(self, loop: str, thread: str) -> None:
        if loop not in self._loops:
            self._lost_threads |= not thread.startswith("blockIdx")
        elif thread.startswith("threadIdx"):
            self._bound[thread] = loop
        elif thread.startswith("vthread"):
            self._vthreads.append(loop)
        else:
            self._blocks.append(loop)

    def _annotate(self, what: str, key: str, value: Any) -> None:
        if key == _FETCH and what in self._tiles and value in self._numbers:
            element_bytes = self._tiles[what].element_bytes
            gathered = self._cached[what] in self._strided
            most = _VECTOR_BYTES // max(element_bytes, _INDEX_BYTES if gathered else 1)
            self._vectors.append((self._numbers[value], most))
        elif what == self._name and isinstance(value, int):
            self._notes[key] = value
        elif key == _STAGES and isinstance(value, list):
            stages = [int(_plain(stage)) for stage in value]
            self._versions = max(self._versions, max(stages) - min(stages) + 1)
        elif key == _ASYNC and what in self._loops:
            self._pipelined.append(self._loops[what].extent)

    def _replace(self, old: Sequence[str], new: dict[str, _Loop]) -> None:
        at = self._order.index(old[0])
        self._order[at : at + 1] = list(new)
        for loop in old:
            self._loops.pop(loop)
            if loop in self._order:
                self._order.remove(loop)
        self._loops |= new

    def _lose(self, loop: str) -> None:
        """Forget a loop that something not understood was done to."""
        if self._loops.pop(loop, None) is not None:
            self._order.remove(loop)

    def reading(self, gpu: Gpu) -> Reading | None:
        """What was found; None where no loop is bound to threads."""
        if not self._bound or not any(isinstance(draw, TileDraw) for draw in self._draws):
            return None
        warp = _WARP_THREADS if _WARP in self._notes and "threadIdx.x" not in self._bound else 1
        launch = Launch(
            gpu=gpu,
            threads={thread: self._loops[loop].extent for thread, loop in self._bound.items()},
            warp=warp,
            tiles=tuple(self._tiles.values()),
            versions=self._versions,
            pipelined=tuple(self._pipelined),
            vectors=tuple(self._vectors),
            sums=self._count_sums(self._sums[1], warp) if self._sums else None,
            least=1 if self._lost_threads else self._notes.get(_LEAST, 1),
            most=self._notes.get(_MOST, gpu.threads),
        )
        followed = self._cached.keys() == self._tiles.keys() and not self._lost_tiles
        return Reading(launch, tuple(self._draws), followed and not self._lost_threads)

    def _count_sums(self, result: int, warp: int) -> Extent:
        """Registers for what a thread, or a thread of a warp, keeps of a result."""
        region = self._block.writes[result]
        sizes = [tvm_compat.as_int(span.extent) or 1 for span in region.region]
        bits = tvm_compat.element_bits(tvm_compat.param_dtype(region.source))
        held = math.prod(sizes) * bits // (8 * _REGISTER_BYTES * warp)
        within = self._order.index(self._summed_in) + 1 if self._summed_in in self._order else 0
        elsewhere = {*self._bound.values(), *self._blocks}
        own = {*self._order[within:], *self._vthreads} - elsewhere
        summed = {n for n, axis in enumerate(self._block.iter_vars) if int(axis.iter_type)}
        parts = [part for loop in self._order if loop in own for part in self._loops[loop].parts]
        steps = product([extent for axis, extent in parts if axis not in summed])
        return Extent(max(held, 1)).times(steps)

    def _place(self, block: str, loop: str) -> None:
        """Note what all threads of a block reach of an operand within a loop."""
        if loop not in self._order:
            return
        within = self._order[self._order.index(loop) + 1 :]
        steps: dict[int, Extent] = {}
        for name in dict.fromkeys([*within, *self._bound.values(), *self._vthreads]):
            for axis, extent in self._loops[name].parts:
                steps[axis] = steps.get(axis, Extent()).times(extent)
        region = self._block.reads[self._cached[block]]
        numbers = {axis.var: n for n, axis in enumerate(self._block.iter_vars)}
        reaches = []
        for span in region.region:
            index = read_index(span.min, numbers, frozenset())
            if index.tangled or type(span.extent).__name__ != "IntImm":
                return
            moved = tuple((by, steps[a]) for a, by in index.steps.items() if a in steps)
            reaches.append(Reach(int(span.extent), moved))
        bits = tvm_compat.element_bits(tvm_compat.param_dtype(region.source))
        self._tiles[block] = Tile(tuple(reaches), max(1, bits // 8))


def _loops(
    schedule: Any, block: Any, names: Sequence[str], found: Sequence[Any]
) -> dict[str, _Loop]:
    """The loops of a nest that each move one axis of its block by one."""
    nodes = [schedule.get(loop) for loop in found]
    values = list(nodes[-1].body.iter_values) if hasattr(nodes[-1].body, "iter_values") else []
    known = {}
    for name, node in zip(names, nodes, strict=True):
        axes = [n for n, value in enumerate(values) if value.same_as(node.loop_var)]
        if len(axes) == 1 and type(node.extent).__name__ == "IntImm":
            known[name] = _Loop(((axes[0], Extent(int(node.extent))),))
    return known


def _find_strided(schedule: Any, block: Any) -> frozenset[int]:
    """The operands of a block that a producer to be inlined reads across its lines."""
    found = set()
    producers = [schedule.get(producer) for producer in schedule.get_producers(block)]
    for number, region in enumerate(schedule.get(block).reads):
        for producer in producers:
            if producer.writes[0].source.same_as(region.source) and _crosses(producer):
                found.add(number)
    return frozenset(found)


def _crosses(producer: Any) -> bool:
    """Whether a block writes along another dimension than it reads along."""
    if len(producer.reads) != 1:
        return False
    numbers = {axis.var: n for n, axis in enumerate(producer.iter_vars)}
    ends = [
        read_index(r.region[-1].min, numbers, frozenset()).steps
        for r in (producer.reads[0], producer.writes[0])
    ]
    return ends[0] != ends[1]


def _plain(value: Any) -> Any:
    """The number in a constant of TVM's; anything else as it is."""
    return getattr(value, "value", value)
