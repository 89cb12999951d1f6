"""A space of what a function does, run anew for each point, as its control flow follows its draws.

The RFC's replay of functions (`ReplayFunc`). A point is the trace that the function left, dead code
included: its decisions are all that the function drew, so that a mutation can run it again with one
of them changed, and builders replay the trace without the function.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

from spaces.design_space.analysis.draws import draws
from spaces.design_space.declared.drawing import drawing_schedule
from spaces.design_space.declared.rules import schedules_of
from spaces.design_space.point import Point
from spaces.design_space.schedule_rules import RuleSet, postprocess
from spaces.ir.schedules import (
    InvalidCandidate,
    code_hash,
    replay,
    task_module,
    whole_payload,
)
from tuner.candidate import Candidate, CandidateKind, Draft
from tuner.errors import describe_error
from tuner.task import Task

_MORE_CHANGES = 0.5
Function = Callable[[Any], Any]


class OpaqueSpace:
    """All schedules that a function makes of one task's program.

    Args:
        rules: name and post-processors.
    """

    def __init__(self, task: Task, function: Function, rules: RuleSet) -> None:
        self._module = task_module(task.module)
        self._function = function
        self._rules = rules

    @property
    def name(self) -> str:
        """The name of the space, which its candidates carry."""
        return self._rules.name

    @cached_property
    def points(self) -> int | None:
        """The number of points where nothing is drawn, else None.

        Raises:
            Exception: whatever the function raises.
        """
        found = schedules_of(*self._run([], 1))
        drawn = any(draws(i) for schedule in found for i in schedule.trace.insts)
        return None if drawn else len(found)

    def realize_draft(self, draft: Draft) -> Point:
        """Carry out a draft.

        Raises:
            InvalidCandidate: the function raised with what it drew, or gave nothing.
        """
        rng = random.Random(draft.seed)
        mine = draft.parent is not None and draft.parent.space == self.name
        given = _change(_decisions(draft.parent), rng) if mine and draft.parent else []
        try:
            found = schedules_of(*self._run(given, rng.randrange(1, 2**31 - 1)))
        except Exception as error:  # a user's code may raise anything, and so may TVM
            raise InvalidCandidate(f"{self.name}: {describe_error(error)}") from error
        if not found:
            raise InvalidCandidate(f"{self.name}: refused what was drawn")
        schedule = rng.choice(found)
        candidate = Candidate(CandidateKind.TRACE, whole_payload(schedule.trace), self.name)
        postprocess(schedule, self._rules)
        return Point(candidate, schedule, code_hash(schedule.mod))

    def write(self, candidate: Candidate) -> Any:
        """See `spaces.design_space.base.Space`."""
        schedule = replay(self._module, candidate.payload)
        postprocess(schedule, self._rules)
        return schedule

    def _run(self, given: Sequence[Any], seed: int) -> tuple[Any, Any]:
        """What the function returns, and the schedule that it was given."""
        schedule = drawing_schedule(self._module, seed, given)
        return self._function(schedule), schedule


def _decisions(parent: Candidate) -> list[Any]:
    """What the function drew for a candidate, in order."""
    instructions, decisions = json.loads(parent.payload)
    known = {int(at): decision for at, decision in decisions}
    return [known[at] for at, (kind, *_) in enumerate(instructions) if kind.startswith("Sample")]


def _change(decisions: list[Any], rng: random.Random) -> list[Any]:
    """Decisions, some of them left to be drawn anew."""
    changed: list[Any] = list(decisions)
    while changed:
        changed[rng.randrange(len(changed))] = None
        if rng.random() >= _MORE_CHANGES:
            break
    return changed
