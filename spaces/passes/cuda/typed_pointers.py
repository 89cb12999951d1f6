"""Pointers into merged shared memory, by a view of their own type.

TVM 0.27 lays tensors of a kernel's shared memory over each other. A pointer into one that took the
place of another names that other one, also where the types differ: sums in float32 over operands in
float16, which is every product on tensor cores that is exact enough. Its next pass then refuses the
kernel ("tvm_access_ptr element type must match the source buffer"). All of them begin at the same
address and offsets count elements of the pointer's type, so any view of that type will do.
"""

from __future__ import annotations

import math
from typing import Any

_POINTER, _DATA = "tirx.tvm_access_ptr", "tirx.buffer_data"


def retype_pointers(function: Any) -> Any:
    """A flat PrimFunc whose pointers name tensors of their own types."""
    import tvm
    from tvm_ffi import structural_mutate

    wanted = _find_wanted(function)
    if not wanted:
        return function

    def declare(declaration: Any, _mutator: Any) -> Any:
        views = [view for tensor, _, view in wanted if tensor.same_as(declaration.buffer)]
        more = [tvm.tirx.DeclBuffer(view, data=declaration.data) for view in views]
        return tvm.tirx.SeqStmt([declaration, *more]) if more else declaration

    def point(call: Any, mutator: Any) -> Any:
        mismatch = _mismatch(call)
        if mismatch is None:
            return mutator.default_mutate(call)
        view = next(v for known, dtype, v in wanted if _same((known, dtype), mismatch))
        data = tvm.ir.Call(call.args[1].op, [view], ret_ty=call.args[1].ty)
        arguments = [call.args[0], data, *call.args[2:]]
        return tvm.ir.Call(call.op, arguments, attrs=call.attrs, ret_ty=call.ty)

    body = structural_mutate(function.body, [(tvm.ir.Call, point), (tvm.tirx.DeclBuffer, declare)])
    return function.with_body(body)


def _find_wanted(function: Any) -> list[tuple[Any, str, Any]]:
    """Tensors that pointers of another type name, with that type and a new view of it."""
    import tvm
    from tvm_ffi import structural_walk

    found: list[tuple[Any, str, Any]] = []

    def look(call: Any) -> None:
        mismatch = _mismatch(call)
        if mismatch is None or any(_same(known[:2], mismatch) for known in found):
            return
        tensor, dtype = mismatch
        size = _bits(tensor) // tvm.DataType(dtype).bits
        name = f"{tensor.name}_{dtype}"
        view = tvm.tirx.decl_buffer((size,), dtype, name, scope=tensor.scope())
        found.append((tensor, dtype, view))

    structural_walk(function.body, (tvm.ir.Call, look))
    return found


def _mismatch(call: Any) -> tuple[Any, str] | None:
    """The tensor and the type of a pointer where they do not fit each other."""
    import tvm

    if _name(call) != _POINTER or _name(call.args[1]) != _DATA:
        return None
    (tensor,) = call.args[1].args
    dtype = tvm.DataType(str(call.args[0].ty.dtype)).with_lanes(1)
    return None if dtype == tvm.DataType(str(tensor.dtype)).with_lanes(1) else (tensor, str(dtype))


def _same(one: tuple[Any, str], other: tuple[Any, str]) -> bool:
    return one[0].same_as(other[0]) and one[1] == other[1]


def _bits(tensor: Any) -> int:
    import tvm

    dtype = tvm.DataType(str(tensor.dtype))
    count = math.prod(int(extent) for extent in tensor.shape)
    return count * int(dtype.bits) * int(dtype.lanes)


def _name(call: Any) -> str:
    return str(getattr(getattr(call, "op", None), "name", ""))
