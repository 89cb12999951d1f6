"""The space that a template's knobs span over one task: points are chosen without scheduling."""

from __future__ import annotations

import math
import zlib
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np

from spaces.design_space.point import Point
from spaces.features.knob_features import knob_vectors, shape_traits
from spaces.features.vectors import Matrix
from spaces.ir.guard import note
from spaces.ir.schedules import InvalidCandidate, new_schedule, task_module
from spaces.templates.base import (
    Columns,
    Costs,
    HasTwins,
    Knobs,
    PadsShapes,
    ShapedTemplate,
    Template,
    draw,
    every,
    nudge,
)
from tuner.candidate import Candidate, Draft, knobs_of, of_knobs
from tuner.errors import first_line
from tuner.measure import OnShapes, Settings
from tuner.search.dynamic.kernel_table import Kernel
from tuner.task import Instance, Task

_DRAWN = 1 << 16
_KEPT = 4096
_ENOUGH, _MORE_DRAWS = 1500, 6
_SHORTLIST = 96
_NUDGED = 64
_LISTED = 256
"""Mutations of a parent that a listing is chosen from."""
_GREED = 3.0


class KnobSpace:
    """All settings of one template for one task.

    All settings, or thousands of them where there are more, are estimated once: those that limits
    rule out are dropped, the others ranked by the template's estimate. A fresh draft chooses among
    a hundred of these, the better ranked the likelier; a mutation among its parent's neighbours. A
    listing has them all. The same draft gives the same point, in any process. Nothing is scheduled
    here: a point is written by the builder that compiles it.
    """

    def __init__(self, task: Task, template: Template, whole: KnobSpace | None = None) -> None:
        self._template = template
        self._whole = whole or self
        self._seed = zlib.crc32(f"{task.key} {template.name}".encode())
        self._at: dict[Instance, KnobSpace] = {}
        self._task = task

    def at(self, instance: Instance) -> KnobSpace:
        """The same space with limits and estimates of one of the task's shapes."""
        if not (instance and isinstance(self._template, ShapedTemplate)):
            return self
        if instance not in self._at:
            self._at[instance] = KnobSpace(self._task, self._template.at(instance), self)
        return self._at[instance]

    @property
    def name(self) -> str:
        """The name of the space, which its candidates carry."""
        return self._template.name

    @property
    def template(self) -> Template:
        """The template whose knobs span this space."""
        return self._template

    def realize_draft(self, draft: Draft) -> Point:
        """Carry out a draft.

        Raises:
            InvalidCandidate: no feasible setting was found.
        """
        rng = np.random.default_rng(draft.seed)
        known = None
        if draft.parent is not None and draft.parent.space == self.name:
            known = knobs_of(draft.parent)
        if known is None:
            shortlist = self._some_of_the_best(rng)
        else:
            shortlist = self._rank(nudge(self._template, known, _NUDGED, rng), known)
        if not shortlist:
            raise InvalidCandidate(f"{self.name}: no feasible setting")
        # The data of a point must not depend on the shape for which it was searched.
        point = self._whole.describe(shortlist[int(len(shortlist) * rng.random() ** _GREED)])
        return replace(point, space_points=self.size)

    def settings(self, draft: Draft) -> Settings:
        """The settings near a draft's parent, that one first, where it is of this space; without a
        parent those of `ranked`; else none."""
        if draft.parent is None:
            return self._tabulate(self.ranked)
        known = knobs_of(draft.parent) if draft.parent.space == self.name else None
        if known is None or known.keys() != self._template.choices.keys():
            return self._tabulate([])  # of another template, or of another version of this one
        near = nudge(self._template, known, _LISTED, np.random.default_rng(draft.seed))
        return self._tabulate([known, *self._rank(near, known)])

    def _tabulate(self, settings: list[dict[str, int]]) -> Settings:
        vectors, _ = self._describe(settings)
        knobs = tuple(self._template.choices)
        values = [[setting[name] for name in knobs] for setting in settings]
        table = np.array(values, dtype=np.int32).reshape(len(settings), len(knobs))
        return Settings(self.name, knobs, table, vectors)

    @cached_property
    def size(self) -> int:
        """The number of settings, those that are not feasible too."""
        return math.prod(len(values) for values in self._template.choices.values())

    @cached_property
    def ranked(self) -> list[dict[str, int]]:
        """Feasible settings, the best estimate first."""
        if self.size <= _DRAWN:
            return self._rank(every(self._template))
        rng = np.random.default_rng(self._seed)
        found = self._rank(draw(self._template, _DRAWN, rng))
        for _ in range(_MORE_DRAWS if self._task.shapes else 0):
            if len(found) >= _ENOUGH:
                break  # for one shape of many, few settings may be feasible
            more = draw(self._template, _DRAWN, rng)
            known = {name: np.array([s[name] for s in found], dtype=np.int64) for name in more}
            both = {name: np.concatenate([known[name], more[name]]) for name in more}
            found = self._rank(both)
        return found

    @cached_property
    def least_s(self) -> float:
        """The lowest estimate, seconds; infinite where nothing is feasible."""
        if not self.ranked:
            return math.inf
        return float(self._describe(self.ranked[:1])[1][0])

    def _some_of_the_best(self, rng: np.random.Generator) -> list[dict[str, int]]:
        """A random shortlist of the ranked settings, the best estimated the likeliest."""
        number = min(_SHORTLIST, len(self.ranked))
        places = (len(self.ranked) * rng.random(number) ** _GREED).astype(np.int64)
        return [self.ranked[int(place)] for place in np.unique(places)]

    def _describe(self, settings: list[dict[str, int]]) -> tuple[Matrix, Costs]:
        """Feature vectors of settings, and their estimates."""
        columns = {
            name: np.array([s[name] for s in settings], dtype=np.int64)
            for name in self._template.choices
        }
        costs = self._template.costs_s(columns)
        return knob_vectors(self._template, columns, costs), costs

    def describe(self, knobs: Knobs) -> Point:
        """The point that some knobs stand for, with what is known of it before it is written."""
        vectors, costs = self._describe([dict(knobs)])
        return Point(
            of_knobs(knobs, self.name),
            features=vectors[0],
            estimate_s=float(costs[0]),
            on_shapes=self._on_shapes(knobs),
        )

    def write(self, candidate: Candidate) -> Any:
        """Schedule the task's program, or make another of it. A trace keeps the knobs.

        Raises:
            InvalidCandidate: TVM refused them.
        """
        knobs = knobs_of(candidate) or {}
        module = task_module(self._task.module)
        try:
            return self._template.apply(new_schedule(module), knobs)
        except Exception as error:  # TVM raises whatever its C++ side threw
            note(error, f"a setting of {self.name}, {self._task.name}")
            raise InvalidCandidate(f"{self.name}: {first_line(error)}") from error

    def _on_shapes(self, knobs: Knobs) -> OnShapes | None:
        """Predictions of a setting on each of the task's shapes; None for a task without shapes."""
        if not (self._task.shapes and isinstance(self._template, ShapedTemplate)):
            return None
        return OnShapes(
            tuple(map(float, self._template.shape_costs_s(knobs))),
            self._template.layout(knobs),
            shape_traits(self._template, knobs, len(self._task.shapes)),
        )

    def kernel(self, candidate: Candidate) -> Kernel | None:
        """The kernel data of a candidate that serves many shapes; None for any other candidate."""
        knobs = knobs_of(candidate)
        if knobs is None or knobs.keys() != self._template.choices.keys():
            return None  # it was made by another version of the template
        on_shapes = self._on_shapes(knobs)
        if on_shapes is None:
            return None
        vectors, _ = self._describe([knobs])
        kernel = Kernel(candidate, tuple(vectors[0].tolist()), on_shapes)
        if not isinstance(self._template, PadsShapes):
            return kernel
        return replace(
            kernel,
            padding=tuple(map(float, self._template.padding(knobs))),
            work=tuple(map(float, self._template.shape_work)),
        )

    def _rank(self, columns: Columns, parent: Knobs | None = None) -> list[dict[str, int]]:
        """Distinct feasible settings without the parent, the best estimates first."""
        if isinstance(self._template, HasTwins):
            columns = self._template.canonical(columns)
        costs = self._template.costs_s(columns)
        order = np.argsort(costs, kind="stable")[: int(np.isfinite(costs).sum())]
        rows = np.stack([values[order] for values in columns.values()], axis=1)
        _, first = np.unique(rows, axis=0, return_index=True)
        kept = rows[np.sort(first)[:_KEPT]].tolist()
        found = (dict(zip(columns, row, strict=True)) for row in kept)
        return [knobs for knobs in found if knobs != parent]
