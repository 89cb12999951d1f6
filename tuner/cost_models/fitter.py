"""Fits a model again and again on growing rows, in the child process of a learner."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np

from tuner.cost_models.base import CostModel, count_ordered_pairs
from tuner.cost_models.dataset import Examples
from tuner.cost_models.named import Named, model_class, theirs
from tuner.cost_models.sample_rows import sample_rows
from tuner.process.lean_import import HEAVY_EXTRAS, without
from tuner.user_code.faults import blame

MOST_ROWS = 30_000
"""The most rows that a model is fitted on. A row takes some 0.15 ms of a core, and more rows teach
little more."""
_JUDGED_ROWS = 2_000
"""The most new rows that a model is judged on: each is compared with all others of its task."""


@dataclass(frozen=True, slots=True)
class Fit:
    """The result of one fit.

    Attributes:
        model: the model as bytes.
        records: number of rows there were.
        right: pairs of unseen candidates that the previous model ordered correctly.
        pairs: pairs of unseen candidates; 0 where there was no previous model.
        fit_s: seconds spent fitting.
    """

    model: bytes
    records: int
    right: float
    pairs: float
    fit_s: float


class Fitter:
    """Holds the rows so far and the last model, in the process that fits.

    Args:
        model: names the class of the cost model, made with the seed.
        base: a model as bytes that every fit starts from; the class must take it as `base`. None
            starts from nothing.

    Raises:
        ValueError: the base is not of this class.
        LayerFailed: a user's file does not run.
    """

    def __init__(self, model: Named, seed: int, base: bytes | None = None) -> None:
        make = model_class(model)
        self._theirs = theirs(model)
        self._make: Callable[[int], CostModel] = partial(make, base=base) if base else make
        self._seed = seed
        self._examples: Examples | None = None
        self._previous: CostModel | None = self._make(seed) if base else None

    def fit(self, start: int, new: Examples, most: int = MOST_ROWS) -> Fit:
        """Judge the previous model on new rows, then add them and fit on all rows.

        Args:
            start: number of rows that the sender believes to be here already.
            most: most rows to fit on; of more, a sample is taken, see `sample_rows`. The rows that
                the previous model is judged on are sampled too.

        Raises:
            ValueError: there is another number of rows.
            LayerFailed: a user's cost model is at fault.
        """
        held = len(self._examples) if self._examples is not None else 0
        if held != start:
            raise ValueError(f"{held} rows are held, not {start}")
        right = pairs = 0.0
        rng = np.random.default_rng(self._seed % 2**32)
        if self._previous is not None and len(new):
            asked = new.only(np.sort(rng.permutation(len(new))[:_JUDGED_ROWS]))
            with blame(self._theirs, "cost model, predict"):
                scores = np.asarray(self._previous.predict(asked.features), dtype=np.float32)
            right, pairs = count_ordered_pairs(
                scores, asked.latencies_s, asked.groups, asked.censored
            )
        rows = new if self._examples is None else self._examples.with_more(new)
        learned = rows.only(sample_rows(rows, most, rng))
        begin = time.perf_counter()
        with blame(self._theirs, "cost model, fit"):
            model = self._make(self._seed)
            model.fit(learned.features, learned.latencies_s, learned.groups, learned.censored)
            dumped = bytes(model.dump())
        fit_s = time.perf_counter() - begin
        self._examples, self._previous = rows, model
        return Fit(dumped, len(rows), right, pairs, fit_s)


def make_fitter(model: Named, seed: int, base: bytes | None = None) -> Fitter:
    """Make the `Fitter` of a `ProcessLearner`'s child. A tiny first fit does the slow imports."""
    with without(*HEAVY_EXTRAS):
        fitter = Fitter(model, seed, base)
        few = np.arange(8, dtype=np.float32)
        Fitter(model, seed).fit(0, Examples(few[:, None], few + 1, np.zeros(8, dtype=np.int32)))
    return fitter
