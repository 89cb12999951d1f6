"""What products of a warpgroup need around them (PTX ISA, "Asynchronous Warpgroup Level Matrix
Instructions")."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from spaces.templates.products.layout import UNIT
from spaces.templates.tensor_cores.cluster import Cluster
from spaces.templates.tensor_cores.operand import Operand
from spaces.templates.tensor_cores.tensor_map import SWIZZLES
from spaces.templates.tensor_cores.tile import LINE_BYTES, PATTERN_BYTES

WARPGROUP, ROWS = 128, 64
"""Threads of a warpgroup; rows of one instruction."""
_KEEP = {"float32": ("keep_below_wait", "f"), "uint32": ("keep_whole_below_wait", "r")}
_KEEP_CODE = """
template <class... Sums> static __device__ __forceinline__ void {}(Sums&... sums) {{
  ([&] {{ asm volatile("" : "+{}"(sums) :: "memory"); }}(), ...);
}}
"""
"""Code that nvcc cannot read sums above: else it moves reads above the wait for the last products,
and an H100 then lacked these. TVM's own `noop_barrier` takes a copy of a sum."""
_SWIZZLE = SWIZZLES[LINE_BYTES]
"""Of an operand's lines; matrix descriptors number it as tensor maps do, and count in units."""
_PATTERN = PATTERN_BYTES // UNIT


def allocate_barriers(pool: Any, stages: int) -> tuple[Any, Any]:
    """Barriers of each stage in shared memory: that it is full, and that it is empty."""
    full, empty = (pool.alloc((stages,), "uint64", align=8) for _ in range(2))
    return full, empty


def begin_barriers(
    T: Any, thread: Any, barriers: Sequence[tuple[Any, int]], cluster: Cluster
) -> None:
    """Have one thread set up barriers, and all others of a cluster wait for it (PTX ISA,
    "mbarrier.init").

    Args:
        T: TVM's script.
        barriers: buffers with one for each stage, each with how many arrive at it.
    """
    with T.If(thread == 0), T.Then():
        for stage in range(int(barriers[0][0].shape[0])):
            for barrier, count in barriers:
                where = barrier.ptr_to([stage])
                T.evaluate(T.ptx.mbarrier.init.shared.b64(where, T.uint32(count)))
    T.evaluate(T.ptx.fence.mbarrier_init.release.cluster())
    cluster.meet()


def describe_matrix(T: Any, side: Operand, word: Any, stage: Any, first: Any) -> None:
    """Write the matrix descriptor of an operand's tile, from an element of a stage on.

    Args:
        T: TVM's script.
        word: a buffer of one `uint64`.
    """
    leading = side.depth * LINE_BYTES // UNIT if side.source.turned else 1
    where = side.stages.ptr_to([stage, first])
    T.evaluate(
        T.cuda.wgmma.encode_matrix_descriptor(word.ptr_to([0]), where, leading, _PATTERN, _SWIZZLE)
    )


def wait_for_sums(T: Any, sums: Any) -> None:
    """Wait for all products of a warpgroup, before sums in registers are read."""
    T.evaluate(T.ptx.wgmma.wait_group.sync.aligned(0))
    kept = [sums[i] for i in range(int(sums.shape[0]))]
    name, letter = _KEEP[str(sums.dtype)]
    T.evaluate(T.cuda.func_call(name, *kept, source_code=_KEEP_CODE.format(name, letter)))
