"""Leave out tests whether a packed weight is padding, where its codes and scales are padded too.

Where columns do not fill whole panels, TVM reads a zero in the place of a column that is not there,
after a test for each lane. Of a stage that carries this mark what it reads has zeros there, so
nothing needs to be tested: what it makes of them is in columns that nobody reads.
"""

from __future__ import annotations

from typing import Any

from spaces.ir import rewrite, tvm_compat

PADDED_AHEAD = "tuner.padded_ahead"
"""Annotation of a block that makes zeros of what lies beyond a weight, by the weight's padding."""


def without_padding_tests(function: Any) -> Any:
    """A scheduled PrimFunc that computes the same, without those tests."""
    import tvm
    from tvm.ir import Call
    from tvm_ffi import structural_mutate

    def untested(call: Any, mutator: Any) -> Any:
        call = mutator.default_mutate(call)
        name = str(getattr(call.op, "name", ""))
        pads = name == tvm_compat.IF_THEN_ELSE and getattr(call.args[2], "value", None) == 0
        return call.args[1] if pads else call

    def look(block: Any, mutator: Any) -> Any:
        block = mutator.default_mutate(block)
        if PADDED_AHEAD not in block.annotations:
            return block
        return rewrite.change_block(block, body=structural_mutate(block.body, [(Call, untested)]))

    body = structural_mutate(function.body, [(tvm.s_tir.SBlock, look)])
    return function if body.same_as(function.body) else function.with_body(body)
