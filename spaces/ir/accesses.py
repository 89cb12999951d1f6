"""What a tensor program touches: its blocks' regions, what it writes, what it hands to others."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from spaces.ir import tvm_compat


def regions(block: Any, tensors: Iterable[Any]) -> tuple[list[Any], list[Any]]:
    """What a block reads and writes of some tensors, as TVM finds it."""
    from tvm.s_tir.analysis import get_sblock_access_region

    reads, writes, opaque = get_sblock_access_region(block, {tensor: tensor for tensor in tensors})
    return [*reads, *opaque], [*writes, *opaque]


def tensors_handed_out(function: Any) -> list[Any]:
    """The tensors that a program gives to something by their address."""
    import tvm_ffi
    from tvm.ir import Call

    found: list[Any] = []

    def look(call: Any) -> None:
        if str(getattr(call.op, "name", "")) == "tirx.buffer_data":
            found.append(call.args[0])

    tvm_ffi.structural_walk(function.body, (Call, look))
    return found


def functions_called(function: Any) -> list[str]:
    """Names of the functions that a program calls by name, each once."""
    import tvm_ffi
    from tvm.ir import Call

    found: dict[str, None] = {}

    def look(call: Any) -> None:
        operator = str(getattr(call.op, "name", ""))
        if "packed" in operator or "extern" in operator:
            found[str(getattr(call.args[0], "value", call.args[0]))] = None

    tvm_ffi.structural_walk(function.body, (Call, look))
    return list(found)


def find_written(function: Any) -> set[int]:
    """Positions of the parameters that a PrimFunc stores to."""
    import tvm
    import tvm_ffi

    stored: list[Any] = []
    visit = (tvm.tirx.BufferStore, lambda store: stored.append(store.buffer))
    tvm_ffi.structural_walk(function.body, visit)
    for block in tvm_compat.sblocks(function):
        stored += [region.source for region in block.writes]
    return {i for i, p in enumerate(function.params) if any(p.same_as(b) for b in stored)}
