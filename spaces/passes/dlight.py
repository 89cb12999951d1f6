"""TVM's dlight rules: schedules by rule, without a search."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from spaces.intrinsics.registration import import_intrinsics
from spaces.ir.element_types import is_low_precision
from spaces.targets.backends import backend_of
from spaces.targets.target import parse_target


def gpu_rules() -> tuple[Any, ...]:
    """The rules for a GPU, in the order in which TVM's own compilers try them; the last applies to
    any program."""
    from tvm.s_tir.dlight import gpu

    return (gpu.Matmul(), gpu.GEMV(), gpu.Reduction(), gpu.GeneralReduction(), gpu.Fallback())


def cpu_rules() -> tuple[Any, ...]:
    """The rules for a CPU, which are few."""
    from tvm.s_tir.dlight import cpu

    return (cpu.GEMV(), cpu.Reduction())


def schedules(module: Any, target_json: str) -> Iterator[tuple[str, Any]]:
    """What the rules make of a program, each with the name of its rule, the first to apply first.

    Args:
        module: its one function is called "main".
        target_json: canonical JSON.
    """
    target, on_cpu = parse_target(target_json), backend_of(target_json).on_host
    rules = cpu_rules() if on_cpu else gpu_rules()
    if not on_cpu and is_low_precision(module):
        import_intrinsics("cuda")  # rules for tensor cores ask TVM's module for their names
    with target:
        for rule in rules:
            made = rule.apply(module["main"], target, False)
            if made is not None:
                yield type(rule).__name__, made[0] if isinstance(made, list) else made
