"""TVM's dlight rules: schedules by rule, without a search."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from spaces.intrinsics.registration import stub_intrinsics
from spaces.targets.backends import backend_of
from spaces.targets.target import parse_target


def gpu_rules() -> tuple[Any, ...]:
    """The rules for a GPU, in the order in which TVM's own compilers try them; the last applies to
    any program."""
    stub_intrinsics()  # the first one imports those for CUDA, in TVM all that there are
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
    target = parse_target(target_json)
    rules = cpu_rules() if backend_of(target_json).on_host else gpu_rules()
    with target:
        for rule in rules:
            made = rule.apply(module["main"], target, False)
            if made is not None:
                yield type(rule).__name__, made[0] if isinstance(made, list) else made
