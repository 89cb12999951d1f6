"""Features of a setting of knobs for a cost model, without lowering it."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from spaces.templates.base import Columns, Costs, Knobs, Template
from tuner.cost_models.process import ESTIMATE_COLUMN

Floats = npt.NDArray[np.float32]

MOST_KNOBS = 16
TRAITS = 28
KNOB_LENGTH = 2 + MOST_KNOBS + TRAITS
_SMALLEST_S = 1e-9


@runtime_checkable
class HasTraits(Protocol):
    """A template with features of settings besides their knobs and their cost."""

    def traits(self, columns: Columns) -> Floats:
        """At most `TRAITS` numbers for each setting: one row each.

        Numbers without units, and logarithms, let a model use for one task what it learned of
        others.
        """


@runtime_checkable
class HasShapeTraits(Protocol):
    """A template with features of a setting on each of a task's shapes, besides its cost there."""

    def shape_traits(self, knobs: Knobs) -> Floats:
        """At most `TRAITS` numbers for each of the shapes: one row each; see `HasTraits`."""


def knob_vectors(template: Template, columns: Columns, costs_s: Costs) -> Floats:
    """`KNOB_LENGTH` numbers for each setting: that it is one, its cost, its knobs, its traits."""
    number = len(costs_s)
    vectors = np.zeros((number, KNOB_LENGTH), dtype=np.float32)
    vectors[:, 0] = 1.0
    vectors[:, ESTIMATE_COLUMN] = np.log2(
        np.maximum(np.where(np.isfinite(costs_s), costs_s, 1.0), _SMALLEST_S)
    )
    for place, name in enumerate(list(template.choices)[:MOST_KNOBS]):
        vectors[:, 2 + place] = np.log2(1.0 + columns[name])
    if isinstance(template, HasTraits):
        traits = template.traits(columns)
        vectors[:, 2 + MOST_KNOBS : 2 + MOST_KNOBS + traits.shape[1]] = traits
    return np.nan_to_num(vectors)


def shape_traits(template: Template, knobs: Knobs, shapes: int) -> Floats:
    """`TRAITS` numbers for each of `shapes` shapes, zeros where the template gives none."""
    found = np.zeros((shapes, TRAITS), dtype=np.float32)
    if isinstance(template, HasShapeTraits):
        traits = template.shape_traits(knobs)
        found[:, : traits.shape[1]] = traits
    return np.nan_to_num(found)
