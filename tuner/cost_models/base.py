"""The seam of cost models: fit and predict on arrays."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

import numpy as np

from tuner.arrays import Flags, Floats32, Ints32


class ModelKind(StrEnum):
    """What learned, by the name of its files."""

    TREES = "model"
    """A learner's model: XGBoost's trees, or a user's own."""
    PROCESS = "process"
    """The process of templates' settings (`tuner.cost_models.process`)."""


@dataclass(frozen=True, slots=True)
class FittedModel:
    """A cost model that was just fitted.

    Attributes:
        version: number, counted up from 1 within a session, for each kind.
        model: the model as bytes.
        records: number of records it was fitted on.
        pairwise_accuracy: share of pairs that the previous model ordered correctly among the
            candidates it had not seen; None where there were too few.
        fit_s: seconds of fitting.
    """

    version: int
    model: bytes
    records: int
    pairwise_accuracy: float | None
    fit_s: float
    kind: ModelKind = ModelKind.TREES


class CostModel(Protocol):
    """Ranks candidates within a task."""

    def fit(
        self,
        features: Floats32,
        latencies_s: Floats32,
        groups: Ints32,
        censored: Flags | None = None,
    ) -> None:
        """Learn from measured candidates.

        Args:
            features: one row for each candidate.
            latencies_s: their times; `inf` for a candidate that failed.
            groups: number of each candidate's task; only order within a group matters.
            censored: set for a candidate that was cut off: its latency is a lower bound. None is
                set for none.
        """

    def predict(self, features: Floats32) -> Floats32:
        """One score for each row; higher is better, comparable within a task."""

    def dump(self) -> bytes:
        """The fitted model, for `load` in another process."""

    def load(self, data: bytes) -> None:
        """Become the model that `dump` wrote."""


def count_ordered_pairs(
    scores: Floats32, latencies_s: Floats32, groups: Ints32, censored: Flags | None = None
) -> tuple[float, float]:
    """The number of pairs within a group, of different latency, that the scores order correctly,
    and the number of all such pairs.

    A tie between scores counts half. A pair whose faster candidate was cut off does not count: its
    order is not known.
    """
    right = pairs = 0.0
    exact = np.ones(len(groups), dtype=np.bool_) if censored is None else ~censored
    for group in np.unique(groups):
        rows = groups == group
        s, t = scores[rows], latencies_s[rows]
        faster = (t[:, None] < t[None, :]) & exact[rows][:, None]
        right += float((faster & (s[:, None] > s[None, :])).sum())
        right += 0.5 * float((faster & (s[:, None] == s[None, :])).sum())
        pairs += float(faster.sum())
    return right, pairs


def pairwise_accuracy(
    scores: Floats32, latencies_s: Floats32, groups: Ints32, censored: Flags | None = None
) -> float | None:
    """Share of pairs within a group, of known order, that the scores order correctly.

    A tie between scores counts half. None where there is no such pair.
    """
    right, pairs = count_ordered_pairs(scores, latencies_s, groups, censored)
    return right / pairs if pairs else None
