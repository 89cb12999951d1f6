"""Sums of products, a group at a time, by the instructions that add up a group.

A schedule marks the loop over the lanes of a vector of sums, around the loop over the products of a
group, and the loop around all steps of a tile's sums, after which those of factors that are signed
alike are corrected.
"""

from __future__ import annotations

from typing import Any

from spaces.ir import rewrite, tvm_compat
from spaces.passes.bf16.tensors import list_allocated, with_bits
from spaces.passes.dots.instructions import write_code
from spaces.passes.dots.row_sums import correct
from spaces.passes.dots.steps import Step, read_step

GROUPS = "tuner.groups"
"""Annotation of a loop over lanes around the loop over the products of a group."""
SUMS = "tuner.sums"
"""Annotation of the loop around all steps of a tile's sums."""
_IMPORT = "pragma_import_llvm"


def with_group_dots(function: Any) -> Any:
    """A scheduled PrimFunc whose marked loops are instructions that add up groups of products.

    A marked loop whose factors do not lie as the instruction takes them stays a loop; so do all in
    a function that is bound to a target without the instruction.
    """
    import tvm
    from tvm import tirx
    from tvm.sym import Analyzer
    from tvm_ffi import structural_mutate

    analyzer = Analyzer()
    widths: set[int] = set()
    copied, computed = list_allocated(function)
    target = tvm_compat.attribute(function, "target")
    around: list[Any] = []
    turned: list[Step] = []

    def sums(node: Any, mutator: Any) -> Any:
        """The loop around all steps of sums, and their correction."""
        outside, around[:] = [*around], [node]
        before = len(turned)
        inside = _without(SUMS, mutator.default_mutate(node))
        around[:] = outside
        found, turned[before:] = turned[before:], []
        return tirx.SeqStmt([inside, *map(correct, found)]) if found else inside

    def loop(node: Any, mutator: Any) -> Any:
        if tvm_compat.as_int(node.extent) is not None:
            rewrite.bind_loop(analyzer, node)
        if SUMS in node.annotations:
            return sums(node, mutator)
        if GROUPS not in node.annotations:
            around.extend([node] if around else [])
            inside = mutator.default_mutate(node)
            del around[-1:]
            return inside
        step = read_step(node, tuple(around), analyzer)
        if step is None or any(rewrite.is_among(f, computed) for f in step.tensors):
            return _without(GROUPS, node)
        if target is not None and not step.dot.is_on(target):
            return _without(GROUPS, node)
        if step.dot.of_halves:
            widths.add(step.lanes)
        if step.dot.alike:
            turned.append(step)
        return step.write()

    body = structural_mutate(function.body, [(tirx.For, loop)])
    if body.same_as(function.body):
        return function
    root = body.block
    inside = root.body
    for lanes in sorted(widths):
        inside = tirx.AttrStmt(0, _IMPORT, write_code(lanes), inside)
    root = rewrite.change_block(root, body=inside)
    body = tvm.s_tir.SBlockRealize(body.iter_values, body.predicate, root)
    changed = function.with_body(body)
    return with_bits(changed, copied) if widths else changed


def _without(mark: str, loop: Any) -> Any:
    marks = {key: value for key, value in loop.annotations.items() if key != mark}
    return rewrite.copy_loop(loop, loop.body, marks=marks)
