"""A kernel in versions: in vectors where symbolic dimensions are multiples of them, element by
element where they are not."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from spaces.ir import rewrite
from spaces.templates.gpu_memory.program import Program
from spaces.templates.gpu_memory.vectors import open_sizes


class Writer(Protocol):
    """Writes one version."""

    def count_blocks(self) -> Any:
        """The number of blocks, a number or an expression."""

    def write(self, tensors: Sequence[tuple[Any, Any]], block: Any, thread: Any) -> None:
        """Write what a thread of a block does.

        Args:
            tensors: the program's parameters, each with the tensor that stands for it.
        """


def write_versions(
    program: Program,
    parameters: Sequence[Any],
    writer: Callable[[Any, int, Sequence[Any]], Writer],
    vector: int,
    threads: int,
) -> Any:
    """The PrimFunc of a kernel.

    Args:
        parameters: of the program.
        writer: gives one for TVM's script, the elements of a vector, and the symbolic dimensions
            that are multiples of it.
        threads: of a block.
    """
    from tvm.script.ir_builder import IRBuilder
    from tvm.script.ir_builder import tirx as T

    symbols = open_sizes(program, vector) or ()
    with IRBuilder() as builder, T.prim_func():
        T.func_name("main")
        T.func_attr({"tirx.noalias": True})
        tensors = [T.buffer([*p.shape], str(p.dtype), align=16) for p in parameters]
        tensors = [T.arg(p.name, t) for p, t in zip(parameters, tensors, strict=True)]
        known = [*zip(parameters, tensors, strict=True)]
        versions = [writer(T, vector, symbols)]
        if symbols:
            versions.append(writer(T, 1, ()))
        blocks = [version.count_blocks() for version in versions]
        whole = rewrite.conjunction(
            [s % rewrite.constant(vector, s) == rewrite.constant(0, s) for s in symbols]
        )
        T.device_entry()
        block = T.cta_id([T.Select(whole, *blocks) if symbols else blocks[0]])
        thread = T.thread_id([threads])
        if not symbols:
            versions[0].write(known, block, thread)
        else:
            with T.If(whole):
                with T.Then():
                    versions[0].write(known, block, thread)
                with T.Else():
                    versions[1].write(known, block, thread)
    return builder.get()
