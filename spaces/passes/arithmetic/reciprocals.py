"""Strength reduction of division: divisors that all lanes of a vector share become reciprocals.

A CPU divides a vector ten times slower than it multiplies one. The compiler moves the reciprocal
out of the loop, since nothing in it changes there. It rounds once more: the result is within 1.5
units in the last place instead of 0.5. Where the quotient becomes an integer, by rounding or by a
cast, at once or by way of other tensors, that could change the integer by one, and divisions stay.
"""

from __future__ import annotations

from typing import Any

from spaces.ir import rewrite

_VECTORISED = 2
_FLOATS = ("float32", "float64")
_STEPS = ("round", "nearbyint", "rint", "floor", "ceil", "trunc")


def with_reciprocals(function: Any) -> Any:
    """A scheduled PrimFunc with such divisions replaced, inside vectorised loops only."""
    import tvm
    from tvm_ffi import structural_mutate

    lanes: list[Any] = []
    moving: list[Any] = []
    stepped = _find_stepped_tensors(function)

    def store(node: Any, mutator: Any) -> Any:
        return node if rewrite.is_among(node.buffer, stepped) else mutator.default_mutate(node)

    def step(node: Any, mutator: Any) -> Any:
        return node if _is_step(node) else mutator.default_mutate(node)

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
            if rewrite.uses(value, lanes):
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
        if rewrite.uses(node.b, moving) or not rewrite.uses(node.a, moving):
            return node
        return node.a * (tvm.tirx.const(1.0, dtype) / node.b)

    body = structural_mutate(
        function.body,
        [
            (tvm.tirx.For, loop),
            (tvm.s_tir.SBlockRealize, block),
            (tvm.tirx.Div, divide),
            (tvm.tirx.BufferStore, store),
            ((tvm.ir.Call, tvm.tirx.Cast), step),
        ],
    )
    return function if body.same_as(function.body) else function.with_body(body)


def _find_stepped_tensors(function: Any) -> list[Any]:
    """Tensors whose values become integers, at once or by way of other tensors."""
    import tvm
    from tvm_ffi import structural_walk

    stores: list[Any] = []
    steps: list[Any] = []

    def look(node: Any) -> None:
        if _is_step(node):
            steps.append(node)

    visits = [
        (tvm.tirx.BufferStore, stores.append),
        ((tvm.ir.Call, tvm.tirx.Cast), look),
    ]
    structural_walk(function.body, visits)
    found: list[Any] = []
    waiting = [tensor for step in steps for tensor in _find_loads(step)]
    while waiting:
        tensor = waiting.pop()
        if not rewrite.is_among(tensor, found):
            found.append(tensor)
            made = [store for store in stores if store.buffer.same_as(tensor)]
            waiting += [source for store in made for source in _find_loads(store.value)]
    return found


def _is_step(node: Any) -> bool:
    """Whether a node turns floats into integers."""
    import tvm

    if isinstance(node, tvm.tirx.Cast):
        return "float" in str(node.value.ty.dtype) and "float" not in str(node.ty.dtype)
    return str(getattr(node.op, "name", "")).rpartition(".")[2] in _STEPS


def _find_loads(expression: Any) -> list[Any]:
    import tvm
    from tvm_ffi import structural_walk

    found: list[Any] = []
    structural_walk(expression, (tvm.ir.TensorLoad, lambda load: found.append(load.source)))
    return found
