"""The space that a template's knobs span over one task: draft cheaply, then write down."""

from __future__ import annotations

import zlib
from functools import cached_property

import numpy as np

from spaces.knobs import Columns, Knobs, Template, draw, nudge, recall, remember, setting
from spaces.realize import (
    InvalidCandidate,
    canonical_payload,
    first_line,
    new_schedule,
    task_module,
)
from spaces.trace_space import Point, code_hash
from tuner.candidate import Candidate, CandidateKind, Draft
from tuner.task import Task

_DRAWN = 1 << 16
_KEPT = 4096
_NUDGED = 48
_GREED = 3.0
_NUDGE_GREED = 1.5


class KnobSpace:
    """All settings of one template for one task.

    Thousands of settings are drawn once, those ruled out by limits dropped, and the rest ranked by
    the template's estimate. A fresh draft takes one of these, the better ranked the likelier; a
    mutation takes one of its parent's neighbours in the same way. Same draft, same point, in any
    process.
    """

    def __init__(self, task: Task, template: Template) -> None:
        self._module = task_module(task.module)
        self._template = template
        self._seed = zlib.crc32(f"{task.key} {template.name}".encode())

    @property
    def name(self) -> str:
        """What candidates of this space say they come from."""
        return self._template.name

    @property
    def template(self) -> Template:
        """Whose knobs these are."""
        return self._template

    def realize_draft(self, draft: Draft) -> Point:
        """Carry out a draft.

        Raises:
            InvalidCandidate: no feasible setting was found, or TVM refused it.
        """
        rng = np.random.default_rng(draft.seed)
        known = None
        if draft.parent is not None and draft.parent.space == self.name:
            known = recall(draft.parent.payload)
        if known is None:
            ranked, greed = self.ranked, _GREED
        else:
            ranked = self._rank(nudge(self._template, known, _NUDGED, rng), known)
            greed = _NUDGE_GREED
        if not ranked:
            raise InvalidCandidate(f"{self.name}: no feasible setting")
        return self.write_down(ranked[int(len(ranked) * rng.random() ** greed)])

    @cached_property
    def ranked(self) -> list[dict[str, int]]:
        """Feasible settings, the best estimate first."""
        rng = np.random.default_rng(self._seed)
        return self._rank(draw(self._template, _DRAWN, rng))[:_KEPT]

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

    def _rank(self, columns: Columns, parent: Knobs | None = None) -> list[dict[str, int]]:
        """Feasible settings without the parent, none twice, the best estimate first."""
        costs = self._template.costs_s(columns)
        order = np.argsort(costs, kind="stable")[: int(np.isfinite(costs).sum())]
        found: dict[tuple[int, ...], dict[str, int]] = {}
        for row in order:
            knobs = setting(columns, int(row))
            if knobs != parent:
                found.setdefault(tuple(knobs.values()), knobs)
        return list(found.values())
