"""A user's functions, rules and generators as TVM's objects."""

from __future__ import annotations

import contextlib
import fnmatch
from collections.abc import Iterator, Sequence
from contextvars import ContextVar
from dataclasses import replace
from typing import Any

from spaces.design_space.declared.constants import open_drawn
from spaces.design_space.declared.constraint import Constraint
from spaces.design_space.declared.contract import complete
from spaces.design_space.declared.launch_check import LaunchCheck
from spaces.design_space.schedule_rules import (
    RuleSet,
    generate,
    rule_names,
    rule_set,
    tune_context,
)
from spaces.intrinsics.registration import register_missing, stub_intrinsics
from spaces.ir.schedules import new_schedule
from spaces.passes.dlight import schedules
from spaces.targets.backends import backend_of
from spaces.targets.gpu import gpu_of
from tuner.errors import UsageError
from tuner.space.parts import Dlight, Part, Rule, Rules, Stock, Template
from tuner.space.sampling import names_noted

_APPLIED: ContextVar[set[str] | None] = ContextVar("applied", default=None)
_TILES, _UNROLLS = 0.9, 0.1
"""How often a mutation of a template changes tiles, and unrolling, by TVM's mutators."""


def rules_of(part: Part, name: str, module: Any, target: str) -> RuleSet:
    """The rules that a declared space stands for.

    Args:
        name: of the space, which its candidates carry.
        target: canonical JSON.

    Raises:
        UsageError: an object in it is none of TVM's.
    """
    stub_intrinsics()
    while True:
        try:
            return _rules_of(part, name, module, target)
        except ValueError as error:  # TVM's own rules may name intrinsics
            if not register_missing(str(error)):
                raise


def _rules_of(part: Part, name: str, module: Any, target: str) -> RuleSet:
    if isinstance(part, Template):
        return _of_function(part, name, module, target)
    if isinstance(part, Rules):
        context = tune_context(module, target, _post_order(part, module, target))
        return rule_set(name, context, anew=generate(context, target), redraws=True)
    if isinstance(part, Dlight):
        return _of_dlight(name, module, target)
    assert isinstance(part, Stock)
    context = tune_context(module, target, _generator(part))
    return rule_set(name, context, anew=generate(context, target), redraws=True)


@contextlib.contextmanager
def applications_noted() -> Iterator[set[str]]:
    """The names of the rules that were applied to a block in the length of a block."""
    noted: set[str] = set()
    token = _APPLIED.set(noted)
    try:
        yield noted
    finally:
        _APPLIED.reset(token)


def schedules_of(returned: Any, given: Any) -> list[Any]:
    """The schedules that a user's function returned: the one that it was given, where it is
    nothing.

    Raises:
        UsageError: it returned something else.
    """
    from tvm.s_tir import Schedule

    if returned is None:
        return [given]
    found = list(returned) if isinstance(returned, list | tuple) else [returned]
    for one in found:
        if not isinstance(one, Schedule):
            raise UsageError(f"returned {type(one).__name__}: schedules are wanted, or nothing")
    return found


def _of_function(part: Template, name: str, module: Any, target: str) -> RuleSet:
    from tvm.s_tir.meta_schedule import mutator
    from tvm.s_tir.meta_schedule.space_generator import ScheduleFn

    def anew(seed: int) -> Sequence[Any]:
        schedule = new_schedule(module, seed, errors="fast")
        return schedules_of(part.function(schedule), schedule)

    def sketch() -> Sequence[Any]:
        found = anew(1)
        return [open_drawn(one, module) for one in found] if part.constants else found

    generator = ScheduleFn(
        lambda _schedule: None,  # what it does is `sketch`, where exceptions stay as they are
        sch_rules=[],
        postprocs=list(map(complete, part.postprocs())),
        mutator_probs={mutator.MutateTileSize(): _TILES, mutator.MutateUnroll(): _UNROLLS},
    )
    context = tune_context(module, target, generator)
    rules = rule_set(name, context, sketch, anew=None if part.constants else anew, redraws=True)
    if part.where is None:
        return rules
    with names_noted() as named:
        traces = [schedule.trace.simplified(True) for schedule in sketch()]
    return replace(rules, refused=Constraint(part.where, [(t, named) for t in traces]).refused)


def _of_dlight(name: str, module: Any, target: str) -> RuleSet:
    from tvm.s_tir.meta_schedule.space_generator import ScheduleFn

    def sketch() -> Sequence[Any]:  # imported and applied where points are drawn only
        found = dict(schedules(module, target))
        if len(found) > 1:
            found.pop("Fallback", None)  # which fits everything
        return [open_drawn(schedule, module) for schedule in found.values()]

    generator = ScheduleFn(lambda _schedule: None, sch_rules=[], postprocs=[], mutator_probs={})
    rules = rule_set(name, tune_context(module, target, generator), sketch, redraws=True)
    if backend_of(target).runs_unscheduled:
        return rules
    return replace(rules, postprocs=(LaunchCheck(rules.context, gpu_of(target).threads),))


def _post_order(part: Rules, module: Any, target: str) -> Any:
    from tvm.s_tir import meta_schedule as ms

    kind = rule_names(module, target).rules
    stock = ms.space_generator.PostOrderApply(sch_rules=kind, postprocs=kind, mutator_probs=kind)
    # What a kind stands for is known only once it is initialised for a target.
    stock = tune_context(module, target, stock).space_generator
    postprocs = stock.postprocs if part.postprocs is None else part.postprocs()
    mutators = stock.mutator_probs if part.mutators is None else part.mutators()
    return ms.space_generator.PostOrderApply(
        sch_rules=[*map(_schedule_rule, part.members), *(stock.sch_rules if part.stock else ())],
        postprocs=list(map(complete, postprocs)),
        mutator_probs={complete(mutator): weight for mutator, weight in mutators.items()},
    )


def _schedule_rule(member: Any) -> Any:
    from tvm.s_tir.meta_schedule import ScheduleRule

    if isinstance(member, Rule):
        return _wrap(member)
    made = member() if callable(member) and not isinstance(member, ScheduleRule) else member
    if isinstance(made, ScheduleRule) or hasattr(made, "_outer"):  # the latter: derived in Python
        return complete(made)
    raise UsageError(f"{type(made).__name__} is no schedule rule: declare it with space.rule")


def _wrap(rule: Rule) -> Any:
    from tvm.ir.utils import derived_object
    from tvm.s_tir.meta_schedule.schedule_rule import PyScheduleRule

    @derived_object
    class Declared(PyScheduleRule):  # type: ignore[misc]
        def _initialize_with_tune_context(self, context: Any) -> None:
            pass

        def apply(self, sch: Any, block: Any) -> list[Any]:
            if not _applies(rule, sch.get(block)):
                return [sch]
            if (noted := _APPLIED.get()) is not None:
                noted.add(rule.name)
            return schedules_of(rule.function(sch, block), sch)

        def clone(self) -> Any:
            return Declared()

    return Declared()


def _applies(rule: Rule, block: Any) -> bool:
    named = fnmatch.fnmatchcase(str(block.name_hint), rule.blocks)
    return named and (not rule.annotation or rule.annotation in block.annotations)


def _generator(part: Stock) -> Any:
    from tvm.s_tir.meta_schedule import SpaceGenerator

    given = part.generator
    made = given.clone() if isinstance(given, SpaceGenerator) else given()
    if not isinstance(made, SpaceGenerator):
        raise UsageError(f"{part.name}: {type(made).__name__} is no SpaceGenerator")
    return complete(made)
