"""Tensor programs as TVM's schedules take them: one block around all, and blocks in the loops.

A program may be written without blocks, loops and stores alone, and TVM's own programs of sorts and
scans have one block that is not called "root". TVM compiles these, but each primitive of a schedule
refuses them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from spaces.ir import rewrite, tvm_compat
from spaces.ir.accesses import regions, tensors_handed_out

_ROOT = "root"


def with_root_block(function: Any) -> Any:
    """A program whose outermost block is the root that schedules know.

    Loops without blocks whose steps do not depend on each other become blocks of these loops; all
    other statements stay as they are, inside the root.
    """
    from tvm.s_tir import SBlockRealize
    from tvm.tirx import PrimFunc

    body, root = function.body, _block(_ROOT, [], [], [], function.body)
    if isinstance(body, SBlockRealize) and str(body.block.name_hint) == _ROOT:
        body, root = body.block.body, body.block
        if all(_is_block_nest(part) for part in _parts(body)):
            return function
    buffers: list[Any] = []
    if not tensors_handed_out(function):  # who knows what is written where they are
        buffers, body = _in_blocks(_parts(body))
    root = rewrite.change_block(root, body=body, buffers=[*root.alloc_buffers, *buffers])
    made = PrimFunc(function.params, _realize(root), function.ret_type, function.attrs)
    return made.with_attr(tvm_compat.SCHEDULABLE, True)


def _realize(block: Any, values: Sequence[Any] = ()) -> Any:
    from tvm.s_tir import SBlockRealize

    return SBlockRealize(list(values), True, block)


def _block(name: str, axes: list[Any], reads: Any, writes: Any, body: Any) -> Any:
    from tvm.s_tir import SBlock

    return SBlock(axes, reads, writes, name, body)


def _parts(body: Any) -> list[Any]:
    from tvm.tirx import SeqStmt

    return list(body.seq) if isinstance(body, SeqStmt) else [body]


def _is_block_nest(statement: Any) -> bool:
    """Whether a statement is loops around a block, as all are in a program made of blocks."""
    from tvm.s_tir import SBlockRealize
    from tvm.tirx import For

    while isinstance(statement, For):
        statement = statement.body
    return isinstance(statement, SBlockRealize)


def _in_blocks(parts: list[Any]) -> tuple[list[Any], Any]:
    """What a root allocates, and its other statements, loop nests that are plain as blocks."""
    from tvm.tirx import AllocBuffer, SeqStmt

    buffers = [p.buffer for p in parts if isinstance(p, AllocBuffer) and not p.annotations]
    parts = [p for p in parts if not isinstance(p, AllocBuffer) or p.annotations]
    made = [_nest(part, f"nest{number}") for number, part in enumerate(parts)]
    return buffers, SeqStmt(made) if len(made) != 1 else made[0]


def _nest(nest: Any, name: str) -> Any:
    """A loop nest as a block in those outer loops whose steps touch elements of their own, or in
    none. What holds blocks stays as it is, and what is no loops, stores and conditions alone."""
    from tvm.tirx import For, IterVar, Var

    stores, loads = _accesses(nest)
    if not stores:
        return nest
    loops, inside = [], nest
    while isinstance(inside, For) and _is_plain(inside) and _apart(inside, stores, loads):
        loops.append(inside)
        inside = inside.body
    begun = _begin(inside, stores, loads)
    own = [tensor for tensor, _ in stores]
    if any(rewrite.is_among(t, own) and not rewrite.is_among(t, begun) for t, _ in loads):
        loops, inside = [], nest  # TVM schedules no loops around what goes on from old contents
    variables = [Var(f"v{loop.loop_var.name}", loop.loop_var.ty) for loop in loops]
    axes = [
        IterVar(_range(loop), variable, tvm_compat.SPATIAL)
        for loop, variable in zip(loops, variables, strict=True)
    ]
    steps = [loop.loop_var for loop in loops]
    body = rewrite.substitute(inside, list(zip(steps, variables, strict=True)))
    touched = [tensor for tensor, _ in (*stores, *loads)]
    reads, writes = regions(_block(name, axes, [], [], body), touched)
    reads = [region for region in reads if not (loops and rewrite.is_among(region.source, begun))]
    made = _realize(_block(name, axes, reads, writes, body), steps)
    for loop in reversed(loops):
        made = rewrite.copy_loop(loop, made)
    return made


def _begin(body: Any, stores: list[tuple[Any, Any]], loads: list[tuple[Any, Any]]) -> list[Any]:
    """The tensor whose one element a body writes before all else, and of which it touches no
    other; none where there is no such tensor."""
    from tvm.tirx import BufferStore
    from tvm_ffi import structural_equal

    first = _parts(body)[0]
    if not isinstance(first, BufferStore) or any(
        tensor.same_as(first.buffer) for tensor, _ in _accesses(first)[1]
    ):
        return []
    mine = [list(i) for tensor, i in (*stores, *loads) if tensor.same_as(first.buffer)]
    return [first.buffer] if all(structural_equal(i, list(first.indices)) for i in mine) else []


def _accesses(nest: Any) -> tuple[list[tuple[Any, Any]], list[tuple[Any, Any]]]:
    """Tensors and indices of all stores in a nest, and of all loads; none of a nest with statements
    that are no loops, stores, conditions or variables."""
    import tvm_ffi
    from tvm import tirx
    from tvm.ir import TensorLoad
    from tvm.s_tir import SBlock

    stores: list[tuple[Any, Any]] = []
    loads: list[tuple[Any, Any]] = []
    others: list[Any] = []
    visits = [
        (tirx.BufferStore, lambda node: stores.append((node.buffer, node.indices))),
        (TensorLoad, lambda node: loads.append((node.source, node.indices))),
        ((SBlock, tirx.Evaluate, tirx.AttrStmt, tirx.DeclBuffer), others.append),
    ]
    tvm_ffi.structural_walk(nest, visits)
    return ([], []) if others else (stores, loads)


def _is_plain(loop: Any) -> bool:
    """Whether a loop is serial, begins at 0, and has an extent that is a number or a dimension."""
    from tvm.ir import Var
    from tvm.tirx import ForKind

    extent = loop.extent
    known = tvm_compat.as_int(extent) is not None or isinstance(extent, Var)
    return int(loop.kind) == ForKind.SERIAL and tvm_compat.as_int(loop.min) == 0 and known


def _apart(loop: Any, stores: list[tuple[Any, Any]], loads: list[tuple[Any, Any]]) -> bool:
    """Whether no step of a loop touches an element that another step writes: all accesses to each
    tensor that is written have its variable itself as the same index."""
    for tensor, _ in stores:
        mine = [indices for known, indices in (*stores, *loads) if known.same_as(tensor)]
        places = [
            {i for i, index in enumerate(indices) if index.same_as(loop.loop_var)}
            for indices in mine
        ]
        if not set.intersection(*places):
            return False
    return True


def _range(loop: Any) -> Any:
    from tvm.ir import Range

    return Range(loop.min, loop.extent)
