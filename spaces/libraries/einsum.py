"""Programs that are one sum of products, as an equation that libraries are known by."""

from __future__ import annotations

import string
from dataclasses import dataclass
from typing import Any

from spaces.ir import rewrite, tvm_compat
from spaces.ir.schedules import new_schedule


@dataclass(frozen=True, slots=True)
class Einsum:
    """A sum of products.

    Attributes:
        equation: as of `numpy.einsum`, such as `ac,cb->ab`; letters are in the order of the loops.
        operands, result: positions of the parameters in that order.
        dtypes: of the operands, and of the result.
    """

    equation: str
    operands: tuple[int, int]
    result: int
    dtypes: tuple[str, str, str]


def einsum_of(program: Any) -> Einsum | None:
    """The sum of products that a PrimFunc is.

    None where it is anything else, such as one with something fused to it, or with an index that is
    no loop's.
    """
    from tvm.ir import IRModule, TensorLoad

    schedule = new_schedule(IRModule({"main": program}))
    blocks = tvm_compat.stage_blocks(schedule)
    if len(blocks) != 1:
        return None
    block = schedule.get(blocks[0])
    product = rewrite.find_product(block.body)
    if product is None or not _starts_at_zero(block):
        return None
    loads = [rewrite.uncast(product.a), rewrite.uncast(product.b)]
    if not all(isinstance(load, TensorLoad) for load in loads):
        return None
    names = dict(zip((v.var for v in block.iter_vars), string.ascii_lowercase, strict=False))
    words = [_word(e.indices, names) for e in (*loads, block.body)]
    places = [_place(b, program) for b in (loads[0].source, loads[1].source, block.body.buffer)]
    if None in words or None in places or not _is_whole(loads, block):
        return None
    if {*names.values()} != {*f"{words[0]}{words[1]}"}:
        return None  # a sum over what neither operand has is a factor
    first, second, result = (int(place) for place in places if place is not None)
    dtypes = tuple(tvm_compat.param_dtype(program.params[i]) for i in (first, second, result))
    equation = f"{words[0]},{words[1]}->{words[2]}"
    return Einsum(equation, (first, second), result, dtypes)  # type: ignore[arg-type]


def _starts_at_zero(block: Any) -> bool:
    from tvm.tirx import FloatImm, IntImm

    start = getattr(block.init, "value", None)
    return isinstance(start, FloatImm | IntImm) and start.value == 0


def _word(indices: Any, names: dict[Any, str]) -> str | None:
    """Letters of indices that are loops of the block; None where one is not, or comes twice."""
    found = [names.get(index, "") for index in indices]
    return "".join(found) if all(found) and len(set(found)) == len(found) else None


def _place(buffer: Any, program: Any) -> int | None:
    places = (i for i, param in enumerate(program.params) if param.same_as(buffer))
    return next(places, None)


def _is_whole(loads: list[Any], block: Any) -> bool:
    """Whether loops reach all of each tensor."""
    extents = {v.var: tvm_compat.as_int(v.dom.extent) for v in block.iter_vars}
    pairs = [(e.source, e.indices) for e in loads] + [(block.body.buffer, block.body.indices)]
    return all(
        extents[index] is not None and extents[index] == tvm_compat.as_int(size)
        for buffer, indices in pairs
        for index, size in zip(indices, buffer.shape, strict=True)
    )
