"""A program that counts wrong elements on a device, written as a tensor program like any other."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from spaces.ir.element_types import is_float
from spaces.targets.backends import backend_of
from spaces.targets.target import parse_target

THREADS = 1 << 16
"""Threads that look at the elements; each writes how many of its own are wrong."""
_BLOCK = 256
_INFINITY = {"float32": ("uint32", 0x7F800000), "float64": ("uint64", 0x7FF0000000000000)}
"""The bits of infinity without its sign: larger ones are NaN, and smaller ones finite numbers."""

Comparison = Callable[[Any, Any, Any, Any], None]
"""From the elements, the expected ones, their bounds (None without any) and counts to fill."""


@dataclass(frozen=True, slots=True)
class Kinds:
    """Types of the elements, and of their bounds; None where they must be equal."""

    got: str
    bound: str | None = None


def compile_comparison(kinds: Kinds, target_json: str) -> Comparison:
    """A program for some types, for any number of elements in one dimension.

    An element is right if it is equal to the expected one, if both are NaN, or if the expected one
    is finite and no farther away than its bound.

    Raises:
        Exception: whatever the compiler threw.
    """
    import tvm

    from spaces.codegen.artifact import build_artifact, load_artifact

    schedule = tvm.s_tir.Schedule(_program(kinds))
    if not backend_of(target_json).on_host:
        thread, _ = schedule.get_loops(schedule.get_sblock("wrong"))
        block, lane = schedule.split(thread, [None, _BLOCK])
        schedule.bind(block, "blockIdx.x")
        schedule.bind(lane, "threadIdx.x")
    loaded = load_artifact(build_artifact(schedule.mod, parse_target(target_json)))
    function = loaded.get_function("main", query_imports=True)

    def compare(got: Any, want: Any, bound: Any, counts: Any) -> None:
        function(got, want, *([] if bound is None else [bound]), counts)

    return compare


def _program(kinds: Kinds) -> Any:
    from tvm import te, tirx

    size = te.var("n", "int64")
    got = te.placeholder((size,), kinds.got, name="got")
    want = te.placeholder((size,), kinds.got, name="want")
    bounds = [] if kinds.bound is None else [te.placeholder((size,), kinds.bound, name="bound")]
    threads = tirx.const(THREADS, "int64")
    turn = te.reduce_axis((tirx.const(0, "int64"), (size + threads - 1) // threads), "turn")
    one, none = tirx.const(1, "int32"), tirx.const(0, "int32")

    def count(thread: Any) -> Any:
        at = turn * threads + thread
        right = _right(got[at], want[at], bounds[0][at] if bounds else None)
        wrong = tirx.if_then_else(right, none, one)
        return te.sum(tirx.if_then_else(at < size, wrong, none), turn)

    counts = te.compute((threads,), count, name="wrong")
    return te.create_prim_func([got, want, *bounds, counts])


def _right(got: Any, want: Any, bound: Any | None) -> Any:
    """Whether an element is right, as an expression."""
    from tvm import tirx

    if not is_float(str(want.dtype)):
        if bound is None:
            return got == want
        apart = got.astype("float64") - want.astype("float64")
        return tirx.any(got == want, tirx.abs(apart) <= bound.astype("float64"))
    wide = "float64" if str(want.dtype) == "float64" else "float32"
    got, want = got.astype(wide), want.astype(wide)
    bits, infinity = _INFINITY[wide]
    sizes = [_size(value, bits, infinity) for value in (got, want)]
    edge = tirx.const(infinity, bits)
    equal = tirx.any(got == want, tirx.all(*(size > edge for size in sizes)))
    if bound is None:
        return equal
    near = tirx.abs(got - want).astype("float64") <= bound.astype("float64")
    return tirx.any(equal, tirx.all(sizes[1] < edge, near))


def _size(value: Any, bits: str, infinity: int) -> Any:
    """The bits of a number without its sign, which are in the order of sizes."""
    from tvm import tirx

    unsigned = tirx.reinterpret(bits, value)
    ones = (1 << (31 if bits == "uint32" else 63)) - 1
    return unsigned & tirx.const(ones, bits)
