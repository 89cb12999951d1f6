"""The one lowering from a model to tensor programs. Public: `tuner.lower`.

A database of schedules only matches programs that were lowered in the same way, so a model must be
lowered by this function before a database is applied to it.
"""

from __future__ import annotations

import json
import logging
from collections import Counter
from collections.abc import Mapping
from typing import Any

from spaces.ir import nan_kept, tvm_compat
from spaces.ir.guard import note
from spaces.ir.root_blocks import with_root_block
from spaces.lowering.byoc import find_partitioned, put_back
from spaces.lowering.byte_float_products import cast_in_products
from spaces.lowering.concats import put_off_concats
from spaces.lowering.folding import fold
from spaces.lowering.host_results import on_device
from spaces.lowering.idle_taps import without_idle_taps
from spaces.lowering.index_bounds import bound_indices
from spaces.lowering.layouts.channels_last import channels_last
from spaces.lowering.layouts.gains import Gains
from spaces.lowering.layouts.transposed import without_transposed
from spaces.lowering.linear import steps
from spaces.lowering.linear.sums import add_in_steps
from spaces.lowering.plain_shapes import with_plain_shapes
from spaces.lowering.products.ranks import keep_ranks
from spaces.lowering.products.shared_matrices import share_matrices
from spaces.lowering.relax_passes import (
    affine_batch_norms,
    broadcast_infinities,
    move_biases_into_batch_norms,
    multiply_powers,
)
from spaces.lowering.relax_rewrite import give_checks, hold_checks
from spaces.lowering.sorted_axes import sort_last_axes
from spaces.lowering.told_numbers import tell_by_shapes
from spaces.lowering.weights.byte_rows import round_rows
from spaces.lowering.weights.constants import give_packed, hold_packed, mark_constants
from spaces.lowering.weights.unpacking import unpack_in_products
from spaces.lowering.weights.widening import keep_apart, widen_products
from spaces.targets.backends import backend_of, load
from spaces.targets.cpu import multiplies_bytes
from spaces.targets.target import resolve_target
from tuner.errors import UsageError
from tuner.request.target_text import TARGET_KINDS

_LOWERED = "tuner.lowered"
"""Attribute of a graph that was lowered: the kind of its target."""


def lower(module: Any, target: Any) -> Any:
    """Lower a model to fused tensor programs, weights folded in.

    In order: squares and cubes become products, indices are kept within their tables, batch norms
    are folded into the convolutions before them where these have constant weights, and are a
    product and a sum elsewhere, the remaining inference-only operators are decomposed, constants
    are folded, transposed convolutions become convolutions, weights that only ever meet padding
    are left out, and products take rows in the shape that these have; attentions become programs;
    on a CPU, heads read the matrices that they share where these are; convolutions, on a GPU those
    in halves, and the operators between them move to channels-last where that pays; sums of bytes
    that become bytes are one program; operators become tensor programs (`LegalizeOps`), and these
    are fused. Reshapes of intermediate values are kept as such, since they cost nothing at run
    time. On a CPU, programs name their constant operands in `layout_free_buffers`. Build the
    result with the Relax pipeline `default_build`, as TVM's default one would fuse it once more,
    and with `tuner.tir_pipeline`, which makes the code that was measured.

    Args:
        module: an IRModule with a Relax function "main". One with tensor programs only comes
            back as it is, each function with its name as global symbol. All promise `noalias`.
            A graph that was lowered before stays as it is; so do its functions that are
            partitioned off for a code generator (BYOC).
        target: a TVM target, canonical JSON of one, or a kind, for this machine's device.

    Raises:
        UsageError: the target is of an unknown kind, or not of the kind that the graph was lowered
            for before.
    """
    row = backend_of(target)
    if not tvm_compat.has_relax(module):
        return _with_symbols(module)
    if (before := _read_kind(module)) is not None:
        if before != row.kind:
            raise UsageError(f"the graph was lowered for {before}, and is wanted for {row.kind}")
        return module
    from tvm.ir.transform import PassContext
    from tvm.target import Target

    if isinstance(target, str):
        target = Target(json.loads(resolve_target(target) if target in TARGET_KINDS else target))
    graphs, checks = hold_checks(module)
    with target, PassContext(opt_level=3):
        if row.packs_weights and multiplies_bytes(target):
            graphs = round_rows(graphs)
        without_packed, packed = hold_packed(graphs, "packed_weight")
        if not row.on_host:
            without_packed = cast_in_products(without_packed, target)
        prepared = infer(without_packed)
        if not row.on_host:
            prepared = sort_last_axes(prepared)
        if row.graph_pass:
            changed = load(row.graph_pass)(prepared, target)
            prepared = prepared if changed.same_as(prepared) else _tidy(changed)
        gains = load(row.layouts)(target)
        lowered = _lower(prepared, gains, packed, packs_weights=row.packs_weights)
        if not row.on_host:
            lowered = on_device(lowered, int(row.devices.device().dlpack_device_type()))
    whole = give_checks(lowered, checks)
    return _mark(put_back(whole, find_partitioned(module)), row.kind)


def _lower(
    prepared: Any, gains: Gains | None, packed: Mapping[str, Any], *, packs_weights: bool
) -> Any:
    try:
        moved = put_off_concats(share_matrices(prepared)) if packs_weights else prepared
        if gains is not None:
            moved = _tidy(channels_last(moved, gains))
        lowered = _programs(moved, packed, packs_weights=packs_weights)
    except Exception as error:  # TVM raises whatever its C++ side threw
        if gains is None:
            raise
        note(error, "layouts stay as they are", level=logging.WARNING)
        lowered = _programs(prepared, packed, packs_weights=packs_weights)
    lowered = _without_aliases(with_plain_shapes(lowered))
    return mark_constants(lowered) if packs_weights else lowered


def _read_kind(module: Any) -> str | None:
    """The kind of target that a graph was lowered for before; None where it was not. Fusing once
    more would change its programs, and put scheduled ones into others."""
    said = (tvm_compat.attribute(f, _LOWERED) for f in module.functions.values())
    return next((str(kind) for kind in said if kind is not None), None)


def _mark(lowered: Any, kind: str) -> Any:
    """A lowered graph that is known as such."""
    from tvm.ir import IRModule

    result = IRModule(lowered.functions, attrs=lowered.attrs, global_infos=lowered.global_infos)
    for variable, function in lowered.functions.items():
        if tvm_compat.is_relax_function(function):
            result.update_func(variable, function.with_attr(_LOWERED, kind))
    return result


def infer(module: Any) -> Any:
    """The graph for inference, constants folded, as it is before layouts are chosen. One that holds
    no packed weights (`hold_packed`): those would be folded, too."""
    from tvm.ir.transform import Sequential
    from tvm.relax import transform

    passes = (transform.CanonicalizeBindings(), transform.DeadCodeElimination())
    tidy = Sequential([transform.Normalize(), *passes])
    merged = Sequential([transform.Normalize(), transform.FoldBatchnormToConv2D(), tidy])
    inferred = Sequential([transform.DecomposeOpsForInference(), tidy])
    plain = multiply_powers(broadcast_infinities(tidy(module)))
    prepared = merged(move_biases_into_batch_norms(bound_indices(plain)))
    prepared = inferred(affine_batch_norms(prepared))
    prepared = transform.FoldConstant()(fold(prepared))
    return tidy(keep_ranks(without_idle_taps(without_transposed(prepared))))


def _tidy(module: Any) -> Any:
    """Tidy a graph after its layouts changed, so that equal conversions are made once."""
    from tvm.ir.transform import Sequential
    from tvm.relax import transform

    passes = [
        transform.Normalize(),
        transform.CanonicalizeBindings(),
        transform.FoldConstant(),
        transform.EliminateCommonSubexpr(),
        transform.RemoveRedundantReshape(),
        transform.DeadCodeElimination(),
    ]
    return Sequential(passes)(module)


def _programs(module: Any, packed: Mapping[str, Any], *, packs_weights: bool) -> Any:
    """Turn operators into tensor programs and fuse these.

    Args:
        packed: what the parameters with packed weights hold, which become constants again.
        packs_weights: whether products widen halves themselves, and convolutions unpack their
            weights, as matrix products do everywhere.
    """
    from tvm.ir.transform import Sequential
    from tvm.relax import transform

    chosen = [
        transform.LegalizeOps(nan_kept.legalizations() | steps.legalizations()),
        transform.AnnotateTIROpPattern(),
        transform.FoldConstant(),
    ]
    folded = [transform.FoldConstant(), transform.DeadCodeElimination()]
    fused = [
        transform.FuseTIR(),
        transform.RewriteDataflowReshape(),
        transform.DeadCodeElimination(),
        transform.CanonicalizeBindings(),
    ]
    module = add_in_steps(module)
    if packs_weights:
        module, narrow = hold_packed(widen_products(module), "narrow_weight")
        packed = {**packed, **narrow}
    legal = Sequential(folded)(fold(Sequential(chosen)(module)))  # which may know more by now
    grouped = transform.FuseOps()(keep_apart(legal))
    grouped = unpack_in_products(grouped, packed, matrices_alone=not packs_weights)
    return give_packed(Sequential(fused)(tell_by_shapes(grouped)), packed)


def _without_aliases(module: Any) -> Any:
    """A graph's tensor programs as schedules take them, each with the promise that its tensors
    share no memory: a graph gives each result memory of its own."""
    from tvm.ir import IRModule

    result = IRModule(module.functions, attrs=module.attrs, global_infos=module.global_infos)
    for name, function in tvm_compat.prim_funcs(module):
        var = result.get_global_var(name)
        if not tvm_compat.attribute(function, tvm_compat.IS_SCHEDULED):
            function = with_root_block(function)
        result.update_func(var, function.with_attr(tvm_compat.NO_ALIAS, True))
    return result


def _with_symbols(module: Any) -> Any:
    """Give tensor programs their symbols in a compiled library: their own, else their names in the
    module, which also stand for symbols that several have.

    Programs to be scheduled promise what holds when they are timed: that no two tensors share
    memory. Programs that are scheduled already stay as they are.

    Raises:
        UsageError: a name in the module is the symbol of another program.
    """
    from tvm.ir import IRModule

    programs = tvm_compat.prim_funcs(module)
    own = {n: str(tvm_compat.attribute(f, tvm_compat.GLOBAL_SYMBOL) or n) for n, f in programs}
    count = Counter(own.values())
    symbols = {name: symbol if count[symbol] == 1 else name for name, symbol in own.items()}
    if twice := [symbol for symbol, n in Counter(symbols.values()).items() if n > 1]:
        raise UsageError(f"the module has several programs with the global symbol {twice[0]}")

    def changed(name: Any, function: Any) -> Any:
        if tvm_compat.attribute(function, tvm_compat.GLOBAL_SYMBOL) != symbols[name]:
            function = function.with_attr(tvm_compat.GLOBAL_SYMBOL, symbols[name])
        if tvm_compat.attribute(function, tvm_compat.IS_SCHEDULED):
            return function
        return with_root_block(function).with_attr(tvm_compat.NO_ALIAS, True)

    return IRModule({name: changed(name, function) for name, function in programs})
