"""Stack allocation of a program's small local tensors.

TVM has its runtime allocate tensors of a kilobyte or more, and LLVM cannot know that nobody else
reads such memory. A tile of more than sixteen vectors of AVX-512 is that large: the sums in its
registers were stored twice, there and in the result, after a call to allocate it. On the stack the
first store is dead and the memory is free.
"""

from __future__ import annotations

import math
from typing import Any

from spaces.ir import tvm_compat

_MOST_BYTES = 16 << 10
"""A part of the L1 cache; the stacks of TVM's threads have megabytes."""


def on_stack(function: Any) -> Any:
    """A flat PrimFunc whose small tensors of known size are marked to stay on the stack."""
    import tvm
    from tvm_ffi import structural_mutate

    def look(allocation: Any, _mutator: Any) -> Any:
        size_bytes = _size_bytes(allocation.buffer)
        if size_bytes is None or size_bytes > _MOST_BYTES:
            return allocation
        marks = {**allocation.annotations, tvm_compat.STAYS: tvm.tirx.const(1, "int32")}
        return tvm.tirx.AllocBuffer(allocation.buffer, marks)

    body = structural_mutate(function.body, [(tvm.tirx.AllocBuffer, look)])
    return function if body.same_as(function.body) else function.with_body(body)


def _size_bytes(tensor: Any) -> int | None:
    """The size of a tensor in bytes; None where it is not known."""
    import tvm

    shape = [tvm_compat.as_int(extent) for extent in tensor.shape]
    known = [extent for extent in shape if extent is not None]
    if len(known) < len(shape):
        return None
    dtype = tvm.DataType(str(tensor.dtype))
    return math.prod(known) * max(1, int(dtype.bits * dtype.lanes) // 8)
