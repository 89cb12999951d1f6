"""Kernel sets put into a lowered module: one function for all shapes, weights packed once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from spaces import names
from spaces.dispatch import dispatched
from spaces.graph import with_graphs
from spaces.prepack import COMPUTE, PREPACK, Packing, split
from spaces.realize import InvalidCandidate, realize
from tuner.dynamic.choice import KernelSet
from tuner.errors import TunerError
from tuner.task import Task


def apply_sets(module: Any, sets: Mapping[str, tuple[Task, KernelSet]]) -> Any:
    """A module with a dispatcher in place of each program that has a kernel set.

    Kernels become functions beside it, marked with `spaces.names.PART_OF`.

    Args:
        sets: by the name of the program in the module.

    Raises:
        TunerError: a stored kernel does not apply any more.
    """
    from tvm.ir import GlobalVar, IRModule

    result = IRModule(module.functions, attrs=module.attrs)
    packings: dict[str, tuple[Any, Packing]] = {}
    for name, (task, chosen) in sets.items():
        original = module[name]
        symbol = str(names.attribute(original, names.GLOBAL_SYMBOL) or name)
        functions, packing = _kernels(name, task, chosen, packed=names.has_relax(module))
        empty = None if packing is not None else _plain(task)
        made = dispatched(symbol, functions, chosen.tree, empty)
        dispatcher = names.with_attrs_of(made.pop(symbol), original)
        dispatcher = dispatcher.with_attr(names.IS_SCHEDULED, True)
        result.update_func(result.get_global_var(name), dispatcher)
        for part, function in made.items():
            result[GlobalVar(part)] = function.with_attr(names.PART_OF, symbol)
        if packing is not None:
            prepack, how = packing
            var = GlobalVar(f"{name}_prepack")
            result[var] = prepack
            packings[name] = (var, how)
    return _packed_once(result, packings) if packings else result


def _kernels(
    name: str, task: Task, chosen: KernelSet, *, packed: bool
) -> tuple[list[Any], tuple[Any, Packing] | None]:
    """Scheduled functions of a set, and what packs the weights that they share."""
    functions, packing = [], None
    for candidate in chosen.kernels:
        try:
            scheduled = realize(task, candidate).mod
        except InvalidCandidate as error:
            raise TunerError(f"a stored kernel of {name} does not apply: {error}") from error
        parts = split(scheduled) if packed else None
        if parts is None:
            functions.append(scheduled[COMPUTE])
            continue
        prepack = parts.module[PREPACK].without_attr(names.GLOBAL_SYMBOL)
        if packing is not None and packing[1] != parts.packing:
            raise TunerError(f"the kernels of {name} pack their weights in different ways")
        functions.append(parts.module[COMPUTE])
        packing = (prepack, parts.packing)
    return functions, packing


def _plain(task: Task) -> Any:
    import tvm

    return tvm.ir.load_json(task.module)["main"]


def _packed_once(module: Any, packings: Mapping[str, tuple[Any, Packing]]) -> Any:
    """The module with weights packed before they reach their dispatchers, and now."""
    from tvm import relax
    from tvm.ir.transform import Sequential
    from tvm.relax.dpl import is_op, rewrite_call

    def redirected(call: Any, _found: Any) -> Any:
        found = packings.get(str(call.args[0].name_hint))
        if found is None:
            return call
        prepack, packing = found
        arguments = list(call.args[1].fields)
        types = [relax.TensorType(p.shape, p.dtype) for p in packing.packed]
        sources = relax.Tuple([arguments[i] for i in packing.sources])
        made = relax.call_tir(prepack, sources, types[0] if len(types) == 1 else types)
        for number, operand in enumerate(packing.packed):
            value = made if len(types) == 1 else relax.TupleGetItem(made, number)
            arguments[operand.position] = value
        rest = call.args[2:]
        return relax.Call(
            call.op, [call.args[0], relax.Tuple(arguments), *rest], call.attrs, call.ty_args
        )

    pattern = is_op("relax.call_tir")(varg_default_wildcard=True)
    changed = with_graphs(module, lambda graph: rewrite_call(pattern, redirected, graph))
    transform = relax.transform
    return Sequential([transform.Normalize(), transform.FoldConstant()])(changed)
