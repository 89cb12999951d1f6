"""A model's graph in the types of a precision."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from spaces.frontends.model import Model
from spaces.ir import tvm_compat
from spaces.lowering.lower import infer
from spaces.lowering.weights.byte_rows import allow_rounding
from spaces.lowering.weights.constants import give_packed, hold_packed
from spaces.precision.eight_bits import in_eight_bits
from spaces.precision.floats import TYPES, in_float
from spaces.precision.four_bits import in_four_bits
from spaces.precision.products import Change, with_products
from tuner.errors import TunerError
from tuner.precision import Precision


def in_precision(model: Model, precision: Precision | None) -> Model:
    """A model that multiplies in other types; inputs, outputs and all else stay as they are.

    Batch norms are folded and constants computed first, so that weights are those of the products
    that run. The same model and precision give the same graph. None is the model as it is.

    Raises:
        TunerError: the model has no graph.
    """
    if precision is None:
        return model
    return replace(model, module=on_inferred(model, lambda m: _convert(m, precision)))


def on_inferred(model: Model, change: Callable[[Any], Any]) -> Any:
    """What a change makes of a model's graph as it is when products are counted: ready for
    inference, and without packed weights, which are its last parameters.

    Raises:
        TunerError: the model has no graph.
    """
    from tvm.ir.transform import PassContext

    if not tvm_compat.has_relax(model.module):
        raise TunerError(
            f"--precision: {model.name} holds tensor programs alone, whose types are theirs"
        )
    with PassContext(opt_level=3):
        bare, packed = hold_packed(model.module, "packed_weight")
        return give_packed(change(infer(bare)), packed)


def _convert(graph: Any, precision: Precision) -> Any:
    changed = with_products(graph, _change_of(precision))
    return _tidy(allow_rounding(changed) if precision.name == "int8" else changed)


def _change_of(precision: Precision) -> Change:
    if precision.name == "int4":
        return in_four_bits
    if precision.name == "int8":
        return in_eight_bits(precision.ranges)
    return in_float(TYPES[precision.name])


def _tidy(graph: Any) -> Any:
    """Tidy a graph, so that what several products read is rounded once."""
    from tvm.ir.transform import Sequential
    from tvm.relax import transform

    return Sequential(
        [
            transform.Normalize(),
            transform.CanonicalizeBindings(),
            transform.EliminateCommonSubexpr(),
            transform.DeadCodeElimination(),
        ]
    )(graph)
