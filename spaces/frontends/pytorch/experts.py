"""Operators of PyTorch that mixtures of experts are made of: products of rows by the weights of
their experts, and counts of rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from spaces.frontends.pytorch.products import Converter
from spaces.ir import tvm_compat
from spaces.ir.element_types import HALVES, WIDE, is_float
from spaces.lowering.weights.grouped_products import emit_grouped_product, emit_groups

_COUNTED = ("float32", "float64", "int32", "int64")
"""Types that count as far as there are rows."""


def expert_converters() -> dict[str, Converter]:
    """Converters by operator, for the importer's `custom_convert_map`; of one model, whose layers'
    products share the groups of rows that they have in common."""
    known: dict[tuple[Any, str], Any] = {}

    def multiply(node: Any, importer: Any) -> Any:
        return _grouped_product(node, importer, known)

    return {"_grouped_mm.default": multiply, "histc.default": _histogram}


def _grouped_product(node: Any, importer: Any, known: dict[tuple[Any, str], Any]) -> Any:
    """`torch.nn.functional.grouped_mm`: rows, cut where groups end, by a stack of matrices."""
    given = _name_operands(node, ("self", "mat2", "offs", "bias", "out_dtype"))
    if given.get("bias") is not None:
        raise ValueError("a bias is not supported; add it")
    rows, weights = (importer.env[given[name]] for name in ("self", "mat2"))
    sizes, of_weights = ([*(tvm_compat.param_dims(x) or ())] for x in (rows, weights))
    if (len(sizes), len(of_weights)) != (2, 3):
        ranks = f"{len(sizes)} and {len(of_weights)}"
        raise ValueError(f"operands of {ranks} dimensions are not supported")
    kind = tvm_compat.param_dtype(rows)
    if kind not in (*HALVES, WIDE) or tvm_compat.param_dtype(weights) != kind:
        raise ValueError(f"elements of {kind} and {tvm_compat.param_dtype(weights)}")
    builder, place = importer.block_builder, (given["offs"], str(sizes[0]))
    if place not in known:
        known[place] = emit_groups(builder, importer.env[given["offs"]], sizes[0])
    dtype = str(node.meta["val"].dtype).removeprefix("torch.")
    return emit_grouped_product(builder, rows, weights, known[place], dtype)


def _histogram(node: Any, importer: Any) -> Any:
    """`torch.histc`, how rows of experts are counted: bins of equal width, of which the last has
    its upper end, too (ATen, `HistogramKernel.cpp`)."""
    from tvm import te, tirx

    given = {
        "bins": 100,
        "min": 0,
        "max": 0,
        **_name_operands(node, ("self", "bins", "min", "max")),
    }
    bins, low, high = given["bins"], given["min"], given["max"]
    values = importer.env[given["self"]]
    kind = tvm_compat.param_dtype(values)
    if kind not in _COUNTED:
        raise ValueError(f"counts in {kind} are not supported")
    if low >= high:
        raise ValueError("a range that is that of the elements is not supported")

    def count(values: Any) -> Any:
        first, last, width = (tirx.const(n, kind) for n in (low, high, high - low))
        axes = [te.reduce_axis((0, size), "at") for size in values.shape]

        def count_in(bin: Any) -> Any:
            value = values(*axes)
            scaled = (value - first) * tirx.const(bins, kind)
            place = tirx.floor(scaled / width) if is_float(kind) else scaled // width
            inside = tirx.all(value >= first, value <= last)
            own = tirx.min(place, tirx.const(bins - 1, kind)).equal(bin.astype(kind))
            return te.sum(tirx.all(inside, own).astype(kind), axis=axes)

        return te.compute((bins,), count_in, name="histogram")

    return importer.block_builder.emit_te(count, values, primfunc_name_hint="histogram")


def _name_operands(node: Any, names: Sequence[str]) -> dict[str, Any]:
    """What a node is given, by the names of its operator's parameters."""
    return {**dict(zip(names, node.args, strict=False)), **node.kwargs}
