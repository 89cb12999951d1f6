"""What programs for threads of a GPU have in common: their parameters, sizes, and shuffles."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from spaces.ir import rewrite, tvm_compat
from spaces.targets.gpu import WARP

Tensors = Sequence[tuple[Any, Any]]
"""A program's parameters, each with the tensor that stands for it."""
DEVICE_ENTRY = "tirx.device_entry"
"""The attribute of what is a kernel, of a program that has several."""
_ALL = (1 << WARP) - 1


def begin_program(T: Any, parameters: Sequence[Any]) -> Tensors:
    """Begin a PrimFunc "main" that has the parameters of a program.

    Args:
        T: TVM's script, within the frame of the PrimFunc.
    """
    T.func_name("main")
    T.func_attr({"tirx.noalias": True})
    tensors = [T.buffer([*p.shape], str(p.dtype), align=16) for p in parameters]
    tensors = [T.arg(p.name, t) for p, t in zip(parameters, tensors, strict=True)]
    return [*zip(parameters, tensors, strict=True)]


def find_tensor(tensors: Tensors, parameter: Any) -> Any:
    """What stands for a parameter.

    Raises:
        ValueError: it is none.
    """
    for known, tensor in tensors:
        if known.same_as(parameter):
            return tensor
    raise ValueError(f"{parameter} is no parameter")


def narrow(T: Any, size: Any) -> Any:
    """A size in 32 bits: a number where it is known, else an expression."""
    known = tvm_compat.as_int(size)
    return T.Cast("int32", size) if known is None else known


def keep(T: Any, values: Sequence[Any]) -> list[Any]:
    """Numbers of 32 bits that a thread computes once: TVM computes what `T.Bind` names wherever it
    is used."""
    if not values:
        return []
    own = T.alloc_buffer((len(values),), "int32", scope="local")
    for number, value in enumerate(values):
        T.buffer_store(own, T.Cast("int32", value), [number])
    return [own[number] for number in range(len(values))]


def widen(*sizes: Any) -> tuple[Any, ...]:
    """Sizes, or places, in 64 bits: of what may have more elements than 32 bits count."""
    return tuple(rewrite.cast("int64", size) for size in sizes)


def exchange(T: Any, value: Any, distance: int) -> Any:
    """The value of the thread of a warp whose number differs in one bit.

    Args:
        distance: that bit's worth.
    """
    return T.tvm_warp_shuffle_xor(T.uint32(_ALL), value, distance, WARP, WARP)
