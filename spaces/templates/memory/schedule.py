"""Schedule a memory-bound program as its knobs say."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from spaces.ir import tvm_compat
from spaces.ir.guard import Unsuitable
from spaces.ir.symbolic import NO_VALUES
from spaces.passes.prefetch import AHEAD
from spaces.templates.base import Knobs
from spaces.templates.memory import steps as count
from spaces.templates.memory.inline import inline
from spaces.templates.memory.loops import Loops, axes_of
from spaces.templates.memory.nests import Nest, extent, nest_of, nests_of, parts_of
from spaces.templates.memory.stages import Stage, stage_of, stages_of

_FEW_STEPS = 16


def write_nests(
    schedule: Any, knobs: Knobs, lanes: int, values: Mapping[str, int] = NO_VALUES
) -> None:
    """Schedule a program whose blocks are all plain stages.

    Args:
        lanes: elements of a vector register, of the program's widest elements.
        values: sizes of symbolic dimensions in the shape for which the schedule is chosen; it is
            correct for every shape.

    Raises:
        Exception: whatever TVM throws where a primitive does not apply.
    """
    inline(schedule, keep=bool(knobs["keep"]), values=values)
    stages = stages_of(schedule, values)
    if stages is None:
        raise Unsuitable("a block is no plain stage")
    blocks = tvm_compat.stage_blocks(schedule)
    for nest in nests_of(stages):
        members = [blocks[n] for n in nest.stages]
        writer = _Writer(schedule, knobs, lanes, values)
        if values and (len(members) > 1 or stages[nest.stages[0]].reduces):
            writer.write_apart(members, parts_of(nest, stages))
        else:
            writer.write(members, nest)


@dataclass
class _Writer:
    """Schedules one nest.

    `late` holds steps that are done at the end, as they would be in the way of others. `reorders`
    tells whether rows may be put into another order.
    """

    schedule: Any
    knobs: Knobs
    lanes: int
    values: Mapping[str, int]
    reorders: bool = False
    late: list[Callable[[], None]] = field(default_factory=list)

    @property
    def loops(self) -> Loops:
        """The loops of the schedule."""
        return Loops(self.schedule, self.values)

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
        if depth and self.knobs["ahead"]:
            self.schedule.annotate(self._rows(last, depth)[-1], AHEAD, self.knobs["ahead"])
        self._do_late()

    def write_apart(self, blocks: Sequence[Any], nests: Sequence[Nest]) -> None:
        """Schedule each block on its own, then merge their rows where possible.

        Moving a block to its consumer, as `write` does, would have TVM work out how much of it is
        read, which it overestimates where that depends on a symbolic dimension. The start values of
        a ragged sum must be set before TVM looks at the sum again, and its rows be parallel before
        that. So in a nest with two such sums each block gets parallel rows of its own.
        """
        ragged = sum(self._has_ragged_sum(self._stage(block)) for block in blocks)
        parallel, depth = self.knobs["fused"] > 0, 0
        if len(blocks) == 1 and self._split_off_parts(blocks[0]):
            nests = [nest_of(self._stage(blocks[0]))]
        joined = ragged < 2 or not parallel
        self.reorders = joined and parallel
        for block, nest in zip(blocks, nests, strict=True):
            depth, _ = self._arrange(block, nest)
            self._finish(block, depth, None)
            if depth and parallel and not joined:
                self.schedule.parallel(self._rows(block, depth)[0])
            if not (joined and parallel):
                self._do_late()
        if depth and joined:
            if len(blocks) > 1:
                self.schedule.merge(*(self._rows(block, depth)[-1] for block in blocks))
            if parallel:
                self.schedule.parallel(self._rows(blocks[-1], depth)[0])
        self._do_late()

    def _has_ragged_sum(self, stage: Stage) -> bool:
        """Whether a sum over a symbolic axis may be done several steps at once."""
        ragged = any(axis.reduced and axis.symbolic for axis in stage.axes)
        return ragged and (self.knobs["vectors"] > 0 or self.knobs["stream"] > 0)

    def _do_late(self) -> None:
        for action in self.late:
            action()
        self.late.clear()

    def _rows(self, block: Any, depth: int) -> list[Any]:
        return list(self.schedule.get_loops(block))[:depth]

    def _stage(self, block: Any) -> Stage:
        parameters = list(self.schedule.mod["main"].params)
        stage = stage_of(self.schedule.get(block), parameters, [], self.values)
        if stage is None:
            raise Unsuitable("a block is no plain stage")
        return stage

    def _split_off_parts(self, block: Any) -> bool:
        """Sum parts on their own first, for several cores to share; return whether it did."""
        stage = self._stage(block)
        reduced = [n for n, axis in enumerate(stage.axes) if axis.reduced and not axis.symbolic]
        if self.knobs["parts"] < 2 or not reduced:
            return False
        axis = max(reduced, key=lambda n: (stage.axes[n].extent, -n))
        parts = count.divisor_up_to(stage.axes[axis].extent, self.knobs["parts"])
        if parts < 2:
            return False
        loops = list(self.schedule.get_loops(block))
        loop = loops[axes_of(self.schedule, block, loops).index(axis)]
        outer, _ = self.schedule.split(loop, [parts, stage.axes[axis].extent // parts])
        partial = self.schedule.rfactor(outer, 0)
        _Writer(self.schedule, {**self.knobs, "parts": 1}, self.lanes, self.values).write(
            [partial], nest_of(self._stage(partial))
        )
        return True

    def _arrange(self, block: Any, nest: Nest) -> tuple[int, list[Any]]:
        """Move rows outermost and fuse some; return the number of row loops and the other loops."""
        schedule, stage = self.schedule, self._stage(block)
        found = list(schedule.get_loops(block))
        if not found:
            return 0, []
        places = axes_of(schedule, block, found)
        if sorted(n for n in places if n is not None) != list(range(len(stage.axes))):
            raise Unsuitable("a loop moves no axis, or more than one")
        loops = {n: loop for n, loop in zip(places, found, strict=True) if n is not None}
        rows = [loops[n] for n in nest.rows]
        special = {*nest.rows, *nest.lane, nest.across}
        inner = [loop for n, loop in loops.items() if n not in special]
        across = [] if nest.across is None else [loops[nest.across]]
        lane = [loops[n] for n in nest.lane]
        schedule.reorder(*rows, *across, *inner, *lane)
        if nest.across is not None:
            axis = stage.axes[nest.across]
            side = count.tile_of(axis.extent, self.knobs["side"], is_symbolic=axis.symbolic)
            outer, near = schedule.split(across[0], [None, side])
            rows.append(outer)
            inner.append(near)
        if lane:
            whole = schedule.fuse(*lane) if len(lane) > 1 else lane[0]
            size = extent(stage, nest.lane)
            ragged = any(stage.axes[n].symbolic for n in nest.lane)
            tile = count.tile_of(size, self.knobs["tile"], is_symbolic=ragged)
            if tile < size:
                outer, whole = schedule.split(whole, [None, tile])
                rows.append(outer)
            inner.append(whole)
        # Rows of one step are fused with the outermost.
        rows.sort(key=lambda loop: not self.loops.is_single(loop))
        if not rows:
            return 0, inner
        single = sum(self.loops.is_single(loop) for loop in rows)
        fused = min(max(1, self.knobs["fused"]) + single, len(rows))
        if self.reorders and any(map(self.loops.is_symbolic, rows[:fused])):
            rows, most = self.loops.analysable(rows)
            fused = min(fused, most)
        schedule.reorder(*rows, *inner)
        if fused > 1:
            schedule.fuse(*rows[:fused])
        return len(rows) - fused + 1, inner

    def _finish(self, block: Any, depth: int, inner: list[Any] | None) -> None:
        """Order, vectorise and unroll the loops inside the rows."""
        stage = self._stage(block)
        loops = list(self.schedule.get_loops(block))[depth:] if inner is None else inner
        axes = axes_of(self.schedule, block, loops)
        along = stage.contiguous()
        if stage.reduces:
            self._finish_reduction(block, depth, stage, loops, axes, along)
        elif loops:
            lane = self._join_lane(stage, loops, axes, along)
            if lane is not None and along is not None and stage.vectors_along(along):
                whole = self.loops.covers(lane, stage.axes[along], at_least=True)
                self._vectorise(lane, along in stage.guarded, whole)
        elif depth:
            # `rfactor` wants loops between a row and each block in it. A trace forgets loops that
            # no primitive is applied to.
            self.schedule.unroll(self.schedule.add_unit_loop(block))

    def _scatter(self, near: Any, lane: Any) -> None:
        """Read vectors across the lane, and write their elements one by one."""
        self.schedule.reorder(lane, near)
        if self.loops.is_guarded(lane):
            self.schedule.annotate(lane, tvm_compat.PARTITION_HINT, 1)
        self._vectorise(near)

    def _join_lane(
        self, stage: Stage, loops: list[Any], axes: list[int | None], along: int | None
    ) -> Any:
        """Move the loop along an axis innermost and fuse it with the loops that allow it."""
        if along is None or along not in axes:
            return None
        at = axes.index(along)
        lane, near = loops.pop(at), along
        axes.pop(at)
        self.schedule.reorder(*loops, lane)
        while loops:
            outer = axes[-1]
            whole = outer is not None and self.loops.covers(loops[-1], stage.axes[outer])
            if not whole or outer is None or not stage.follows(outer, near):
                break
            if not self.loops.covers(lane, stage.axes[near], at_least=near != along):
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
        self._decompose_late(block, first, first=self._has_ragged_sum(stage))

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
        """Sum in the lanes of a vector, then over the lanes."""
        schedule = self.schedule
        others, reduced = kinds
        pairs = [(x, n) for x, n in zip(loops, axes, strict=True) if _is(stage, n)]
        along = next(n for x, n in pairs if x is lane)
        schedule.reorder(*others, *[x for x in reduced if x is not lane], lane)
        beside = [(x, n) for x, n in pairs if x is not lane]
        lane = self._join_lane(
            stage, [*[x for x, _ in beside], lane], [*[n for _, n in beside], along], along
        )
        steps, ragged = self.loops.extent(lane), self.loops.is_symbolic(lane)
        width = min(self._width(lane), self._width(lane, steps // 2))
        if not width:
            self._decompose_late(block, depth + len(others))
            return
        far, near = schedule.split(lane, [None, width])
        parts = schedule.rfactor(near, -1)
        nests = [parts]
        far, near = list(schedule.get_loops(parts))[-2:]
        if ragged or steps % width:
            schedule.annotate(far, tvm_compat.PARTITION_HINT, 1)
        schedule.vectorize(near)
        if ragged or steps % width == 0:
            # Few steps would leave lanes without a start value, were it not set ahead.
            self._decompose_late(parts, depth + len(others), first=ragged)
        if self.knobs["tree"] and width >= 2 * count.LEAST_VECTOR:
            near = list(schedule.get_loops(block))[-1]
            _, lanes = schedule.split(near, [width // count.LEAST_VECTOR, count.LEAST_VECTOR])
            quarters = schedule.rfactor(lanes, -1)
            nests.append(quarters)
            far, lanes = list(schedule.get_loops(quarters))[-2:]
            schedule.unroll(far)
            schedule.vectorize(lanes)
            self._decompose_late(quarters, depth + len(others))
        schedule.unroll(list(schedule.get_loops(block))[-1])
        if depth:
            schedule.merge(*(list(schedule.get_loops(b))[depth - 1] for b in [*nests, block]))

    def _decompose_late(self, block: Any, at: int, *, first: bool = False) -> None:
        """Set the start values in a loop of their own at the end, before the loop at depth `at`."""

        def act() -> None:
            self.schedule.decompose_reduction(block, list(self.schedule.get_loops(block))[at])

        self.late.insert(0 if first else len(self.late), act)

    def _split_few(self, reduced: list[Any]) -> tuple[list[Any], list[Any]]:
        """Split off steps of the innermost loop that are done at once."""
        steps, ragged = self.loops.extent(reduced[-1]), self.loops.is_symbolic(reduced[-1])
        few = count.tile_of(steps, self.knobs["stream"], is_symbolic=ragged)
        far, near = self.schedule.split(reduced[-1], [None if ragged else steps // few, few])
        if ragged:
            self.schedule.annotate(far, tvm_compat.PARTITION_HINT, 1)
        return [*reduced[:-1], far], [near]

    def _unroll_few(self, loops: list[Any]) -> None:
        total = 1
        for loop in reversed(loops):
            total *= self.loops.extent(loop)
            if total > _FEW_STEPS or self.loops.is_symbolic(loop):
                break
            self.schedule.unroll(loop)

    def _width(self, loop: Any, steps: int | None = None) -> int:
        """Lanes of a vector, at most the knob's number of registers; 0 for no vector."""
        most = self.lanes * self.knobs["vectors"]
        if self.loops.is_symbolic(loop):
            return max(count.powers(most), default=0)
        whole = self.loops.extent(loop)
        steps = whole if steps is None else steps
        if self.values:
            # TVM 0.27 cannot split off the end of a loop of known steps here: it makes the loop's
            # variable narrower than the others, and then compares the two.
            return max((w for w in count.powers(most) if w <= steps and whole % w == 0), default=0)
        return count.vector_width(steps, most)

    def _split_vector(self, lane: Any, guarded: bool = False, whole: bool = True) -> Any:
        """Split a loop into one over vectors and one over a vector's lanes; either may be None.

        Args:
            guarded: whether conditions in its body depend on it.
            whole: whether it runs over all of its axis. Where conditions change in a tile is known
                at run time: to partition it makes slower code, and of many pieces none at all.
        """
        steps, width = self.loops.extent(lane), self._width(lane)
        if not width:
            return lane, None
        ragged = self.loops.is_symbolic(lane) or self.loops.is_guarded(lane)
        if guarded and self.values and not ragged:
            return lane, None  # its ends could not be split off; see `_width`
        if steps == width and not ragged:
            return None, lane
        outer, near = self.schedule.split(lane, [None, width])
        if ragged or (guarded and whole) or (steps % width and not guarded):
            self.schedule.annotate(outer, tvm_compat.PARTITION_HINT, 1)
        return outer, near

    def _vectorise(self, lane: Any, guarded: bool = False, whole: bool = True) -> None:
        _, near = self._split_vector(lane, guarded, whole)
        if near is not None:
            self.schedule.vectorize(near)


def _is(stage: Stage, axis: int | None) -> bool:
    """Whether an axis is a reduction axis."""
    return axis is not None and stage.axes[axis].reduced
