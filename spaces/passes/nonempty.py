"""Assume sizes above zero: drop the predicates of symbolic programs that only empty tensors need.

Where a size may be zero, TVM cannot prove that a region begins at zero, or that a loop runs at all,
and tests that again for each element that is copied. Where every result is empty if a size is zero,
nothing has to be computed then. So one test around the whole program suffices, and the predicates
that always hold for sizes above zero are left out within it.
"""

from __future__ import annotations

from typing import Any

from spaces.ir import rewrite, tvm_compat

_Loops = list[tuple[Any, Any]]
"""Variables and extents of the loops around something, in order."""


def for_positive_sizes(function: Any) -> Any:
    """A scheduled PrimFunc that returns at once where results are empty, and otherwise computes the
    same without the predicates that always hold for sizes above zero."""
    import tvm
    from tvm.sym import Analyzer
    from tvm_ffi import structural_mutate

    sizes = _symbolic_sizes(function)
    if not sizes or not isinstance(function.body, tvm.s_tir.SBlockRealize):
        return function
    results = _results(function)
    if not results or not all(_has_all(result, sizes) for result in results):
        return function
    analyzer = Analyzer()
    for size in sizes:
        limit = rewrite.constant(tvm_compat.LARGEST_INDEX, size)
        analyzer.bind(size, tvm.ir.Range.from_min_extent(rewrite.constant(1, size), limit))

    loops: list[tuple[Any, Any]] = []

    def loop(node: Any, mutator: Any) -> Any:
        extent = analyzer.simplify(node.extent)
        loops.append((node.loop_var, extent))
        analyzer.bind(node.loop_var, tvm.ir.Range.from_min_extent(node.min, extent))
        body = mutator.mutate(node.body)
        loops.pop()
        return rewrite.copy_loop(node, body, extent=extent)

    def realize(node: Any, mutator: Any) -> Any:
        values = [analyzer.simplify(value) for value in node.iter_values]
        predicate = _drop_held(analyzer, loops, node.predicate)
        return tvm.s_tir.SBlockRealize(values, predicate, mutator.mutate(node.block))

    root = function.body
    body = structural_mutate(
        root.block.body, [(tvm.tirx.For, loop), (tvm.s_tir.SBlockRealize, realize)]
    )
    above_zero = rewrite.conjunction([size > rewrite.constant(0, size) for size in sizes])
    return function.with_body(_with_body(root, tvm.tirx.IfThenElse(above_zero, body, None)))


def _drop_held(analyzer: Any, loops: _Loops, condition: Any) -> Any:
    """A predicate without the conjuncts that always hold."""
    parts = rewrite.conjuncts(condition)
    return rewrite.conjunction([part for part in parts if not _holds(analyzer, loops, part)])


def _holds(analyzer: Any, loops: _Loops, condition: Any) -> bool:
    import tvm

    if isinstance(condition, tvm.tirx.Or):
        return any(_holds(analyzer, loops, side) for side in (condition.a, condition.b))
    if isinstance(condition, tvm.tirx.LT):
        return _is_below(analyzer, loops, condition.a - condition.b)
    if isinstance(condition, tvm.tirx.LE):
        one = rewrite.constant(1, condition.a)
        return _is_below(analyzer, loops, condition.a - condition.b - one)
    return bool(analyzer.can_prove(condition))


def _is_below(analyzer: Any, loops: _Loops, difference: Any) -> bool:
    """Whether an expression is below zero, also in the last step of loops that it grows with, and
    for the largest remainder of a division: TVM ignores the last step of a symbolic extent."""
    difference, remainders = _with_named_remainders(_decide(analyzer, difference))
    for var, extent in [*loops, *remainders]:
        if (rewrite.growth(analyzer, difference, var) or 0) > 0:
            last = extent - rewrite.constant(1, var)
            difference = rewrite.substitute(difference, [(var, last)])
    return bool(analyzer.can_prove(difference < rewrite.constant(0, difference)))


def _decide(analyzer: Any, expression: Any) -> Any:
    """An expression without those minima and maxima whose choice can be proved."""
    import tvm
    from tvm_ffi import structural_mutate

    def choice(node: Any, mutator: Any) -> Any:
        node = mutator.default_mutate(node)
        smaller = isinstance(node, tvm.tirx.Min)
        if analyzer.can_prove(node.a <= node.b):
            return node.a if smaller else node.b
        if analyzer.can_prove(node.b <= node.a):
            return node.b if smaller else node.a
        return node

    return structural_mutate(expression, [(tvm.tirx.Min, choice), (tvm.tirx.Max, choice)])


def _with_named_remainders(expression: Any) -> tuple[Any, _Loops]:
    """An expression with a variable in place of each remainder of a division, and these variables
    with their divisors."""
    import tvm
    from tvm_ffi import structural_equal, structural_mutate

    remainders: _Loops = []
    copies: list[Any] = []

    def remainder(node: Any, _mutator: Any) -> Any:
        for (var, _), known in zip(remainders, copies, strict=True):
            if structural_equal(node, known, map_free_vars=False):
                return var
        copies.append(node)
        remainders.append((tvm.tirx.Var("remainder", node.ty), node.b))
        return remainders[-1][0]

    return structural_mutate(expression, [(tvm.tirx.FloorMod, remainder)]), remainders


def _symbolic_sizes(function: Any) -> list[Any]:
    """Variables in the shapes of the parameters."""
    import tvm
    import tvm_ffi

    found: list[Any] = []

    def look(var: Any) -> None:
        if not rewrite.is_among(var, found):
            found.append(var)

    for param in function.params:
        for dim in tvm_compat.param_dims(param) or ():
            tvm_ffi.structural_walk(dim, (tvm.ir.Var, look))
    return found


def _results(function: Any) -> list[Any]:
    """Parameters that the program writes."""
    import tvm
    import tvm_ffi

    written: list[Any] = []
    tvm_ffi.structural_walk(
        function.body, (tvm.tirx.BufferStore, lambda node: written.append(node.buffer))
    )
    return [p for p in function.params if rewrite.is_among(p, written)]


def _has_all(result: Any, sizes: list[Any]) -> bool:
    """Whether a tensor is empty where any of the sizes is zero."""
    dims = tvm_compat.param_dims(result) or ()
    return all(any(_vanishes(dim, size) for dim in dims) for size in sizes)


def _vanishes(dim: Any, size: Any) -> bool:
    from tvm.sym import Analyzer

    zero = rewrite.constant(0, size)
    return tvm_compat.as_int(Analyzer().simplify(rewrite.substitute(dim, [(size, zero)]))) == 0


def _with_body(root: Any, body: Any) -> Any:
    """A copy of a program's root with another body."""
    from tvm.s_tir import SBlock, SBlockRealize

    block = root.block
    made = SBlock(
        block.iter_vars,
        block.reads,
        block.writes,
        block.name_hint,
        body,
        block.init,
        block.alloc_buffers,
        block.match_buffers,
        block.annotations,
    )
    return SBlockRealize(root.iter_values, root.predicate, made)
