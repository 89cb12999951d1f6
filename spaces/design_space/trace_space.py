"""A space of traces: those that TVM's rules, or a user's, span over one task."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from functools import cached_property
from typing import Any

from spaces.design_space.base import Predict
from spaces.design_space.point import Point
from spaces.design_space.schedule_rules import RuleSet, postprocess, task_rules
from spaces.ir.schedules import (
    InvalidCandidate,
    canonical_payload,
    code_hash,
    new_schedule,
    replayed,
    task_module,
)
from tuner.candidate import Candidate, CandidateKind, Draft
from tuner.errors import first_line
from tuner.task import Task

_MORE_MUTATIONS = 0.5
_MAX_MUTATIONS = 5
_REDRAWN = 0.5
"""Share of mutations that draw a decision anew, where that is allowed."""


class TraceSpace:
    """All schedules that some rules allow for one task.

    The rules are applied once, when the first draft comes, and leave a few sketches: traces whose
    sampling instructions are open. A sample replays one of them with random decisions; a mutation
    changes decisions of a parent. The same draft gives the same point in any process.

    Args:
        rules: None is those that TVM's own tuner would use.
    """

    def __init__(self, task: Task, rules: RuleSet | None = None) -> None:
        self._module = task_module(task.module)
        self._rules = rules or task_rules(task.module, task.target)

    @property
    def name(self) -> str:
        """The name of the space, which its candidates carry."""
        return self._rules.name

    @cached_property
    def sketches(self) -> Sequence[Any]:
        """Traces that span the space."""
        return [schedule.trace for schedule in self._rules.sketch()]

    @cached_property
    def points(self) -> int | None:
        """The number of points where nothing is drawn, else None."""
        drawn = any(draws(instruction) for trace in self.sketches for instruction in trace.insts)
        return None if drawn else len(self.sketches)

    def realize_draft(self, draft: Draft, predict: Predict | None = None) -> Point:
        """Carry out a draft; a cost model has no say in it.

        Raises:
            InvalidCandidate: the random choices gave a schedule that is not valid.
        """
        rng = random.Random(draft.seed)
        if draft.parent is None or draft.parent.space != self.name:
            schedule = self._sample(rng)
        else:
            schedule = self._mutate(draft.parent, rng)
        candidate = Candidate(CandidateKind.TRACE, canonical_payload(schedule.trace), self.name)
        postprocess(schedule, self._rules)
        return Point(candidate, schedule, code_hash(schedule.mod))

    def write(self, candidate: Candidate) -> Any:
        """See `spaces.design_space.base.Space`."""
        schedule = replayed(self._module, candidate.payload)
        postprocess(schedule, self._rules)
        return schedule

    def _sample(self, rng: random.Random) -> Any:
        from tvm.s_tir.schedule import Trace

        if not self.sketches:
            raise InvalidCandidate(f"{self.name}: no rule applies")
        sketch = rng.choice(self.sketches)
        return self._replay(Trace(sketch.insts, {}), rng)

    def _mutate(self, parent: Candidate, rng: random.Random) -> Any:
        from tvm.s_tir.schedule import Trace

        schedule = new_schedule(self._module)
        Trace.apply_json_to_schedule(json.loads(parent.payload), schedule)
        trace = schedule.trace
        changes = 1
        while changes < _MAX_MUTATIONS and rng.random() < _MORE_MUTATIONS:
            changes += 1
        changed = False
        for _ in range(changes):
            mutant = self._mutant(trace, rng)
            if mutant is not None:
                trace, changed = mutant, True
        if not changed:
            raise InvalidCandidate("no mutator applies")
        return self._replay(trace, rng)

    def _mutant(self, trace: Any, rng: random.Random) -> Any:
        """The trace after one change; None where there was nothing to change."""
        from tvm.s_tir.meta_schedule import _ffi_api

        mutant = None
        if self._rules.mutators and not (self._rules.redraws and rng.random() < _REDRAWN):
            mutators, weights = zip(*self._rules.mutators, strict=True)
            mutator = rng.choices(mutators, weights)[0]
            # The public `apply` draws its own seed; a draft must give the same point anywhere.
            mutant = _ffi_api.MutatorApply(mutator, trace, rng.randrange(1, 2**31 - 1))
        return _redrawn(trace, rng) if mutant is None and self._rules.redraws else mutant

    def _replay(self, trace: Any, rng: random.Random) -> Any:
        schedule = new_schedule(self._module, rng.randrange(1, 2**31 - 1))
        try:
            trace.apply_to_schedule(schedule, True)
        except Exception as error:  # TVM raises whatever its C++ side threw
            raise InvalidCandidate(f"trace does not apply: {first_line(error)}") from error
        return schedule


def draws(instruction: Any) -> bool:
    """Whether an instruction of a trace draws a decision."""
    return str(instruction.kind.name).startswith("Sample")


def _redrawn(trace: Any, rng: random.Random) -> Any:
    """A trace with one of its decisions open; None where it has none."""
    from tvm.s_tir.schedule import Trace

    drawn = [instruction for instruction in trace.insts if draws(instruction)]
    if not drawn:
        return None
    opened = rng.choice(drawn)
    kept = {i: trace.get_decision(i) for i in drawn if not i.same_as(opened)}
    return Trace(trace.insts, kept)
