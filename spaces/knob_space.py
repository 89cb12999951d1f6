"""The space that a template's knobs span over one task: draft cheaply, then write down."""

from __future__ import annotations

import random
from collections.abc import Callable

from spaces.knobs import Knobs, Template, draw, nudge, recall, remember
from spaces.realize import InvalidCandidate, canonical_payload, first_line, new_schedule
from spaces.realize import task_module
from spaces.trace_space import Point, code_hash
from tuner.candidate import Candidate, CandidateKind, Draft
from tuner.task import Task

_DRAWN = 64
_NUDGED = 12
_TRIES = 40
_GREED = 3.0


class KnobSpace:
    """All settings of one template for one task.

    Each draft draws many settings, drops those the hardware's limits rule out, and takes one of
    the rest: the better its analytic estimate, the likelier. Same draft, same point, anywhere.
    """

    def __init__(self, task: Task, template: Template) -> None:
        self._module = task_module(task.module)
        self._template = template

    @property
    def name(self) -> str:
        """What candidates of this space say they come from."""
        return self._template.name

    def realize_draft(self, draft: Draft) -> Point:
        """Carry out a draft.

        Raises:
            InvalidCandidate: no feasible setting was found, or TVM refused it.
        """
        rng = random.Random(draft.seed)
        known = None
        if draft.parent is not None and draft.parent.space == self.name:
            known = recall(draft.parent.payload)
        if known is None:
            knobs = self._best_of(_DRAWN, lambda: draw(self._template, rng), rng)
        else:
            parent = known
            knobs = self._best_of(_NUDGED, lambda: nudge(self._template, parent, rng), rng, known)
        return self.write_down(knobs)

    def write_down(self, knobs: Knobs) -> Point:
        """The point that some knobs stand for.

        Raises:
            InvalidCandidate: TVM refused them.
        """
        schedule = new_schedule(self._module)
        remember(schedule, knobs)
        try:
            self._template.apply(schedule, knobs)
        except Exception as error:  # TVM raises whatever its C++ side threw
            raise InvalidCandidate(f"{self.name}: {first_line(error)}") from error
        payload = canonical_payload(schedule.trace)
        candidate = Candidate(CandidateKind.TRACE, payload, self.name)
        return Point(candidate, schedule, code_hash(schedule.mod))

    def _best_of(
        self,
        number: int,
        make: Callable[[], dict[str, int]],
        rng: random.Random,
        parent: Knobs | None = None,
    ) -> Knobs:
        """One of `number` settings, the likelier the better its estimate."""
        found: dict[tuple[int, ...], dict[str, int]] = {}
        for _ in range(number * _TRIES):
            knobs = make()
            if knobs != parent and not self._template.refusal(knobs):
                found[tuple(knobs.values())] = knobs
                if len(found) == number:
                    break
        if not found:
            raise InvalidCandidate(f"{self.name}: no feasible setting")
        ranked = sorted(found.values(), key=lambda k: (self._template.cost_s(k), *k.values()))
        return ranked[int(len(ranked) * rng.random() ** _GREED)]
