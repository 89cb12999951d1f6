"""Find the contraction in a tensor program, and the roles of its axes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any

from spaces.ir import rewrite, tvm_compat
from spaces.ir.affine import Index, read_index
from spaces.ir.guard import Unsuitable, refusals
from spaces.ir.schedules import new_schedule, task_module
from spaces.ir.symbolic import NO_VALUES, is_symbolic, value_of
from spaces.passes.dots.instructions import find_dot
from spaces.templates.contraction.roles import Roles, choose_groups, roles
from spaces.templates.contraction.shape import Axis, Contraction, Operand
from spaces.templates.contraction.weights import (
    count_packed_bits,
    is_constant,
    list_constants,
    list_panel_dims,
)
from tuner.task import Instance, Shapes, Task


@dataclass(frozen=True, slots=True)
class Stages:
    """Blocks of a schedule that was tidied up.

    Attributes:
        main: the contraction.
        before: for each operand the block that writes it, or None.
        last: the block of the epilogue that writes the result, or None where `main` does.
    """

    main: Any
    before: tuple[Any, Any]
    last: Any


@dataclass(frozen=True, slots=True)
class Match:
    """The contraction of a program, found once for all templates, which only read it.

    Attributes:
        function: the PrimFunc as it was given, which names its constant parameters.
        schedule: a schedule of its module, tidied up.
        product: whether the program was first brought into the form of a matrix product.
    """

    function: Any
    schedule: Any
    stages: Stages
    product: bool = False

    @property
    def main(self) -> Any:
        """The block of the contraction."""
        return self.schedule.get(self.stages.main)


def match_contraction(task: Task) -> Match | None:
    """The one contraction of a task's program; None unless it has one of a known form."""
    with refusals(f"the contraction of {task.name}"):
        module = task_module(task.module)
        schedule = new_schedule(module)
        stages = tidy(schedule)
        return None if stages is None else Match(module["main"], schedule, stages)
    return None


def tidy_stages(schedule: Any) -> Stages:
    """Tidy the schedule of a program that is known to have a contraction, as `tidy` does.

    Raises:
        Unsuitable: the contraction has no known form.
    """
    stages = tidy(schedule)
    if stages is None:
        raise Unsuitable("the program has no contraction of a known form")
    return stages


def tidy(schedule: Any) -> Stages | None:
    """Inline all blocks that can be inlined around the one contraction of a schedule.

    At most one stage before each operand, the contraction, and one epilogue remain. None where the
    program has another form, as one with two reductions or with several results.
    """
    blocks = tvm_compat.stage_blocks(schedule)
    main = [b for b in blocks if sums(schedule.get(b))]
    if len(main) != 1 or factors(schedule.get(main[0])) is None:
        return None
    last = inline_epilogue(schedule, main[0])
    if last is False or (last is not None and _is_result(schedule, main[0])):
        return None
    before = _inline_prologue(schedule, main[0])
    left = len(tvm_compat.stage_blocks(schedule))
    if left != 1 + (last is not None) + sum(b is not None for b in before):
        return None
    return Stages(main[0], before, last)


def _is_result(schedule: Any, main: Any) -> bool:
    """Whether a block writes a parameter of the program."""
    written = [region.source for region in schedule.get(main).writes]
    return any(w.same_as(p) for w in written for p in schedule.mod["main"].params)


def inline_epilogue(schedule: Any, main: Any) -> Any:
    """Inline all blocks but `main`, its producers and the last block after it, and return that one:
    None if no block follows `main`, False if several of these are last."""
    after = _descendants(schedule, main)
    ends = [b for b in after if not schedule.get_consumers(b)]
    if not after:
        return None
    if len(ends) != 1:
        return False
    kept = (main, ends[0], *ancestors(schedule, main))
    for block in tvm_compat.stage_blocks(schedule):
        found = schedule.get(block)
        if not any(found.same_as(schedule.get(k)) for k in kept):
            schedule.compute_inline(block)
    return ends[0]


def _descendants(schedule: Any, main: Any) -> list[Any]:
    """The blocks that need `main`, each once."""
    found: list[Any] = []
    fresh = list(schedule.get_consumers(main))
    while fresh:
        block = fresh.pop(0)
        if not any(schedule.get(block).same_as(schedule.get(f)) for f in found):
            found.append(block)
            fresh += schedule.get_consumers(block)
    return found


def ancestors(schedule: Any, main: Any) -> list[Any]:
    """The blocks that `main` needs, nearest first."""
    found: list[Any] = []
    fresh = list(schedule.get_producers(main))
    while fresh:
        found += fresh
        fresh = [p for block in fresh for p in schedule.get_producers(block)]
    return found


def _inline_prologue(schedule: Any, main: Any) -> tuple[Any, Any]:
    """The stage that writes each operand, after inlining the stages before it and plain copies."""
    before: list[Any] = []
    for operand in range(2):
        stage = producer_of(schedule, main, operand)
        while stage is not None:
            for earlier in ancestors(schedule, stage):
                schedule.compute_inline(earlier)
            if not _plain_copy(schedule.get(stage)):
                break
            schedule.compute_inline(stage)
            stage = producer_of(schedule, main, operand)
        before.append(stage)
    return before[0], before[1]


def producer_of(schedule: Any, main: Any, operand: int) -> Any:
    """The block that writes an operand of a contraction, or None."""
    wanted = schedule.get(main).reads[operand].source
    for block in schedule.get_producers(main):
        if any(w.source.same_as(wanted) for w in schedule.get(block).writes):
            return block
    return None


def sums(block: Any) -> bool:
    """Whether a block has a reduction axis."""
    return any(int(v.iter_type) != tvm_compat.SPATIAL for v in block.iter_vars)


def _plain_copy(block: Any) -> bool:
    """Whether a block only copies, at most in another order of dimensions."""
    from tvm.ir import TensorLoad

    value = getattr(block.body, "value", None)
    return isinstance(value, TensorLoad) and all(
        type(e).__name__ in ("Var", "IntImm") for e in value.indices
    )


def describe(match: Match, values: Mapping[str, int] = NO_VALUES) -> list[Contraction]:
    """The ways to see a contraction as rows and columns; empty where there are none.

    Args:
        values: sizes of symbolic dimensions, the shape for which roles are chosen.
    """
    axes = read_axes(match, values)
    if axes is None:
        return []
    operands = read_operands(match, values)
    return [view(match, axes, operands, chosen, values) for chosen in roles(axes, operands)]


def read_axes(match: Match, values: Mapping[str, int] = NO_VALUES) -> tuple[Axis, ...] | None:
    """The axes of a contraction; None where their extents or their kinds are not known.

    Args:
        values: as for `describe`.
    """
    block = match.main
    loads = factors(block)
    extents = _extents(block, values)
    kinds = [int(v.iter_type) for v in block.iter_vars]
    if loads is None or None in extents or set(kinds) - {tvm_compat.SPATIAL, tvm_compat.REDUCED}:
        return None
    numbers = {v.var: n for n, v in enumerate(block.iter_vars)}
    fixed = find_fixed(block)
    out = [read_index(e, numbers, fixed) for e in block.body.indices]
    indexes = [[read_index(e, numbers, fixed) for e in load.indices] for load in loads]
    axes = tuple(
        Axis(
            extent=int(extent or 0),
            reduce=kind == tvm_compat.REDUCED,
            out_dim=_alone(number, out),
            dims=(_alone(number, indexes[0]), _alone(number, indexes[1])),
            used=(_uses(number, indexes[0]), _uses(number, indexes[1])),
            steps=(
                _step(number, indexes[0], loads[0], values),
                _step(number, indexes[1], loads[1], values),
            ),
            symbolic=is_symbolic(block.iter_vars[number].dom.extent),
        )
        for number, (extent, kind) in enumerate(zip(extents, kinds, strict=True))
    )
    if any(not a.reduce and not a.single and a.out_dim is None for a in axes):
        return None
    return axes


def read_operands(match: Match, values: Mapping[str, int]) -> tuple[Operand, Operand]:
    """The operands of a contraction, in the order in which it reads them.

    Args:
        values: as for `describe`.
    """
    constants = list_constants(match.function)
    loads = factors(match.main) or []
    stages = [before and match.schedule.get(before) for before in match.stages.before]
    packed = [stage and count_packed_bits(stage, constants) for stage in stages]
    first, second = (
        Operand(
            shape=tuple(value_of(d, values) or 0 for d in load.source.shape),
            bits=tvm_compat.element_bits(load.source.dtype),
            constant=bits is None and is_constant(load, stage, constants),
            staged=stage is not None,
            packed_bits=bits,
            panel_dims=() if bits is None else list_panel_dims(stage),
        )
        for load, stage, bits in zip(loads, stages, packed, strict=True)
    )
    return first, second


def view(
    match: Match,
    axes: tuple[Axis, ...],
    operands: tuple[Operand, Operand],
    chosen: Roles,
    values: Mapping[str, int],
) -> Contraction:
    """A contraction whose axes have some roles.

    Args:
        values: as for `describe`.
    """
    column, columns_of, rows, outer = chosen
    body, loads = match.main.body, factors(match.main) or []
    if operands[columns_of].packed_bits is not None:
        dim = axes[column].dims[columns_of]
        if dim not in operands[columns_of].panel_dims:  # it is a stage like any other
            first, second = (replace(operand, packed_bits=None) for operand in operands)
            operands = first, second
    expressions = [*body.indices, *(i for load in loads for i in load.indices)]
    plain = all(type(e).__name__ == "Var" for e in expressions)
    spread = not axes[column].used[1 - columns_of]
    dot = find_dot(match.main) if spread else None
    return Contraction(
        axes=axes,
        operands=operands,
        column=column,
        rows=rows,
        outer=outer,
        columns_of=columns_of,
        plain=plain,
        out_dims=len(body.indices),
        out_bits=tvm_compat.element_bits(body.buffer.dtype),
        epilogue=match.stages.last is not None,
        epilogue_keeps_shape=keeps_shape(match.schedule, match.stages, values),
        product=match.product,
        groups=choose_groups(dot, axes, 1 - columns_of, plain=plain),
    )


def _extents(block: Any, values: Mapping[str, int]) -> list[int | None]:
    """Extents of a block's axes for one shape, in order; None is unknown."""
    return [value_of(v.dom.extent, values) for v in block.iter_vars]


def extents_of_shapes(
    match: Match, shapes: Shapes
) -> tuple[dict[Instance, tuple[int, ...]], dict[str, int]]:
    """Extents of the contraction's axes for each shape, and sizes of the largest shape."""
    extents = {
        instance: tuple(n or 0 for n in _extents(match.main, dict(instance)))
        for instance, _ in shapes
    }
    largest = max(extents, key=lambda instance: prod(extents[instance]), default=())
    return extents, dict(largest)


def find_fixed(block: Any) -> frozenset[int]:
    """Numbers of the axes that have one step, whatever the shape."""
    extents = [tvm_compat.as_int(v.dom.extent) for v in block.iter_vars]
    return frozenset(n for n, extent in enumerate(extents) if extent == 1)


def keeps_shape(schedule: Any, stages: Stages, values: Mapping[str, int] = NO_VALUES) -> bool:
    """Whether the epilogue goes through the result in the result's own order."""
    if stages.last is None:
        return True
    last, main = schedule.get(stages.last), schedule.get(stages.main)
    wanted = [value_of(d, values) for d in main.writes[0].source.shape]
    extents = [value_of(v.dom.extent, values) for v in last.iter_vars]
    numbers = {v.var: n for n, v in enumerate(last.iter_vars)}
    mine = [r for r in last.reads if r.source.same_as(main.writes[0].source)]
    if extents != wanted or len(mine) != 1 or len(last.writes) != 1:
        return False
    fixed = find_fixed(last)
    for region in (mine[0], last.writes[0]):
        index = [read_index(part.min, numbers, fixed) for part in region.region]
        if any(
            d not in fixed and (e.steps != {d: 1} or e.tangled or e.constant)
            for d, e in enumerate(index)
        ) or len(index) != len(wanted):
            return False
    return True


def factors(block: Any) -> list[Any] | None:
    """The two buffer loads whose product a block sums up, without casts around them."""
    from tvm.ir import TensorLoad

    product = rewrite.find_product(block.body)
    if product is None:
        return None
    loads = [rewrite.uncast(product.a), rewrite.uncast(product.b)]
    if not all(isinstance(load, TensorLoad) for load in loads):
        return None
    if loads[0].source.same_as(loads[1].source):
        return None
    order = [region.source for region in block.reads]

    def place(load: Any) -> int:
        return next(i for i, b in enumerate(order) if b.same_as(load.source))

    return sorted(loads, key=place)


def _alone(number: int, index: Sequence[Index]) -> int | None:
    """The dimension whose index is this variable alone, or None."""
    where = [d for d, e in enumerate(index) if number in e.uses]
    if len(where) != 1:
        return None
    found = index[where[0]]
    simple = found.steps == {number: 1} and not found.tangled and found.constant == 0
    return where[0] if simple else None


def _uses(number: int, index: Sequence[Index]) -> bool:
    return any(number in e.uses for e in index)


def _step(number: int, index: Sequence[Index], load: Any, values: Mapping[str, int]) -> int | None:
    """The stride of a variable in a buffer, in elements; None where it varies."""
    if any(number in e.tangled for e in index):
        return None
    sizes = [value_of(d, values) or 0 for d in load.source.shape]
    return sum(e.steps.get(number, 0) * prod(sizes[d + 1 :]) for d, e in enumerate(index))
