"""Reads a program bound by memory: which axes are items, which are places, how threads go through
them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from spaces.ir import rewrite, tvm_compat
from spaces.ir.guard import Unsuitable
from spaces.ir.symbolic import NO_VALUES, variables
from spaces.templates.gpu_memory.bodies import all_loads, flat_index, loads_of, read_body
from spaces.templates.gpu_memory.program import Group, Part, Program, Read, Walk
from spaces.templates.memory.inline import inline
from spaces.templates.memory.nests import align_axes
from spaces.templates.memory.stages import Stage, stages_of

_LEAST_SIDE = 8
"""The fewest elements of a side that are worth a tile."""


def read_program(schedule: Any, values: Mapping[str, int] = NO_VALUES) -> Program:
    """Inline stages in a fresh schedule of a program, and read what is left.

    Args:
        values: sizes of symbolic dimensions for which the structure is decided.

    Raises:
        Unsuitable: it is no program of rows, columns or single elements.
        Exception: whatever TVM throws on an odd program.
    """
    inline(schedule, keep=False, values=values)
    stages = stages_of(schedule, values)
    if not stages:
        raise Unsuitable("no plain stages")
    alike = align_axes(stages)
    items = _find_items(stages, alike)
    if kept := [n for n in range(len(stages) - 1) if _places(stages, alike, items, n)]:
        blocks = tvm_compat.stage_blocks(schedule)
        for number in kept:
            if stages[number].reduces:
                continue
            schedule.compute_inline(blocks[number])
        stages = stages_of(schedule, values) or []
        alike = align_axes(stages)
        items = _find_items(stages, alike)
    blocks = [schedule.get(block) for block in tvm_compat.stage_blocks(schedule)]
    return _Reader(stages, alike, items, blocks, [*schedule.mod["main"].params]).read()


def _find_items(stages: Sequence[Stage], alike: Sequence[Mapping[int, int]]) -> list[int]:
    """Axes of the last stage with a step for each result of every sum before it."""
    axes = stages[-1].axes
    sums = [n for n, stage in enumerate(stages[:-1]) if stage.reduces]
    shared = [n for n, a in enumerate(axes) if not a.reduced and not a.single]
    if not sums and not stages[-1].reduces:
        return []
    return [n for n in shared if all(n in alike[s].values() for s in sums)]


def _places(
    stages: Sequence[Stage], alike: Sequence[Mapping[int, int]], items: Sequence[int], number: int
) -> list[int]:
    """The axes of a stage that are not those of items."""
    axes, known = stages[number].axes, alike[number]
    return [
        n for n, a in enumerate(axes) if not (a.single or a.reduced) and known.get(n) not in items
    ]


class _Reader:
    """Reads a program."""

    def __init__(
        self,
        stages: Sequence[Stage],
        alike: Sequence[Mapping[int, int]],
        items: Sequence[int],
        blocks: Sequence[Any],
        parameters: Sequence[Any],
    ) -> None:
        self._stages, self._alike, self._items = stages, alike, items
        self._blocks, self._parameters = blocks, parameters
        self.kind = str(blocks[-1].iter_vars[0].var.ty.dtype) if blocks[-1].iter_vars else "int64"
        self._item_places: list[Any] = []
        self._lane_places: list[Any] = []
        self._numbers: list[tuple[Any, list[Any]]] = []
        self._walk = Walk.FLAT

    def read(self) -> Program:
        """The program.

        Raises:
            Unsuitable: its stages do not share items.
        """
        stages, last = self._stages, len(self._stages) - 1
        for number, stage in enumerate(stages[:-1]):
            if stage.output or _places(stages, self._alike, self._items, number):
                raise Unsuitable("stages share no items")
        walk, near = self._choose_walk()
        items = self._group(self._items, [near] if walk is Walk.COLUMNS else [], None)
        lanes = [self._group(self._lanes_of(n), [self._near(n)], n) for n in range(last + 1)]
        if walk is Walk.FLAT and (across := self._find_across(lanes[-1])) is not None:
            walk = Walk.TILES
            lanes = [self._group(self._lanes_of(last), [self._near(last), across], last)]
        if walk is not Walk.COLUMNS and not any(lanes):
            raise Unsuitable("there is nothing to go through")
        self._walk = walk
        along = (items[-1] if walk is Walk.COLUMNS else next(g for g in lanes if g)[-1]).place
        parts = [self._part(n, items, lanes[n], along) for n in range(last + 1)]
        return Program(walk, tuple(parts), items, along, self.kind)

    def _choose_walk(self) -> tuple[Walk, int | None]:
        """How threads go through it, and the item axis along which memory is read in order."""
        stages = self._stages
        sums = [n for n, stage in enumerate(stages) if stage.reduces]
        if not sums:
            return Walk.FLAT, None
        heaviest = max(sums, key=lambda n: stages[n].points)
        stage = stages[heaviest]
        for read in sorted(stage.reads, key=lambda access: -access.elements):
            again = stage.points > read.elements  # a window's elements are read several times
            for number, axis in enumerate(stage.axes):
                if read.steps[number] != 1 or axis.single or (axis.reduced and again):
                    continue
                if axis.reduced:
                    return Walk.ROWS, None
                found = self._alike[heaviest].get(number)
                if heaviest == len(stages) - 1:
                    found = number
                if found in self._items:
                    return Walk.COLUMNS, found
        return (Walk.COLUMNS, self._items[-1]) if self._items else (Walk.ROWS, None)

    def _find_across(self, lanes: tuple[Group, ...]) -> int | None:
        """The axis along which a large tensor is read in order that is not read along the last
        group; None where either is too short."""
        stage = self._stages[-1]
        near = lanes[-1].axes if lanes else ()
        for read in sorted(stage.reads, key=lambda access: -access.elements):
            if not near or read.steps[near[-1]] in (0, 1, None):
                continue
            for number, axis in enumerate(stage.axes):
                if read.steps[number] == 1 and number not in near:
                    sides = (axis.extent, stage.axes[near[-1]].extent)
                    is_free = number not in stage.guarded and min(sides) >= _LEAST_SIDE
                    return number if is_free else None
        return None

    def _lanes_of(self, number: int) -> list[int]:
        axes = self._stages[number].axes
        if number == len(self._stages) - 1:
            return [n for n, a in enumerate(axes) if not a.single and n not in self._items]
        return [n for n, a in enumerate(axes) if not a.single and a.reduced]

    def _near(self, number: int) -> int | None:
        """The axis along which a stage goes through memory in order, among its places."""
        stage, lanes = self._stages[number], self._lanes_of(number)
        accesses = [*stage.reads] if stage.reduces else [*stage.writes, *stage.reads]
        if stage.reduces:
            accesses.sort(key=lambda access: -access.elements)
        for access in accesses:
            for lane in reversed(lanes):
                if access.steps[lane] == 1:
                    return lane
        return lanes[-1] if lanes else None

    def _group(
        self, axes: Sequence[int], near: Sequence[int | None], number: int | None
    ) -> tuple[Group, ...]:
        """Groups of axes.

        Args:
            near: the innermost axes of the last groups, the last group's first.
            number: of the stage; None of items, whose axes are those of the last stage.
        """
        left, groups = sorted(axes), list[tuple[int, ...]]()
        while left:
            group = [next((axis for axis in near if axis is not None and axis in left), left[-1])]
            while (outer := max((a for a in left if a < group[0]), default=None)) is not None:
                if not self._follow(outer, group[0], number):
                    break
                group.insert(0, outer)
            groups.insert(0, tuple(group))
            left = [axis for axis in left if axis not in group]
        places = self._item_places if number is None else self._lane_places
        return tuple(
            Group(axes, self._place(places, len(groups) - 1 - n), self._extent(axes, number))
            for n, axes in enumerate(groups)
        )

    def _follow(self, outer: int, inner: int, number: int | None) -> bool:
        """Whether two axes can be gone through as one, in all stages that have them."""
        if number is not None:
            return _may_fuse(self._stages[number], outer, inner)
        last = len(self._stages) - 1
        for n, stage in enumerate(self._stages):
            mine = {theirs: axis for axis, theirs in self._alike[n].items()}
            if n == last:
                mine = {axis: axis for axis in self._items}
            if outer not in mine or inner not in mine:
                return False
            if not _may_fuse(stage, mine[outer], mine[inner]):
                return False
        return True

    def _place(self, known: list[Any], number: int) -> Any:
        """The variable of a group, by its number from the innermost on."""
        from tvm.tirx import Var

        name = "item" if known is self._item_places else "lane"
        while len(known) <= number:
            known.append(Var(f"{name}_{len(known)}", self.kind))
        return known[number]

    def _extent(self, axes: Sequence[int], number: int | None) -> Any:
        block = self._blocks[len(self._stages) - 1 if number is None else number]
        found: Any = None
        for axis in axes:
            extent = block.iter_vars[axis].dom.extent
            found = extent if found is None else found * extent
        return _simplify(found)

    def _part(
        self, number: int, items: tuple[Group, ...], lanes: tuple[Group, ...], along: Any
    ) -> Part:
        block, stage = self._blocks[number], self._stages[number]
        places = self._axis_places(number, items, lanes)
        axes = [
            (axis.var, places.get(n, rewrite.constant(0, axis.var)))
            for n, axis in enumerate(block.iter_vars)
        ]
        body = read_body(block, axes)
        index = _simplify(rewrite.substitute(flat_index(body.target, body.indices), axes))
        extents = tuple(group.extent for group in lanes)
        reads = [
            self._read(load, rewrite.conjunction(guards) if guards else None, extents, along)
            for load, guards in loads_of(body.value)
            if rewrite.is_among(load.source, self._parameters)
            and self._holds_for_vectors(guards, along)
        ]
        return Part(stage, lanes, body, index, tuple(reads))

    def _axis_places(
        self, number: int, items: tuple[Group, ...], lanes: tuple[Group, ...]
    ) -> dict[int, Any]:
        """For each axis of a stage its place. That of a group goes to the innermost of its axes:
        as all tensors are flat, the steps of the others are the same ones."""
        found = {group.axes[-1]: group.place for group in lanes}
        own = {theirs: axis for axis, theirs in self._alike[number].items()}
        if number == len(self._stages) - 1:
            own = {axis: axis for axis in self._items}
        found |= {own[g.axes[-1]]: g.place for g in items if g.axes[-1] in own}
        return found

    def _holds_for_vectors(self, guards: Sequence[Any], along: Any) -> bool:
        """Whether conditions hold for all elements of a vector or for none, and are such that a
        thread may ask before it reads."""
        if self._walk is Walk.TILES:  # whose vectors lie along one side and then along the other
            return not guards
        whole = all(not rewrite.is_among(along, variables(guard)) for guard in guards)
        return whole and not any(all_loads(guard) for guard in guards)

    def _read(self, load: Any, guard: Any, extents: tuple[Any, ...], along: Any) -> Read:
        import tvm
        from tvm_ffi import structural_equal

        index = _simplify(flat_index(load.source, load.indices))
        growth = rewrite.growth(tvm.sym.Analyzer(), index, along)
        own = [index, *extents, *([] if guard is None else [guard])]
        for number, (source, known) in enumerate(self._numbers):
            if load.source.same_as(source) and structural_equal(known, own):
                return Read(load, source, index, growth, number, guard)
        self._numbers.append((load.source, own))
        return Read(load, load.source, index, growth, len(self._numbers) - 1, guard)


def _may_fuse(stage: Stage, outer: int, inner: int) -> bool:
    return not stage.valued & {outer, inner} and stage.follows(outer, inner)


def _simplify(expression: Any) -> Any:
    import tvm

    return tvm.sym.Analyzer().simplify(expression)
