"""Skip the steps of a sum that only multiply padding.

A convolution sums over the padded copy of its input, and near the border some of its weights meet
nothing but zeros there: of a kernel of 3 with padding 1, a third of those of the first row. Where a
whole register tile meets zeros only, the step of the loop over such weights is left out, for the
price of a comparison. On small maps, and where weights are far apart (dilation), much is left out:
of 3 by 3 weights with dilation 12 on a map of 33 by 33, 0.43 of all products.

As in `spaces.lowering.idle_taps`, weights are taken for finite: 0 times infinity is left out too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from spaces.ir import rewrite, tvm_compat
from spaces.passes.tile_marks import Loops, each_block, reach

_SERIAL = 0
_LEAST_SHARE = 0.05
"""Of a padded dimension that has to be zeros: with less there is little to leave out."""
_LEAST_PRODUCTS = 2048
"""Of a step: with less the comparison costs too much."""


@dataclass(frozen=True, slots=True)
class _Padded:
    """A tensor that is zero but for a box in it.

    Attributes:
        inside: by dimension, where the box begins, and where it ends; only of dimensions with
            enough zeros.
    """

    tensor: Any
    inside: dict[int, tuple[int, int]]


def without_idle_steps(function: Any) -> Any:
    """A scheduled PrimFunc that computes the same, with comparisons around steps of sums that may
    read nothing but zeros of a padded tensor."""
    padded = [
        found for b in tvm_compat.sblocks(function) if (found := _match_padded(b)) is not None
    ]
    if not padded:
        return function
    import tvm
    from tvm.sym import Analyzer
    from tvm_ffi import structural_mutate

    analyzer = Analyzer()

    def loop(node: Any, mutator: Any) -> Any:
        rewrite.bind_loop(analyzer, node)
        conditions = _conditions(node, padded, analyzer)
        changed = mutator.default_mutate(node)
        if not conditions:
            return changed
        guarded = tvm.tirx.IfThenElse(rewrite.conjunction(conditions), changed.body, None)
        return rewrite.copy_loop(changed, guarded)

    body = structural_mutate(function.body, [(tvm.tirx.For, loop)])
    return function if body.same_as(function.body) else function.with_body(body)


def _match_padded(block: Any) -> _Padded | None:
    """The tensor that a block pads with zeros; None where it does something else."""
    from tvm import tirx

    store = block.body
    if not isinstance(store, tirx.BufferStore):
        return None
    axes = [axis.var for axis in block.iter_vars]
    places = [next((n for n, v in enumerate(axes) if v.same_as(i)), None) for i in store.indices]
    condition = _condition_of_zeros(store.value)
    if condition is None or None in places:
        return None
    bounds: dict[int, list[int | None]] = {}
    for part in rewrite.conjuncts(condition):
        for dim, index in enumerate(store.indices):
            low, high = _bound(part, index)
            known = bounds.setdefault(dim, [None, None])
            bounds[dim] = [known[0] if low is None else low, known[1] if high is None else high]
    inside = {}
    for dim, (low, high) in bounds.items():
        size = tvm_compat.as_int(store.buffer.shape[dim])
        if size is None:
            continue
        first, end = low or 0, size if high is None else high
        if first + size - end >= _LEAST_SHARE * size:
            inside[dim] = (first, end)
    return _Padded(store.buffer, inside) if inside else None


def _condition_of_zeros(value: Any) -> Any:
    """The condition without which a value is zero; None where it has none."""
    from tvm.ir import Call, Op

    named = isinstance(value, Call) and isinstance(value.op, Op)
    if not named or str(value.op.name) != tvm_compat.IF_THEN_ELSE:
        return None
    condition, _, other = value.args
    return condition if getattr(other, "value", None) == 0 else None


def _bound(condition: Any, index: Any) -> tuple[int | None, int | None]:
    """The least value of an index with a condition, and the first that is too large; None where
    the condition says nothing of it."""
    from tvm import tirx

    if not isinstance(condition, tirx.LE | tirx.LT):
        return None, None
    strict = isinstance(condition, tirx.LT)
    if condition.b.same_as(index) and (low := tvm_compat.as_int(condition.a)) is not None:
        return low + strict, None
    if condition.a.same_as(index) and (high := tvm_compat.as_int(condition.b)) is not None:
        return None, high + (not strict)
    return None, None


def _conditions(loop: Any, padded: Sequence[_Padded], analyzer: Any) -> list[Any]:
    """What must hold for a step of a loop to multiply anything but zeros; empty where that always
    holds, or the loop is no such loop."""
    if int(loop.kind) != _SERIAL:
        return []
    blocks: list[tuple[Any, Loops]] = []

    def look(realize: Any, loops: Loops) -> Any:
        blocks.append((realize, [*loops]))
        return realize

    each_block(loop.body, look)
    if len(blocks) != 1:
        return []
    realize, loops = blocks[0]
    load = _find_padded_factor(realize.block.body, padded)
    products = prod(tvm_compat.as_int(extent) or 1 for _, extent in loops)
    if load is None or not _is_summed(loop.loop_var, realize) or products < _LEAST_PRODUCTS:
        return []
    inside = next(p.inside for p in padded if p.tensor.same_as(load.source))
    conditions: list[Any] = []
    for dim, (first, end) in inside.items():
        index = rewrite.place_in_loops(realize, load.indices[dim])
        if not rewrite.uses(index, [loop.loop_var]):
            continue
        if (ends := reach(index, loops, analyzer)) is None:
            continue
        low, high = (rewrite.constant(number, index) for number in (first, end))
        conditions += [c for c in (ends[1] >= low, ends[0] < high) if not analyzer.can_prove(c)]
    return conditions


def _find_padded_factor(store: Any, padded: Sequence[_Padded]) -> Any:
    """The load of a padded tensor that a step multiplies something with, and adds to what it
    stores; None where it does something else."""
    from tvm.ir import TensorLoad

    product, tensors = rewrite.find_product(store), [one.tensor for one in padded]
    if product is None:
        return None
    factors = map(rewrite.uncast, (product.a, product.b))
    loads = [factor for factor in factors if isinstance(factor, TensorLoad)]
    return next((load for load in loads if rewrite.is_among(load.source, tensors)), None)


def _is_summed(variable: Any, realize: Any) -> bool:
    """Whether a loop goes through reduction axes of a block alone."""
    axes = zip(realize.block.iter_vars, realize.iter_values, strict=True)
    kinds = {int(a.iter_type) for a, value in axes if rewrite.uses(value, [variable])}
    return kinds == {tvm_compat.REDUCED}
