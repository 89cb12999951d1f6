"""Tensor programs that are not tuned, and why."""

from __future__ import annotations

import math
from typing import Any

from spaces.ir import tvm_compat
from spaces.ir.accesses import find_written, functions_called, tensors_handed_out


def why_left(function: Any) -> str:
    """Why nobody can tune a program, in words that follow "since"; empty where one can.

    Outputs are checked against those of the unscheduled program, on tensors that lie in one piece
    and whose sizes are all that it has to be told.
    """
    if tensors_handed_out(function):
        callees = functions_called(function)
        named = f", {', '.join(callees)}," if callees else ""
        return f"tensors in there go to functions of a library{named} which no schedule reaches"
    if told := [param for param in function.params if tvm_compat.param_dims(param) is None]:
        names = ", ".join(str(param.name) for param in told)
        return f"numbers are handed in besides tensors ({names})"
    if layout := own_layout(function):
        return f"tensors in there do not lie in one piece ({layout})"
    return "" if find_written(function) else "no parameter is written in there"


def own_layout(function: Any) -> str:
    """The first parameter of a program that does not lie in one piece, and how it lies; empty where
    there is none."""
    found = ((param.name, _own_layout(param)) for param in function.params)
    return next((f"{name} has {layout}" for name, layout in found if layout), "")


def _own_layout(param: Any) -> str:
    """The strides or the offset of a parameter that lies in memory unlike any other tensor."""
    strides = [tvm_compat.as_int(stride) for stride in getattr(param.ty, "strides", None) or ()]
    dims = [tvm_compat.as_int(dim) for dim in tvm_compat.param_dims(param) or ()]
    for place, (stride, dim) in enumerate(zip(strides, dims, strict=False)):
        after = dims[place + 1 :]
        if stride is None or dim == 1:
            continue
        if None in after or stride != math.prod(size or 0 for size in after):
            return f"the strides {', '.join('?' if s is None else str(s) for s in strides)}"
    offset = tvm_compat.as_int(getattr(param.ty, "elem_offset", 0))
    return f"the offset {offset}" if offset else ""
