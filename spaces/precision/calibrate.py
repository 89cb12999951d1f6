"""The ranges of numbers that products of bytes read, from inputs that a model is run on."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from spaces.codegen.executable import LoadedModel
from spaces.frontends.model import Model
from spaces.frontends.precision import in_type
from spaces.import_check.plain_code import compile_untuned, target_here
from spaces.ir import tvm_compat
from spaces.ir.element_types import WIDE
from spaces.lowering.relax_rewrite import (
    builder_without,
    replace_vars,
    straight_bindings,
    write_anew,
)
from spaces.precision.convert import on_inferred
from spaces.precision.eight_bits import weight_to_round
from spaces.precision.products import Array, is_product
from tuner.errors import TunerError

_GRAPH = "main"
_NONE = (0.0, 0.0)
Range = tuple[float, float]


def calibrate(model: Model, target: str, samples: Iterable[Sequence[Array]]) -> tuple[Range, ...]:
    """The least and the largest number of each product's first operand, by the product's place,
    over all samples; of products that are not done in bytes, zeros.

    Args:
        samples: inputs of the model.

    Raises:
        TunerError: the graph branches, or a sample makes numbers that are not finite.
    """
    places: list[int] = []
    watched = on_inferred(model, lambda graph: _watch(graph, places))
    if not places:
        return (_NONE,)
    executable = compile_untuned(watched, target_here(target))
    seen: list[Range] | None = None
    for feeds in samples:
        told = [float(number) for number in LoadedModel(executable, feeds).outputs()]
        now = list(zip(told[::2], told[1::2], strict=True))
        seen = [(min(a[0], b[0]), max(a[1], b[1])) for a, b in zip(seen or now, now, strict=True)]
    ranges = dict(zip(places, seen or [], strict=True))
    if not all(abs(end) < float("inf") for pair in ranges.values() for end in pair):
        raise TunerError("--calibrate: a product reads numbers that are not finite")
    return tuple(ranges.get(place, _NONE) for place in range(max(places) + 1))


def _watch(module: Any, places: list[int]) -> Any:
    """A module whose graph gives the least and the largest number of what products read.

    Args:
        places: gets the places of these products.
    """
    from tvm import relax

    graphs = [f for f in module.functions.values() if tvm_compat.is_relax_function(f)]
    bindings = straight_bindings(module[_GRAPH]) if len(graphs) == 1 else None
    if bindings is None:
        raise TunerError("--calibrate: the graph branches: leave it out")
    builder = builder_without(module, {_GRAPH})

    def emit() -> Any:
        by: dict[Any, Any] = {}
        ends: list[Any] = []
        count = 0
        for binding in bindings:
            value = replace_vars(binding.value, by)
            by[binding.var] = builder.emit(value)
            if not is_product(binding.value):
                continue
            if weight_to_round(binding.value) is not None:
                rows = in_type(builder, value.args[0], WIDE)
                ends += [builder.emit(relax.op.min(rows)), builder.emit(relax.op.max(rows))]
                places.append(count)
            count += 1
        return relax.Tuple(ends)

    graph = write_anew(builder, module[_GRAPH], emit)
    made = builder.get()
    made.update_func(made.get_global_var(_GRAPH), graph)
    return made
