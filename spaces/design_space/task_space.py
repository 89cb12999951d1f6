"""The space of a task: those of its templates, and the one that TVM's rules span."""

from __future__ import annotations

import math
import random
from functools import cached_property

from spaces.design_space.knob_space import KnobSpace, Predict
from spaces.design_space.point import Point
from spaces.design_space.trace_space import TraceSpace
from spaces.templates.registry import templates_of
from tuner.candidate import Candidate, Draft
from tuner.search.dynamic.kernel_table import Kernel
from tuner.task import Task

_RULES_SHARE = 0.1
_DRAFTS = 2
"""Drafts for each setting of the templates, after which most settings were drafted."""
_FEW = 100
_TRUST = 2
"""The exponent of estimated speed in the odds of a template."""


class TaskSpace:
    """The union of a task's spaces.

    A mutation stays in its parent's space. A fresh sample comes from a template where one fits,
    and now and then from the rules: a template is a bet, and the rules are the hedge. Where the
    templates have few settings, most drafts go to the rules once these must all have been seen.
    """

    def __init__(self, task: Task) -> None:
        self._task = task
        self._templates = [KnobSpace(task, template) for template in templates_of(task)]
        self._rules: TraceSpace | None = None

    def realize_draft(self, draft: Draft, predict: Predict | None = None) -> Point:
        """Carry out a draft, guided by a cost model where there is one.

        Raises:
            InvalidCandidate: the random choices gave a schedule that is not valid.
        """
        space = self._space_of(draft)
        if isinstance(space, KnobSpace):
            return space.at(draft.instance).realize_draft(draft, predict)
        return space.realize_draft(draft)

    def kernel(self, candidate: Candidate) -> Kernel | None:
        """The data of a kernel for many shapes, without scheduling it; None for any other one."""
        for space in self._templates:
            if space.name == candidate.space:
                return space.kernel(candidate)
        return None

    def _space_of(self, draft: Draft) -> KnobSpace | TraceSpace:
        rng = random.Random(~draft.seed)
        if self._task.shapes and self._templates:  # the rules know no symbolic dimensions
            known = [s for s in self._templates if draft.parent and s.name == draft.parent.space]
            return known[0] if known else self._any_template(rng, draft)
        searched_through = draft.number > _DRAFTS * self._settings
        if searched_through and rng.random() < _FEW / (_FEW + self._settings):
            return self._of_rules()
        if draft.parent is not None:
            for space in self._templates:
                if space.name == draft.parent.space:
                    return space
        fresh = draft.parent is None or not draft.parent.space.startswith("rules:")
        if self._templates and fresh and rng.random() >= _RULES_SHARE:
            return self._any_template(rng, draft)
        return self._of_rules()

    def _any_template(self, rng: random.Random, draft: Draft) -> KnobSpace:
        """A random template, the likelier the faster it is estimated to be on the draft's shape."""
        if len(self._templates) == 1:
            return self._templates[0]
        estimates = [space.at(draft.instance).least_s for space in self._templates]
        weights = [0.0 if math.isinf(s) else s**-_TRUST for s in estimates]
        return rng.choices(self._templates, weights if any(weights) else None)[0]

    @cached_property
    def _settings(self) -> int:
        """The number of feasible settings that the templates have ranked."""
        return sum(len(space.ranked) for space in self._templates)

    def _of_rules(self) -> TraceSpace:
        if self._rules is None:  # applying the rules takes a while, and may never be needed
            self._rules = TraceSpace(self._task)
        return self._rules
