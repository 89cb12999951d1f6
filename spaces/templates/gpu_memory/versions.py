"""A kernel in versions: in vectors where symbolic dimensions are multiples of them, element by
element where they are not."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from spaces.ir import rewrite
from spaces.templates.gpu_memory.program import Program
from spaces.templates.gpu_memory.vectors import open_sizes
from spaces.templates.thread_program import Tensors, begin_program


class Writer(Protocol):
    """Writes one version."""

    def count_blocks(self) -> Any:
        """The number of blocks, a number or an expression."""

    def write(self, tensors: Tensors, block: Any, thread: Any) -> None:
        """Write what a thread of a block does.

        Args:
            tensors: of the program.
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
        tensors = begin_program(T, parameters)
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
            versions[0].write(tensors, block, thread)
        else:
            with T.If(whole):
                with T.Then():
                    versions[0].write(tensors, block, thread)
                with T.Else():
                    versions[1].write(tensors, block, thread)
    return builder.get()
