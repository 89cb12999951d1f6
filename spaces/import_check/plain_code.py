"""Code of an untuned model that is quick to make and to run.

Loops as models are lowered run a convolution ten times as long as the same loops in the order of
memory. No space and no search takes part: what is compared is what was imported.
"""

from __future__ import annotations

import json
from typing import Any

from spaces.codegen.executable import Executable, compile_plainly
from spaces.ir import tvm_compat
from spaces.ir.guard import refusals
from spaces.ir.schedules import new_schedule
from spaces.lowering.lower import lower
from spaces.targets.backends import backend_of
from spaces.targets.cpu import cpu_of
from spaces.targets.target import fits_here
from spaces.templates.plain_loops import PlainLoops

_HOST = '{"kind":"llvm"}'
_KNOBS = {"fused": 0, "vectors": 2}
_BITS = 32
_LLVM_LEVEL = 1
"""Of LLVM's optimisation; vectors are ours. Above it, LLVM 22 makes vectors of nested conditions
that read beyond their operands on CPUs with 512 bits, as of concatenations of concatenations."""


def target_here(target: str) -> str:
    """A target for code that runs here: this one, or this machine's CPU."""
    here = backend_of(target).on_host and fits_here(target)
    return target if here else _HOST


def compile_untuned(module: Any, target: str) -> Executable:
    """Lower and compile a model for a CPU, on one core.

    Raises:
        TunerError: the compiler refused it.
    """
    from tvm.ir import IRModule

    lowered = lower(module, target)
    loops = PlainLoops(cpu_of(target), cpu_of(target).lanes(_BITS), {(): 1.0})
    functions = {
        variable: _in_order(function, loops) if tvm_compat.is_prim_func(function) else function
        for variable, function in lowered.functions.items()
    }
    ordered = IRModule(functions, attrs=lowered.attrs, global_infos=lowered.global_infos)
    plain = json.dumps(json.loads(target) | {"opt-level": _LLVM_LEVEL})
    return compile_plainly(ordered, plain)


def _in_order(function: Any, loops: PlainLoops) -> Any:
    """A program with its loops in the order of memory; as it is where they are not plain."""
    from tvm.ir import IRModule

    with refusals("plain loops of a program that is compared"):
        schedule = new_schedule(IRModule({"main": function}))
        loops.apply(schedule, _KNOBS)
        made = schedule.mod["main"]
        symbol = tvm_compat.attribute(function, tvm_compat.GLOBAL_SYMBOL)
        if symbol is None:
            return made.without_attr(tvm_compat.GLOBAL_SYMBOL)
        return made.with_attr(tvm_compat.GLOBAL_SYMBOL, symbol)
    return function
