"""The one lowering from a model to tensor programs. Public: `tuner.lower`.

A database of schedules only matches programs that were lowered in the same way, so whoever applies
one calls this first.
"""

from __future__ import annotations

import json
from typing import Any

from spaces import names
from spaces.graph_rewrites import bound_takes, move_biases_into_batch_norms


def lower(module: Any, target: Any) -> Any:
    """Lower a model to fused tensor programs, weights folded in.

    In order: indices of gathers are kept within their tables, batch norms are folded into the
    convolutions before them where these have constant weights, what is left of inference-only
    operators is decomposed, constants are folded, operators become tensor programs
    (`LegalizeOps`), and these are fused. Reshapes of intermediate values are kept as such, since
    they cost nothing at run time. Build the result with the Relax pipeline `default_build`: TVM's
    default one would fuse it once more.

    Args:
        module: an IRModule with a Relax function "main". One with tensor programs only comes
            back as it is, each function with its name as global symbol.
        target: a TVM target, or canonical JSON of one.
    """
    if not names.has_relax(module):
        return _with_symbols(module)
    from tvm.ir.transform import PassContext, Sequential
    from tvm.relax import transform
    from tvm.target import Target

    if isinstance(target, str):
        target = Target(json.loads(target))
    tidy = Sequential([transform.Normalize(), transform.CanonicalizeBindings()])
    passes = Sequential(
        [
            transform.Normalize(),
            transform.FoldBatchnormToConv2D(),
            transform.DecomposeOpsForInference(),
            transform.CanonicalizeBindings(),
            transform.FoldConstant(),
            transform.LegalizeOps(),
            transform.AnnotateTIROpPattern(),
            transform.FoldConstant(),
            transform.DeadCodeElimination(),
            transform.FuseOps(),
            transform.FuseTIR(),
            transform.RewriteDataflowReshape(),
            transform.DeadCodeElimination(),
        ]
    )
    with target, PassContext(opt_level=3):
        return passes(move_biases_into_batch_norms(bound_takes(tidy(module))))


def _with_symbols(module: Any) -> Any:
    """Tensor programs under their own names in a compiled library."""
    from tvm.ir import IRModule

    return IRModule(
        {
            name: function
            if names.attribute(function, names.GLOBAL_SYMBOL)
            else function.with_attr(names.GLOBAL_SYMBOL, name)
            for name, function in names.prim_funcs(module)
        }
    )
