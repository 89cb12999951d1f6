"""The space that TVM's rules span over one task: sample, mutate, check."""

from __future__ import annotations

import json
import random
from typing import Any

from spaces.design_space.point import Point
from spaces.design_space.schedule_rules import postprocess, task_rules
from spaces.ir.schedules import (
    InvalidCandidate,
    canonical_payload,
    code_hash,
    new_schedule,
    task_module,
)
from tuner.candidate import Candidate, CandidateKind, Draft
from tuner.errors import first_line
from tuner.task import Task

_MORE_MUTATIONS = 0.5
_MAX_MUTATIONS = 5


class TraceSpace:
    """All schedules that the rules of a target allow for one task.

    The rules are applied once and leave a few sketches: traces whose sampling instructions are
    open. A sample replays one of them with random decisions; a mutation changes decisions of a
    parent. The same draft gives the same point in any process.
    """

    def __init__(self, task: Task) -> None:
        self._module = task_module(task.module)
        self._rules = task_rules(task.module, task.target)
        self._sketches = [s.trace for s in self._rules.context.generate_design_space()]

    @property
    def name(self) -> str:
        """The name of the space, which its candidates carry."""
        return self._rules.name

    def realize_draft(self, draft: Draft) -> Point:
        """Carry out a draft.

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

    def _sample(self, rng: random.Random) -> Any:
        from tvm.s_tir.schedule import Trace

        sketch = rng.choice(self._sketches)
        return self._replay(Trace(sketch.insts, {}), rng)

    def _mutate(self, parent: Candidate, rng: random.Random) -> Any:
        from tvm.s_tir.meta_schedule import _ffi_api
        from tvm.s_tir.schedule import Trace

        schedule = new_schedule(self._module)
        Trace.apply_json_to_schedule(json.loads(parent.payload), schedule)
        trace = schedule.trace
        mutators, weights = zip(*self._rules.mutators, strict=True)
        changes = 1
        while changes < _MAX_MUTATIONS and rng.random() < _MORE_MUTATIONS:
            changes += 1
        changed = False
        for _ in range(changes):
            mutator = rng.choices(mutators, weights)[0]
            # The public `apply` draws its own seed; a draft must give the same point anywhere.
            mutant = _ffi_api.MutatorApply(mutator, trace, rng.randrange(1, 2**31 - 1))
            if mutant is not None:
                trace, changed = mutant, True
        if not changed:
            raise InvalidCandidate("no mutator applies")
        return self._replay(trace, rng)

    def _replay(self, trace: Any, rng: random.Random) -> Any:
        schedule = new_schedule(self._module, rng.randrange(1, 2**31 - 1))
        try:
            trace.apply_to_schedule(schedule, True)
        except Exception as error:  # TVM raises whatever its C++ side threw
            raise InvalidCandidate(f"trace does not apply: {first_line(error)}") from error
        return schedule
