"""The space of a task: those that its user declares, those of its templates, and the one that TVM's
rules span."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cached_property

from spaces.design_space.base import Space
from spaces.design_space.declared.spaces import DeclaredSpace, find_declared, with_ours
from spaces.design_space.knob_space import KnobSpace
from spaces.design_space.point import Point
from spaces.design_space.schedule_rules import RULES
from spaces.design_space.theirs import postprocess_theirs
from spaces.design_space.trace_space import TraceSpace
from spaces.features.vectors import Vector
from spaces.ir.schedules import InvalidCandidate, code_hash
from spaces.templates.base import FAMILY as TEMPLATE
from spaces.templates.base import KnowsRules
from spaces.templates.registry import templates_of
from tuner.candidate import Candidate, Draft, family, knobs_of
from tuner.layers import OURS, Layers
from tuner.measure import Settings
from tuner.search.dynamic.kernel_table import Kernel
from tuner.task import Task

_RULES_SHARE = 0.1
"""Share of fresh samples that come from the rules, until trials tell."""
_DRAFTS = 2
"""Drafts for each point of a space, after which most were drafted."""
_FEW = 100
_TRUST = 2
"""The exponent of estimated speed in the odds of a template."""

_Weights = Mapping[str, float]
"""Factors on the odds of spaces that the search has learned, by name."""


class TaskSpace:
    """The union of a task's spaces.

    A mutation stays in its parent's space. The first fresh samples are one of each declared space;
    later ones come from any of these, or from what is known here, in equal shares until trials tell
    which is worth more. Of what is known here a fresh sample comes from a template where one fits,
    and now and then from the rules: a template is a bet, and the rules are the hedge. Where the
    templates have few settings, most drafts go to the rules once these must all have been seen. No
    draft goes to them where they know no symbolic dimensions, or where a template needs no hedge.

    Args:
        layers: of the user's: mutators, and post-processors.

    Attributes:
        templates: the spaces of the templates that fit the task.
    """

    def __init__(self, task: Task, layers: Layers = OURS) -> None:
        self._task = task
        self._layers = layers
        self._declared = find_declared(task, layers.mutators)
        self._ours = not self._declared or with_ours(task)
        templates = templates_of(task) if self._ours else []
        self.templates = [KnobSpace(task, template) for template in templates]

    def realize_draft(self, draft: Draft) -> Point:
        """Carry out a draft.

        Raises:
            InvalidCandidate: the random choices gave a schedule that is not valid.
            LayerFailed: a user's mutator or post-processor is at fault.
        """
        space = self._space_of(draft)
        if isinstance(space, KnobSpace):
            space = space.at(draft.instance)
        point = space.realize_draft(draft)
        if self._layers.postprocs and point.schedule is not None:
            postprocess_theirs(point.schedule, self._layers.postprocs)
            return replace(point, code_hash=code_hash(point.schedule.mod))
        return point

    def settings(self, draft: Draft) -> tuple[Settings, ...]:
        """The settings that a draft asks to be listed; none for a task with declared spaces, or
        with symbolic dimensions, whose points are drafted one by one."""
        if self._declared or self._task.shapes:
            return ()
        found = (space.settings(draft) for space in self.templates)
        return tuple(settings for settings in found if len(settings))

    def kernel(self, candidate: Candidate) -> Kernel | None:
        """The data of a kernel for many shapes, without scheduling it; None for any other one."""
        for space in self.templates:
            if space.name == candidate.space:
                return space.kernel(candidate)
        return None

    def _space_of(self, draft: Draft) -> Space:
        rng = random.Random(~draft.seed)
        if self._declared and (space := self._declared_for(draft, rng)) is not None:
            return space
        weights = dict(draft.weights)
        if self.templates and not self._hedged:
            known = [s for s in self.templates if draft.parent and s.name == draft.parent.space]
            return known[0] if known else self._any_template(rng, draft, weights)
        searched_through = draft.number > _DRAFTS * self._settings
        if searched_through and rng.random() < _FEW / (_FEW + self._settings):
            return self._rules
        if draft.parent is not None:
            for template in self.templates:
                if template.name == draft.parent.space:
                    return template
        fresh = draft.parent is None or family(draft.parent.space) != RULES
        if self.templates and fresh and rng.random() >= self._rules_share(weights):
            return self._any_template(rng, draft, weights)
        return self._rules

    def _declared_for(self, draft: Draft, rng: random.Random) -> Space | None:
        """The declared space that a draft belongs to; None where it is for what is known here.

        Raises:
            InvalidCandidate: all points of the spaces were drafted.
        """
        if draft.parent is not None:
            named = (s for s in self._declared if s.name == draft.parent.space)
            if (space := next(named, None)) is None and self._ours:
                return None  # it is a template's, or the rules'
            if space is not None and space.points is None:
                return space
        elif draft.number <= len(self._declared):
            return self._declared[draft.number - 1]
        weights = dict(draft.weights)
        odds = [self._odds(space, draft.number, weights) for space in self._declared]
        if self._ours:
            odds.append(max(_factor(weights, TEMPLATE), _factor(weights, RULES)))
        if not any(odds):
            raise InvalidCandidate("all schedules of the declared spaces were drafted")
        return rng.choices([*self._declared, None][: len(odds)], odds)[0]

    def _odds(self, space: DeclaredSpace, number: int, weights: _Weights) -> float:
        """The odds of a declared space for draft `number`; 0 once all its points must be known."""
        most = len(self._declared) * _DRAFTS * 2 * (space.points or 0)
        return 0.0 if space.points is not None and number > most else weights.get(space.name, 1.0)

    def _rules_share(self, weights: _Weights) -> float:
        """The share of the rules in fresh samples of what is known here."""
        rules = _RULES_SHARE * _factor(weights, RULES)
        return rules / (rules + (1 - _RULES_SHARE) * _factor(weights, TEMPLATE))

    def _any_template(self, rng: random.Random, draft: Draft, weights: _Weights) -> KnobSpace:
        """A random template, the likelier the faster it is estimated to be on the draft's shape,
        and the faster it has been."""
        if len(self.templates) == 1:
            return self.templates[0]
        estimates = [space.at(draft.instance).least_s for space in self.templates]
        odds = [
            0.0 if math.isinf(s) else s**-_TRUST * weights.get(space.name, 1.0)
            for s, space in zip(estimates, self.templates, strict=True)
        ]
        return rng.choices(self.templates, odds if any(odds) else None)[0]

    @cached_property
    def _hedged(self) -> bool:
        """Whether the rules are searched beside the templates."""
        templates = [space.template for space in self.templates]
        sure = any(isinstance(t, KnowsRules) and not t.hedged for t in templates)
        return not self._task.shapes and not sure

    @cached_property
    def _settings(self) -> int:
        """The number of feasible settings that the templates have ranked."""
        return sum(len(space.ranked) for space in self.templates)

    @cached_property
    def _rules(self) -> TraceSpace:
        """The rules' space: to make it takes a while, and may never be needed."""
        return TraceSpace(self._task, mutators=self._layers.mutators)


def _factor(weights: _Weights, of: str) -> float:
    """The largest factor of the spaces of a family; 1 for one that was not judged."""
    return max((factor for name, factor in weights.items() if family(name) == of), default=1.0)


def describe_settings(task: Task) -> Callable[[Candidate], Vector | None]:
    """Gives the features of a static task's candidates that are settings of its templates; None for
    others."""
    spaces: dict[str, KnobSpace] = {}

    def describe(candidate: Candidate) -> Vector | None:
        knobs = knobs_of(candidate)
        if task.shapes or knobs is None:
            return None
        if not spaces:
            spaces.update({space.name: space for space in TaskSpace(task).templates})
        space = spaces.get(candidate.space)
        if space is None or knobs.keys() != space.template.choices.keys():
            return None  # it is of another version of the template
        return space.describe(knobs).features

    return describe
