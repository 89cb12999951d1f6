"""Divisions by what is the same in all lanes of a vector, as products with its reciprocal.

A CPU divides a vector ten times slower than it multiplies one. The compiler moves the reciprocal
out of the loop, since nothing in it changes there. It rounds once more: the result is within 1.5
units in the last place instead of 0.5.
"""

from __future__ import annotations

from typing import Any

from spaces import nodes

_VECTORISED = 2
_FLOATS = ("float32", "float64")


def with_reciprocals(function: Any) -> Any:
    """A scheduled PrimFunc with such divisions replaced, inside vectorised loops only."""
    import tvm
    from tvm_ffi import structural_mutate

    lanes: list[Any] = []
    moving: list[Any] = []

    def loop(node: Any, mutator: Any) -> Any:
        vectorised = int(node.kind) == _VECTORISED
        if vectorised:
            lanes.append(node.loop_var)
        try:
            return mutator.default_mutate(node)
        finally:
            if vectorised:
                lanes.pop()

    def block(node: Any, mutator: Any) -> Any:
        known = len(moving)
        for axis, value in zip(node.block.iter_vars, node.iter_values, strict=True):
            if nodes.uses(value, lanes):
                moving.append(axis.var)
        try:
            return mutator.default_mutate(node)
        finally:
            del moving[known:]

    def divide(node: Any, mutator: Any) -> Any:
        node = mutator.default_mutate(node)
        dtype = str(node.ty.dtype)
        if not moving or dtype not in _FLOATS or not isinstance(node, tvm.tirx.Div):
            return node
        if nodes.uses(node.b, moving) or not nodes.uses(node.a, moving):
            return node
        return node.a * (tvm.tirx.const(1.0, dtype) / node.b)

    body = structural_mutate(
        function.body,
        [
            (tvm.tirx.For, loop),
            (tvm.s_tir.SBlockRealize, block),
            (tvm.tirx.Div, divide),
        ],
    )
    return function if body.same_as(function.body) else function.with_body(body)
