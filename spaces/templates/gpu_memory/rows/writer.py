"""The program of a setting for threads.

Threads of a block share out some items, and the places of each item. A thread goes through its
places in steps of a vector; several stages go through the same ones, so that what it held of the
first is there for the others. Only loops and stores know where a shape ends.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from spaces.ir import rewrite, tvm_compat
from spaces.ir.element_types import HALVES
from spaces.templates.gpu_memory.elements import Elements, Places, Slot
from spaces.templates.gpu_memory.program import Group, Part, Program, Walk
from spaces.templates.gpu_memory.rows.joined_sums import Threads, join_columns, join_rows
from spaces.templates.gpu_memory.rows.setting import AGAIN, Setting
from spaces.templates.gpu_memory.rows.steps import Steps, Way
from spaces.templates.gpu_memory.sizes import SymbolicSizes
from spaces.templates.gpu_memory.vectors import is_whole
from spaces.templates.gpu_memory.versions import Writer, write_versions
from spaces.templates.thread_program import narrow


def write_program(program: Program, parameters: Sequence[Any], setting: Setting, held: int) -> Any:
    """The PrimFunc of a setting.

    Args:
        parameters: of the program.
        held: the most vectors that a thread holds of each tensor that several stages read.
    """

    def writer(T: Any, vector: int, symbols: Sequence[Any]) -> Writer:
        return _Writer(T, program, setting, vector, symbols, held)

    return write_versions(program, parameters, writer, int(setting.vector), int(setting.threads))


class _Writer:
    """Writes what threads do where vectors have some size.

    Args:
        symbols: symbolic dimensions that are multiples of it.
    """

    def __init__(
        self,
        T: Any,
        program: Program,
        setting: Setting,
        vector: int,
        symbols: Sequence[Any],
        held: int,
    ) -> None:
        self._t, self._program, self._setting = T, program, setting
        self._vector = vector
        self._sizes = SymbolicSizes(T, program.kind, vector, symbols)
        self._shared = frozenset(program.shared_reads() if setting.held != AGAIN else ())
        self._most_held = held
        self._results: list[tuple[Any, Any]] = []

    @property
    def _is_flat(self) -> bool:
        return self._program.walk is Walk.FLAT

    @property
    def _own(self) -> int:
        """Items of a thread."""
        return self._vector if self._program.walk is Walk.COLUMNS else 1

    # ---- how many there are

    def count_blocks(self) -> Any:
        """The number of blocks."""
        if self._is_flat:
            each = int(self._setting.lane_threads * self._setting.unroll)
            total = self._sizes.count(self._program.parts[-1].lanes, self._vector)
        else:
            each, total = int(self._setting.item_threads), self._count_items()
        return narrow(self._t, self._sizes.fix((total + (each - 1)) // each))

    def _count_items(self) -> Any:
        return self._sizes.count(self._program.items, self._own)

    def _width_of(self, part: Part) -> int:
        """Elements of a vector of a part."""
        if self._program.walk is Walk.COLUMNS:
            return self._vector
        extent = self._sizes.fix(part.lanes[-1].extent) if part.lanes else None
        return self._vector if part.lanes and is_whole(extent, self._vector) else 1

    # ---- what threads do

    def write(self, tensors: Sequence[tuple[Any, Any]], block: Any, thread: Any) -> None:
        """Write what a thread of a block does.

        Args:
            tensors: the program's parameters, each with the tensor that stands for it.
        """
        T, setting = self._t, self._setting
        lanes, items = int(setting.lane_threads), int(setting.item_threads)
        if self._program.walk is Walk.COLUMNS:
            self._threads = Threads(thread, thread // items, thread % items)
        else:
            self._threads = Threads(thread, thread % lanes, thread // lanes)
        self._elements = Elements(T, tensors, self._program.along, self._sizes.symbols)
        self._inside: Any = None
        self._first: Any = self._sizes.number(0)
        places: Places = {}
        if self._is_flat:
            each = lanes * int(setting.unroll)
            self._first = self._sizes.number(block) * each
        elif self._program.items:
            places = self._place_items(block)
        self._places = places
        self._steps = Steps(
            T, setting, self._threads, self._elements, self._shared, self._spread_all
        )
        for number, part in enumerate(self._program.parts):
            self._write_part(part, is_last=number == len(self._program.parts) - 1)

    def _place_items(self, block: Any) -> Places:
        """The places of a thread's item; of one beyond the last those of the last."""
        T, each = self._t, int(self._setting.item_threads)
        total = self._count_items()
        number = self._sizes.number(block) * each + self._sizes.number(self._threads.item)
        known = tvm_compat.as_int(total)
        if known is None or known % each:
            self._inside = T.Bind(number < total)
            number = T.min(number, total - 1)
        is_vector = self._program.walk is Walk.COLUMNS
        return self._sizes.spread(
            T.Bind(number), self._program.items, self._vector if is_vector else 1
        )

    def _spread_all(self, number: Any, groups: Sequence[Group], vector: int) -> Places:
        """All places of a vector of a thread's item."""
        return {**self._places, **self._sizes.spread(number, groups, vector)}

    def _write_part(self, part: Part, *, is_last: bool) -> None:
        T, body = self._t, part.body
        dtype = str(body.target.dtype)
        if part.lanes and not part.stage.reduces:
            self._write_lanes(part)
            return
        result = T.alloc_buffer((self._own,), dtype, scope="local")
        if part.stage.reduces:
            sums = self._sum_up(part)
            with T.unroll(self._own) as i:
                T.buffer_store(result, rewrite.cast(dtype, sums[i]), [i])
        else:
            slots = self._steps.load(part, self._places, self._own)
            with T.unroll(self._own) as i:
                T.buffer_store(result, self._value(part, slots, self._places, i), [i])
        self._results.append((body.target, result))
        if is_last:
            first = self._threads.lane == 0
            inside = first if self._inside is None else T.And(first, self._inside)
            with T.If(inside), T.Then():
                self._elements.store(body.target, part.index, self._places, result, self._own)

    def _sum_up(self, part: Part) -> Any:
        """The sums of a part, the same in all threads that share an item."""
        T, body = self._t, part.body
        dtype = str(body.target.dtype)
        dtype = "float32" if dtype in HALVES else dtype
        sums = T.alloc_buffer((self._own,), dtype, scope="local")
        with T.unroll(self._own) as i:
            T.buffer_store(sums, rewrite.cast(dtype, body.start), [i])

        way = self._way(part)

        def add(slots: Mapping[int, Slot], places: Places) -> None:
            with T.unroll(way.width) as i:
                at = i if self._own > 1 else 0
                term = rewrite.cast(dtype, self._value(part, slots, places, i))
                T.buffer_store(sums, body.join(sums[at], term), [at])

        self._steps.go(part, way, add)
        join = join_columns if self._program.walk is Walk.COLUMNS else join_rows
        join(T, self._threads, self._setting, sums, body.join)
        return sums

    def _write_lanes(self, part: Part) -> None:
        """Compute and store each element of an item."""
        T, target = self._t, part.body.target
        way = self._way(part)
        out = T.alloc_buffer((way.width,), str(target.dtype), scope="local", align=16)

        def put(slots: Mapping[int, Slot], places: Places) -> None:
            with T.unroll(way.width) as i:
                T.buffer_store(out, self._value(part, slots, places, i), [i])
            self._elements.store(target, part.index, places, out, way.width)

        self._steps.go(part, way, put)

    def _value(self, part: Part, slots: Mapping[int, Slot], places: Places, i: Any) -> Any:
        """What a part computes at an element of a vector."""
        at = i if self._own > 1 else 0
        results = [(tensor, result[at]) for tensor, result in self._results]
        return self._elements.value(part, slots, results, places, i)

    def _way(self, part: Part) -> Way:
        """How a thread goes through a part."""
        setting, width = self._setting, self._width_of(part)
        lanes = 1 if self._program.walk is Walk.COLUMNS else width
        total = self._sizes.count(part.lanes, lanes)
        threads, unroll = int(setting.lane_threads), int(setting.unroll)
        known = tvm_compat.as_int(total)
        steps = None if known is None else -(-known // threads)
        if self._is_flat:
            steps = unroll
        held = 0
        if any(read.number in self._shared for read in part.reads):
            held = self._most_held * int(setting.vector) // width
            held = held if steps is None else min(held, steps)
        end, inside = total, self._inside
        if inside is not None:
            end = self._t.Bind(self._t.Select(inside, total, self._sizes.number(0)))
        together = threads * (1 if held else unroll)
        is_even = inside is None and known is not None and known % together == 0
        return Way(total, end, self._first, steps, held, width, lanes, is_even)
