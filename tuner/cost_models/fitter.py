"""One fit after another on growing rows: what a learner's child process does."""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np

from tuner.cost_models.base import CostModel, ordered_pairs
from tuner.cost_models.dataset import Examples
from tuner.cost_models.sample_rows import sample_rows
from tuner.process.lean_import import HEAVY_EXTRAS, without

MOST_ROWS = 30_000
"""That a model is fitted on. A row takes some 0.15 ms of a core, and much more is not learned from
more of them."""
_JUDGED_ROWS = 2_000
"""Of those that are new: each is compared with all others of its task."""


@dataclass(frozen=True, slots=True)
class Fit:
    """What one fit gave.

    Attributes:
        model: as bytes.
        records: rows there were.
        right: pairs of unseen candidates that the previous model ordered rightly,
        pairs: of so many; 0 where there was no previous model.
        fit_s: seconds spent fitting.
    """

    model: bytes
    records: int
    right: float
    pairs: float
    fit_s: float


class Fitter:
    """Holds the rows so far and the last model. Lives where the fitting happens.

    Args:
        model: `module:class` of the cost model, made with the seed.
        base: a model as bytes that every fit goes on from; the class must take it as `base`.
            None is to begin from scratch.

    Raises:
        ValueError: the base is not of this class.
    """

    def __init__(self, model: str, seed: int, base: bytes | None = None) -> None:
        module, _, name = model.partition(":")
        make: Callable[..., CostModel] = getattr(importlib.import_module(module), name)
        self._make: Callable[[int], CostModel] = partial(make, base=base) if base else make
        self._seed = seed
        self._examples: Examples | None = None
        self._previous: CostModel | None = self._make(seed) if base else None

    def fit(self, start: int, new: Examples, most: int = MOST_ROWS) -> Fit:
        """Add rows and fit on all of them, after asking the previous model about the new ones.

        Args:
            start: how many rows the sender believes to be here already.
            most: where there are more rows, the model is fitted on a sample of so many, see
                `sample_rows`; so it is with the ones that the previous model is asked about.

        Raises:
            ValueError: there are not as many.
        """
        held = len(self._examples) if self._examples is not None else 0
        if held != start:
            raise ValueError(f"{held} rows are held, not {start}")
        right = pairs = 0.0
        rng = np.random.default_rng(self._seed % 2**32)
        if self._previous is not None and len(new):
            asked = new.only(np.sort(rng.permutation(len(new))[:_JUDGED_ROWS]))
            scores = self._previous.predict(asked.features)
            right, pairs = ordered_pairs(scores, asked.latencies_s, asked.groups, asked.censored)
        rows = new if self._examples is None else self._examples.with_more(new)
        learned = rows.only(sample_rows(rows, most, rng))
        begin = time.perf_counter()
        model = self._make(self._seed)
        model.fit(learned.features, learned.latencies_s, learned.groups, learned.censored)
        fit_s = time.perf_counter() - begin
        self._examples, self._previous = rows, model
        return Fit(model.dump(), len(rows), right, pairs, fit_s)


def make_fitter(model: str, seed: int, base: bytes | None = None) -> Fitter:
    """What the child of a `ProcessLearner` serves. A tiny first fit pays for the slow imports."""
    with without(*HEAVY_EXTRAS):
        fitter = Fitter(model, seed, base)
        few = np.arange(8, dtype=np.float32)
        Fitter(model, seed).fit(0, Examples(few[:, None], few + 1, np.zeros(8, dtype=np.int32)))
    return fitter
