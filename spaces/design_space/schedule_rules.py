"""TVM's schedule rules, post-processors and mutators for a program, made without slow imports."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache, partial
from typing import Any

from spaces.intrinsics.registration import arm_family, register_intrinsics, stub_intrinsics
from spaces.ir.guard import note
from spaces.ir.schedules import InvalidCandidate, task_module, tvm_seed
from spaces.targets.backends import backend_of, load
from spaces.targets.config import Config
from spaces.targets.target import parse_target
from tuner.errors import first_line

RULES = "rules"
"""The family of these spaces, whose traces need the rules' post-processing."""

_CHECKS = ("VerifyGPUCode",)
"""Post-processors that change nothing."""
_FIRST_TENSOR_CORES = 75
_LOW_PRECISION = ("int8", "uint8", "float16", "bfloat16")


@dataclass(frozen=True, slots=True)
class RuleSet:
    """What makes and checks the schedules of one program.

    Attributes:
        name: name of the space they span, kept with each candidate: its family, and TVM's kind.
        context: TVM's tune context, which they were initialised with.
        sketch: gives schedules whose traces, with their decisions open, span the space.
        postprocs: post-processors, applied in order after a trace; each may refuse it.
        mutators: mutators, each with its weight.
        anew: runs what makes the schedules with another seed, their decisions drawn on the way;
            None where there is nothing to run.
        redraws: whether a mutation may also draw one decision anew.
        refused: numbers of a trace's sampling instructions to draw anew, as a constraint does not
            hold; none where it does.
    """

    name: str
    context: Any
    sketch: Callable[[], Sequence[Any]]
    postprocs: tuple[Any, ...]
    mutators: tuple[tuple[Any, float], ...]
    anew: Callable[[int], Sequence[Any]] | None = None
    redraws: bool = False
    refused: Callable[[Any], frozenset[int]] = field(default=lambda trace: frozenset())


@dataclass(frozen=True, slots=True)
class RuleNames:
    """TVM's names of the default rules of a target.

    Attributes:
        rules: the kind of its rules, post-processors and mutators.
        intrinsics: the family of intrinsics that the rules use, to be registered; or None.
    """

    rules: str
    intrinsics: str | None = None


def cpu_rules(target: Config, low_precision: bool) -> RuleNames:
    """The rules of a CPU.

    Args:
        low_precision: whether the program has 8- or 16-bit operands. Intrinsics only concern
            these, so other programs get the plain rules and skip the registration.
    """
    family = arm_family(target) if low_precision else None
    return RuleNames("from-target" if family else "llvm", family)


def cuda_rules(target: Config, low_precision: bool) -> RuleNames:
    """The rules of a CUDA device; its intrinsics are those of tensor cores."""
    if not low_precision:
        return RuleNames("cuda")
    arch = str(target.get("arch", "sm_0")).removeprefix("sm_").rstrip("abcdef")
    tensor_cores = int(arch) >= _FIRST_TENSOR_CORES
    return RuleNames("cuda-tensorcore" if tensor_cores else "cuda", "cuda")


def is_low_precision(module: Any) -> bool:
    """Whether a parameter of the program has 8 or 16 bits."""
    return any(
        str(param.dtype) in _LOW_PRECISION
        for function in module.functions.values()
        for param in function.params
        if hasattr(param, "dtype")
    )


def rule_names(module: Any, target_json: str) -> RuleNames:
    """TVM's names of the default rules for a program, whose intrinsics are registered."""
    stub_intrinsics()
    names_of = load(backend_of(target_json).rules)
    names: RuleNames = names_of(json.loads(target_json), is_low_precision(module))
    if names.intrinsics is not None:
        register_intrinsics(names.intrinsics)
    return names


def tune_context(module: Any, target_json: str, generator: Any, seed: int = 1) -> Any:
    """TVM's tune context for a program, with a space generator initialised for it."""
    from tvm.s_tir import meta_schedule as ms

    return ms.TuneContext(
        mod=module,
        target=parse_target(target_json),
        space_generator=generator,
        rand_state=tvm_seed(seed),
        num_threads=1,
    )


def rule_set(
    name: str,
    context: Any,
    sketch: Any = None,
    *,
    anew: Callable[[int], Sequence[Any]] | None = None,
    redraws: bool = False,
) -> RuleSet:
    """The rules of an initialised space generator.

    Args:
        sketch: see `RuleSet`; None is what the generator itself gives.
        anew: see `RuleSet`.
    """
    generator = context.space_generator
    return RuleSet(
        name=name,
        context=context,
        sketch=sketch or context.generate_design_space,
        postprocs=tuple(generator.postprocs or ()),
        mutators=tuple((m, float(w)) for m, w in (generator.mutator_probs or {}).items()),
        anew=anew,
        redraws=redraws,
    )


def generate(context: Any, target_json: str) -> Callable[[int], Sequence[Any]]:
    """What a tune context's generator gives with a seed."""

    def anew(seed: int) -> Sequence[Any]:
        generator = context.space_generator.clone()
        return list(tune_context(context.mod, target_json, generator, seed).generate_design_space())

    return anew


def make_rules(module: Any, target_json: str) -> RuleSet:
    """The default rules for a program: those that TVM's own tuner would use on this target."""
    kind = rule_names(module, target_json).rules
    context = tune_context(module, target_json, _generator(kind, kind))
    anew = generate(context, target_json)
    sketch = partial(_sketch, context, kind, target_json)
    return rule_set(f"{RULES}:{kind}", context, sketch, anew=anew)


def _generator(kind: str, rules: Any) -> Any:
    """TVM's generator of a kind, with the rules of that kind or a list of its own."""
    from tvm.s_tir import meta_schedule as ms

    return ms.space_generator.PostOrderApply(sch_rules=rules, postprocs=kind, mutator_probs=kind)


def _sketch(context: Any, kind: str, target_json: str) -> Sequence[Any]:
    """The schedules of the rules; of all but one where TVM fails with it, as its `compute_at` does
    on some programs of several stages.

    Raises:
        InvalidCandidate: it fails with any of them.
    """
    from tvm.s_tir import meta_schedule as ms

    try:
        return list(context.generate_design_space())
    except Exception as error:  # whatever its C++ side throws
        note(error, "one of TVM's rules")
        failed = error
    rules = list(ms.ScheduleRule.create(kind))
    for left_out in reversed(range(len(rules))):
        some = [rule for number, rule in enumerate(rules) if number != left_out]
        generator = _generator(kind, some)
        with suppress(Exception):
            return list(tune_context(context.mod, target_json, generator).generate_design_space())
    raise InvalidCandidate(f"TVM's rules fail: {first_line(failed)}") from failed


@lru_cache(maxsize=128)
def task_rules(module_json: str, target_json: str) -> RuleSet:
    """The rules of a task, made once."""
    return make_rules(task_module(module_json), target_json)


def postprocess(schedule: Any, rules: RuleSet, *, checked: bool = False) -> None:
    """Apply a space's post-processors.

    Args:
        checked: its decisions are known to be within the device's limits, so that the check that
            lowers the whole program can be left to whoever builds it.

    Raises:
        InvalidCandidate: a post-processor refused the schedule; the error names it.
    """
    schedule.enter_postproc()
    for postproc in rules.postprocs:
        if checked and type(postproc).__name__ in _CHECKS:
            continue
        try:
            accepted = postproc.apply(schedule)
        except Exception as error:  # TVM raises whatever its C++ side threw
            raise InvalidCandidate(f"{type(postproc).__name__}: {first_line(error)}") from error
        if not accepted:
            raise InvalidCandidate(f"refused by {type(postproc).__name__}")
