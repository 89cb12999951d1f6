"""What a contraction's operand is made of: constants, and packed numbers among them."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from spaces.ir import rewrite, tvm_compat


def list_constants(function: Any) -> list[Any]:
    """The parameters of a PrimFunc that are constants of its graph."""
    free = tvm_compat.attribute(function, tvm_compat.LAYOUT_FREE) or []
    return [function.params[int(i)] for i in free]


def is_constant(load: Any, stage: Any, constants: Sequence[Any]) -> bool:
    """Whether an operand is a constant, or computed from one alone."""
    sources = [load.source] if stage is None else [region.source for region in stage.reads]
    return len(sources) == 1 and any(sources[0].same_as(c) for c in constants)


def count_packed_bits(stage: Any, known: Sequence[Any]) -> float | None:
    """Bits that a stage reads for each number that it makes of some tensors; None where it makes it
    of anything else, of as many bits as it has, or of nothing at some places."""
    sources = [region.source for region in stage.reads]
    if not sources or not all(rewrite.is_among(s, known) for s in sources):
        return None
    if _tests(stage):
        return None
    sizes = [tvm_compat.param_shape(source) or [] for source in (stage.writes[0].source, *sources)]
    if not all(isinstance(size, int) and size for shape in sizes for size in shape):
        return None
    elements, *counts = (prod(int(size) for size in shape) for shape in sizes)
    bits = [tvm_compat.element_bits(source.dtype) for source in sources]
    read = sum(count * each for count, each in zip(counts, bits, strict=True)) / elements
    return read if read < tvm_compat.element_bits(stage.writes[0].source.dtype) else None


def _tests(stage: Any) -> bool:
    """Whether what a stage writes depends on a condition, as of padding."""
    import tvm_ffi
    from tvm.ir import Call

    def look(call: Any) -> Any:
        name = str(getattr(call.op, "name", ""))
        return tvm_ffi.VisitInterrupt(call) if name == tvm_compat.IF_THEN_ELSE else None

    return tvm_ffi.structural_walk(stage.body, (Call, look)) is not None


def list_panel_dims(stage: Any) -> tuple[int, ...]:
    """Dimensions of what a stage writes along which panels of all that it reads can be packed."""
    dims = range(len(stage.body.indices))
    return tuple(dim for dim in dims if find_panel_dims(stage, dim) is not None)


def find_panel_dims(stage: Any, dim: int) -> list[int] | None:
    """For each tensor that a stage reads, the dimension along which it reads what it writes along
    one dimension; None where there is not one such in each."""
    index = stage.body.indices[dim]
    found: list[int] = []
    for region in stage.reads:
        places = [d for d, part in enumerate(region.region) if part.min.same_as(index)]
        if len(places) != 1:
            return None
        found += places
    return found
