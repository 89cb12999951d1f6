"""Kernel sets put into a lowered module: one function for all shapes, weights packed once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from spaces.codegen.prepack import COMPUTE, PREPACK, Packing, split
from spaces.deploy.dispatch import make_dispatcher
from spaces.design_space.default_schedule import default_candidate
from spaces.design_space.realize import realize
from spaces.ir import tvm_compat
from spaces.ir.schedules import InvalidCandidate, new_schedule, task_module
from spaces.lowering.relax_rewrite import builder_without, with_tir_calls
from spaces.targets.backends import backend_of
from tuner.dynamic.kernel_set import KernelSet
from tuner.errors import TunerError
from tuner.task import Task


def apply_sets(module: Any, sets: Mapping[str, tuple[Task, KernelSet]]) -> Any:
    """A module with a dispatcher in place of each program that has a kernel set.

    Kernels become functions beside it, marked with `spaces.ir.tvm_compat.PART_OF`.

    Args:
        sets: tasks and kernel sets, by the name of the program in the module.

    Raises:
        TunerError: a stored kernel does not apply any more.
    """
    from tvm.ir import GlobalVar, IRModule

    result = IRModule(module.functions, attrs=module.attrs)
    packed: dict[str, _PackedProgram] = {}
    for name, (task, chosen) in sets.items():
        original = module[name]
        symbol = str(tvm_compat.attribute(original, tvm_compat.GLOBAL_SYMBOL) or name)
        functions, packing = _kernels(name, task, chosen, packed=tvm_compat.has_relax(module))
        empty = None if packing is not None else _zero_empty_sums(task)
        specialised = functions[len(chosen.kernels) :]
        copies = [(dict(s), f) for (s, _), f in zip(chosen.copies, specialised, strict=True)]
        kernels = functions[: len(chosen.kernels)]
        made = make_dispatcher(symbol, kernels, chosen.tree, empty, copies)
        dispatcher = tvm_compat.with_attrs_of(made.pop(symbol), original)
        dispatcher = dispatcher.with_attr(tvm_compat.IS_SCHEDULED, True)
        for part, function in made.items():
            result[GlobalVar(part)] = function.with_attr(tvm_compat.PART_OF, symbol)
        if packing is None:
            result.update_func(result.get_global_var(name), dispatcher)
        else:
            packed[name] = _PackedProgram(dispatcher, *packing)
    return _pack_once(result, packed) if packed else result


@dataclass(frozen=True, slots=True)
class _PackedProgram:
    """A dispatcher that takes packed weights, and the function that packs them."""

    dispatcher: Any
    prepack: Any
    packing: Packing


def _kernels(
    name: str, task: Task, chosen: KernelSet, *, packed: bool
) -> tuple[list[Any], tuple[Any, Packing] | None]:
    """Scheduled functions of a set, its copies last, and the packing of weights they share."""
    functions: list[Any] = []
    packings: list[tuple[Any, Packing] | None] = []
    for candidate in (*chosen.kernels, *(copy for _, copy in chosen.copies)):
        try:
            scheduled = realize(task, candidate).mod
        except InvalidCandidate as error:
            raise TunerError(f"a stored kernel of {name} does not apply: {error}") from error
        parts = split(scheduled) if packed else None
        functions.append((scheduled if parts is None else parts.module)[COMPUTE])
        packings.append(None if parts is None else (parts.module[PREPACK], parts.packing))
    if len({packing and packing[1] for packing in packings}) > 1:
        raise TunerError(f"the kernels of {name} pack their weights in different ways")
    if packings[0] is None:
        return functions, None
    prepack, how = packings[0]
    return functions, (prepack.without_attr(tvm_compat.GLOBAL_SYMBOL), how)


def _zero_empty_sums(task: Task) -> Any:
    """The unscheduled program, except that sums over nothing are set to zero as well.

    As written, a sum is set to zero in its first step, which a sum over nothing does not have.
    Where a program without a schedule does not run, as on a GPU, it has the default schedule.
    """
    if not backend_of(task.target).runs_unscheduled:
        return realize(task, default_candidate(task)).mod["main"]
    schedule = new_schedule(task_module(task.module))
    for block in tvm_compat.stage_blocks(schedule):
        kinds = [int(axis.iter_type) for axis in schedule.get(block).iter_vars]
        if tvm_compat.REDUCED in kinds and schedule.get(block).init is not None:
            schedule.decompose_reduction(block, schedule.get_loops(block)[0])
    return schedule.mod["main"]


def _pack_once(module: Any, packed: Mapping[str, _PackedProgram]) -> Any:
    """The module with weights packed before they reach their dispatchers, constant ones now."""
    from tvm import relax
    from tvm.ir.transform import Sequential

    builder = builder_without(module, packed)
    variables = {
        name: (
            builder.add_func(program.dispatcher, name),
            builder.add_func(program.prepack, f"{name}_prepack"),
        )
        for name, program in packed.items()
    }

    def redirected(call: Any) -> Any:
        name = str(call.args[0].name_hint)
        if name not in packed or call.args[0].same_as(variables[name][0]):  # asked again
            return call
        (dispatcher, prepack), packing = variables[name], packed[name].packing
        arguments = list(call.args[1].fields)
        types = [relax.TensorType(p.shape, p.dtype) for p in packing.packed]
        sources = relax.Tuple([arguments[i] for i in packing.sources])
        made = relax.call_tir(prepack, sources, types[0] if len(types) == 1 else types)
        for number, operand in enumerate(packing.packed):
            value = made if len(types) == 1 else relax.TupleGetItem(made, number)
            arguments[operand.position] = value
        more = call.args[2:]
        return relax.Call(
            call.op, [dispatcher, relax.Tuple(arguments), *more], call.attrs, call.ty_args
        )

    changed = with_tir_calls(builder.get(), redirected)
    transform = relax.transform
    passes = [transform.Normalize(), transform.FoldConstant(), transform.DeadCodeElimination()]
    return Sequential(passes)(changed)
