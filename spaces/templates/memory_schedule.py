"""Carrying out the knobs of the memory-bound template."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from spaces import names
from spaces.knobs import Knobs
from spaces.templates.memory_inline import inline
from spaces.templates.memory_nests import Nest, extent, nest_of, nests_of
from spaces.templates.stages import Stage, stage_of, stages_of

_PARTITION = "pragma_loop_partition_hint"
_LEAST_VECTOR = 4
_MOST_UNROLLED = 64
_FEW_STEPS = 16


def divisor_up_to(number: int, limit: int) -> int:
    """The largest divisor that is at most `limit`; all of it where that is 0."""
    if limit <= 0 or limit >= number:
        return number
    return next(d for d in range(limit, 0, -1) if number % d == 0)


def vector_width(steps: int, width: int) -> int:
    """Lanes to use for a loop: the power of two, at most `width`, that leaves least to do.

    What a vector does not divide is done one by one.
    """
    fitting = [w for w in _powers(width) if w <= steps]
    return min(fitting, key=lambda w: (steps // w + steps % w, -w), default=0)


def _powers(most: int) -> list[int]:
    return [1 << n for n in range(most.bit_length()) if 1 << n >= _LEAST_VECTOR]


def write_nests(schedule: Any, knobs: Knobs, lanes: int) -> None:
    """Schedule a program whose blocks are all plain stages.

    Args:
        lanes: elements of a vector register, of the program's widest elements.

    Raises:
        Exception: whatever TVM throws where a primitive does not apply.
    """
    inline(schedule, keep=bool(knobs["keep"]))
    stages = stages_of(schedule)
    if stages is None:
        raise ValueError("a block is no plain stage")
    blocks = names.stage_blocks(schedule)
    for nest in nests_of(stages):
        _Writer(schedule, knobs, lanes).write([blocks[n] for n in nest.stages], nest)


@dataclass
class _Writer:
    """Schedules one nest. `late` is done at the end: it would be in the way of what follows."""

    schedule: Any
    knobs: Knobs
    lanes: int
    late: list[Callable[[], None]] = field(default_factory=list)

    def write(self, blocks: Sequence[Any], nest: Nest) -> None:
        last = blocks[-1]
        if len(blocks) == 1 and self._split_off_parts(last):
            nest = nest_of(self._stage(last))
        depth, inner = self._arrange(last, nest)
        if nest.across is not None and self.knobs["scatter"]:
            self._scatter(inner[-2], inner[-1])
        else:
            self._finish(last, depth, inner)
        for block in reversed(blocks[:-1]):
            self.schedule.compute_at(block, self._rows(last, depth)[-1], index=-2)
            self._finish(block, depth, None)
        if depth and self.knobs["fused"]:
            self.schedule.parallel(self._rows(last, depth)[0])
        for action in self.late:
            action()

    def _rows(self, block: Any, depth: int) -> list[Any]:
        return list(self.schedule.get_loops(block))[:depth]

    def _stage(self, block: Any) -> Stage:
        stage = stage_of(self.schedule.get(block), list(self.schedule.mod["main"].params), [])
        if stage is None:
            raise ValueError("a block is no plain stage")
        return stage

    def _split_off_parts(self, block: Any) -> bool:
        """Sum parts on their own first, so that several cores can take part; whether it did."""
        stage = self._stage(block)
        reduced = [n for n, axis in enumerate(stage.axes) if axis.reduced]
        if self.knobs["parts"] < 2 or not reduced:
            return False
        axis = max(reduced, key=lambda n: (stage.axes[n].extent, -n))
        parts = divisor_up_to(stage.axes[axis].extent, self.knobs["parts"])
        if parts < 2:
            return False
        loops = list(self.schedule.get_loops(block))
        loop = loops[_axes_of(self.schedule, block, loops).index(axis)]
        outer, _ = self.schedule.split(loop, [parts, stage.axes[axis].extent // parts])
        partial = self.schedule.rfactor(outer, 0)
        _Writer(self.schedule, {**self.knobs, "parts": 1}, self.lanes).write(
            [partial], nest_of(self._stage(partial))
        )
        return True

    def _arrange(self, block: Any, nest: Nest) -> tuple[int, list[Any]]:
        """Bring rows to the front and fuse some; the number of row loops, and the other loops."""
        schedule, stage = self.schedule, self._stage(block)
        found = list(schedule.get_loops(block))
        if not found:
            return 0, []
        places = _axes_of(schedule, block, found)
        if sorted(n for n in places if n is not None) != list(range(len(stage.axes))):
            raise ValueError("a loop moves no axis, or more than one")
        loops = {n: loop for n, loop in zip(places, found, strict=True) if n is not None}
        rows = [loops[n] for n in nest.rows]
        special = {*nest.rows, *nest.lane, nest.across}
        inner = [loop for n, loop in loops.items() if n not in special]
        across = [] if nest.across is None else [loops[nest.across]]
        lane = [loops[n] for n in nest.lane]
        schedule.reorder(*rows, *across, *inner, *lane)
        if nest.across is not None:
            side = divisor_up_to(stage.axes[nest.across].extent, self.knobs["side"])
            outer, near = schedule.split(across[0], [None, side])
            rows.append(outer)
            inner.append(near)
        if lane:
            whole = schedule.fuse(*lane) if len(lane) > 1 else lane[0]
            size = extent(stage, nest.lane)
            tile = divisor_up_to(size, self.knobs["tile"])
            if tile < size:
                outer, whole = schedule.split(whole, [None, tile])
                rows.append(outer)
            inner.append(whole)
        # Rows of one step go along with the outermost.
        rows.sort(key=lambda loop: _extent(schedule, loop) > 1)
        if not rows:
            return 0, inner
        schedule.reorder(*rows, *inner)
        single = sum(_extent(schedule, loop) == 1 for loop in rows)
        fused = min(max(1, self.knobs["fused"]) + single, len(rows))
        if fused > 1:
            schedule.fuse(*rows[:fused])
        return len(rows) - fused + 1, inner

    def _finish(self, block: Any, depth: int, inner: list[Any] | None) -> None:
        """Order, vectorise and unroll what is inside the rows."""
        stage = self._stage(block)
        loops = list(self.schedule.get_loops(block))[depth:] if inner is None else inner
        axes = _axes_of(self.schedule, block, loops)
        along = stage.contiguous()
        if stage.reduces:
            self._finish_reduction(block, depth, stage, loops, axes, along)
        elif loops:
            lane = self._joined_lane(stage, loops, axes, along)
            if lane is not None and stage.vectors_along(along):
                self._vectorise(lane, guarded=along in stage.guarded)
        elif depth:
            # `rfactor` wants loops between a row and each block in it. A trace forgets those that
            # nothing is done with.
            self.schedule.unroll(self.schedule.add_unit_loop(block))

    def _scatter(self, near: Any, lane: Any) -> None:
        """Read vectors across the lane, and write their elements one by one."""
        self.schedule.reorder(lane, near)
        self._vectorise(near)

    def _joined_lane(
        self, stage: Stage, loops: list[Any], axes: list[int | None], along: int | None
    ) -> Any:
        """The loop along an axis, moved inside, with those fused to it that are one with it."""
        if along is None or along not in axes:
            return None
        at = axes.index(along)
        lane, near = loops.pop(at), along
        axes.pop(at)
        self.schedule.reorder(*loops, lane)
        while loops:
            outer = axes[-1]
            whole = outer is not None and _covers(self.schedule, stage, loops[-1], outer)
            if not whole or outer is None or not stage.follows(outer, near):
                break
            if not _covers(self.schedule, stage, lane, near, at_least=near != along):
                break
            lane = self.schedule.fuse(loops.pop(), lane)
            near = axes.pop() or 0
        return lane

    def _finish_reduction(
        self,
        block: Any,
        depth: int,
        stage: Stage,
        loops: list[Any],
        axes: list[int | None],
        along: int | None,
    ) -> None:
        reduced = [loop for loop, n in zip(loops, axes, strict=True) if _is(stage, n)]
        others = [loop for loop, n in zip(loops, axes, strict=True) if not _is(stage, n)]
        if not reduced:
            return
        usable = along in axes and stage.vectors_along(along)
        lane = loops[axes.index(along)] if usable else None
        if lane is not None and _is(stage, along):
            self._reduce_along(block, depth, stage, (others, reduced), axes, loops, lane)
            return
        first = depth + len(others)
        if lane is None:
            self.schedule.reorder(*others, *reduced)
        else:
            others = [loop for loop in others if loop is not lane]
            outer, near = self._split_vector(lane)
            tail = [] if near is None else [near]
            head = [outer] if outer is not None else []
            if self.knobs["stream"]:
                reduced, few = self._split_few(reduced)
                self.schedule.reorder(*others, *reduced, *head, *few, *tail)
                first = depth + len(others)
                reduced = few
            else:
                self.schedule.reorder(*others, *head, *reduced, *tail)
                first = depth + len(others) + len(head)
            if near is not None:
                self.schedule.vectorize(near)
        self._unroll_few(reduced)
        self._decompose_late(block, first)

    def _reduce_along(
        self,
        block: Any,
        depth: int,
        stage: Stage,
        kinds: tuple[list[Any], list[Any]],
        axes: list[int | None],
        loops: list[Any],
        lane: Any,
    ) -> None:
        """Sum in lanes side by side, then over the lanes."""
        schedule = self.schedule
        others, reduced = kinds
        pairs = [(x, n) for x, n in zip(loops, axes, strict=True) if _is(stage, n)]
        along = next(n for x, n in pairs if x is lane)
        schedule.reorder(*others, *[x for x in reduced if x is not lane], lane)
        rest = [(x, n) for x, n in pairs if x is not lane]
        lane = self._joined_lane(
            stage, [*[x for x, _ in rest], lane], [*[n for _, n in rest], along], along
        )
        steps = _extent(schedule, lane)
        width = min(self._width(steps), self._width(steps // 2))
        if not width:
            self._decompose_late(block, depth + len(others))
            return
        far, near = schedule.split(lane, [None, width])
        parts = schedule.rfactor(near, -1)
        nests = [parts]
        far, near = list(schedule.get_loops(parts))[-2:]
        if steps % width:
            schedule.annotate(far, _PARTITION, 1)
        schedule.vectorize(near)
        if steps % width == 0:
            self._decompose_late(parts, depth + len(others))
        if self.knobs["tree"] and width >= 2 * _LEAST_VECTOR:
            near = list(schedule.get_loops(block))[-1]
            _, lanes = schedule.split(near, [width // _LEAST_VECTOR, _LEAST_VECTOR])
            quarters = schedule.rfactor(lanes, -1)
            nests.append(quarters)
            far, lanes = list(schedule.get_loops(quarters))[-2:]
            schedule.unroll(far)
            schedule.vectorize(lanes)
            self._decompose_late(quarters, depth + len(others))
        schedule.unroll(list(schedule.get_loops(block))[-1])
        if depth:
            schedule.merge(*(list(schedule.get_loops(b))[depth - 1] for b in [*nests, block]))

    def _decompose_late(self, block: Any, at: int) -> None:
        """Set the start values in a loop of their own, before the loop at a depth."""

        def act() -> None:
            self.schedule.decompose_reduction(block, list(self.schedule.get_loops(block))[at])

        self.late.append(act)

    def _split_few(self, reduced: list[Any]) -> tuple[list[Any], list[Any]]:
        """Some steps of the innermost loop taken out of it, to be done at once."""
        steps = _extent(self.schedule, reduced[-1])
        few = divisor_up_to(steps, self.knobs["stream"])
        far, near = self.schedule.split(reduced[-1], [steps // few, few])
        return [*reduced[:-1], far], [near]

    def _unroll_few(self, loops: list[Any]) -> None:
        total = 1
        for loop in reversed(loops):
            total *= _extent(self.schedule, loop)
            if total > _FEW_STEPS:
                break
            self.schedule.unroll(loop)

    def _width(self, steps: int) -> int:
        """Lanes side by side, at most the knob's number of registers; 0 is none."""
        return vector_width(steps, self.lanes * self.knobs["vectors"])

    def _split_vector(self, lane: Any, *, guarded: bool = False) -> tuple[Any, Any]:
        """A loop over vectors, or None, and the loop over what is in one, or None."""
        steps, width = _extent(self.schedule, lane), self._width(_extent(self.schedule, lane))
        if not width:
            return lane, None
        if steps == width:
            return None, lane
        outer, near = self.schedule.split(lane, [None, width])
        if steps % width or guarded:
            self.schedule.annotate(outer, _PARTITION, 1)
        return outer, near

    def _vectorise(self, lane: Any, *, guarded: bool = False) -> None:
        _, near = self._split_vector(lane, guarded=guarded)
        if near is not None:
            self.schedule.vectorize(near)


def _is(stage: Stage, axis: int | None) -> bool:
    """Whether an axis is reduced over."""
    return axis is not None and stage.axes[axis].reduced


def _extent(schedule: Any, loop: Any) -> int:
    steps = names.known_int(schedule.get(loop).extent)
    if steps is None:
        raise ValueError("a loop's extent is not known")
    return steps


def _covers(schedule: Any, stage: Stage, loop: Any, axis: int, *, at_least: bool = False) -> bool:
    """Whether a loop runs over the whole of an axis (or over more, where it is fused)."""
    steps, whole = _extent(schedule, loop), stage.axes[axis].extent
    return steps >= whole if at_least else steps == whole


def _axes_of(schedule: Any, block: Any, loops: Sequence[Any]) -> list[int | None]:
    """For each loop the one axis of the block that it moves."""
    import tvm
    import tvm_ffi

    if not loops:
        return []
    variables = [schedule.get(loop).loop_var for loop in loops]
    node = schedule.get(list(schedule.get_loops(block))[-1]).body
    found: list[list[int]] = [[] for _ in loops]
    for number, value in enumerate(node.iter_values):

        def look(var: Any, number: int = number) -> None:
            for at, known in enumerate(variables):
                if var.same_as(known) and number not in found[at]:
                    found[at].append(number)

        tvm_ffi.structural_walk(value, (tvm.ir.Var, look))
    return [max(axes) if axes else None for axes in found]
