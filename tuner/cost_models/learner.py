"""Fitting cost models beside the search, so that the loop never waits for one."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from tuner.cost_models.base import FittedModel
from tuner.cost_models.dataset import Dataset
from tuner.cost_models.fitter import MOST_ROWS, Fit, Fitter
from tuner.cost_models.named import XGB_MODEL, Named
from tuner.process.child import Child
from tuner.process.outcome import DeadlinePassed, MemoryExceeded, Outcome, Raised, Returned
from tuner.user_code.faults import LayerFailed

_log = logging.getLogger(__name__)

_MIN_PAIRS = 28
"""The pairs behind one published accuracy: as many as eight unseen candidates of a task have."""
_EXCHANGE_S = 0.002
"""The time for which a poll may move bytes to a child: rows are megabytes, a pipe holds little."""
_LONGEST_REST_S = 60.0
_LEAST_ROWS = 1_000
"""A fit on this few rows does not fail for their number."""


class Learner(Protocol):
    """Turns records into cost models, at its own pace."""

    def offer(self, dataset: Dataset) -> None:
        """Show the growing dataset, as often as you like, and begin a fit if one is due.

        Never waits for a fit. The dataset must be the same object each time, used by one thread.
        """

    def poll(self) -> FittedModel | None:
        """The model that was fitted since the last call, or None. Never waits for a fit."""

    def close(self) -> None:
        """Stop; a fit in progress is dropped. May be called twice."""

    @property
    def pid(self) -> int | None:
        """Id of the child process that fits; None where there is none."""


@dataclass(frozen=True, slots=True)
class FitPolicy:
    """The rule for when a new fit is worth its time.

    Attributes:
        first: records before the first fit.
        growth: share by which the records must have grown since the last fit.
        most: the most new records that are waited for, whatever `growth` asks.
        least: the fewest new records that a fit is worth.
        rest: pause after a fit, as a multiple of the fit's time.
    """

    first: int = 16
    growth: float = 0.15
    most: int = 32
    least: int = 8
    rest: float = 4.0

    def due(self, records: int, *, fitted: int, idle_s: float, last_fit_s: float) -> bool:
        """Whether to fit now.

        Args:
            records: number of rows there are.
            fitted: number of rows at the last fit; 0 before the first.
            idle_s: seconds since the last fit ended.
            last_fit_s: seconds of the last fit.
        """
        if fitted == 0:
            return records >= self.first and idle_s >= self.rest * last_fit_s
        step = max(self.least, min(self.growth * fitted, self.most))
        return records - fitted >= step and idle_s >= self.rest * last_fit_s


class Accuracy:
    """Pools unseen pairs over fits until there are enough for a share."""

    def __init__(self, min_pairs: int = _MIN_PAIRS) -> None:
        self._min_pairs = min_pairs
        self._right = self._pairs = 0.0

    def add(self, right: float, pairs: float) -> float | None:
        """Add pairs; return the share that was right once there are enough, and start over."""
        self._right, self._pairs = self._right + right, self._pairs + pairs
        if self._pairs < self._min_pairs:
            return None
        share = self._right / self._pairs
        self._right = self._pairs = 0.0
        return share


class _Pace:
    """The time and result of the last fit: the state that both learners share."""

    def __init__(self, policy: FitPolicy, version: int, clock: Callable[[], float]) -> None:
        self._policy = policy
        self._version = version
        self._clock = clock
        self._accuracy = Accuracy()
        self._begun_s = self._ended_s = clock()
        self._took_s = 0.0
        self._fitted = 0

    def due(self, records: int) -> bool:
        idle_s = self._clock() - self._ended_s
        return self._policy.due(
            records, fitted=self._fitted, idle_s=idle_s, last_fit_s=self._took_s
        )

    def begin(self) -> None:
        self._begun_s = self._clock()

    @property
    def running_s(self) -> float:
        return self._clock() - self._begun_s

    def begin_with(self, base: bytes | None) -> FittedModel | None:
        """The base model as the first version. It does not delay the first fit."""
        if not base:
            return None
        self._version += 1
        return FittedModel(self._version, base, 0, None, 0.0)

    def end(self, fit: Fit) -> FittedModel:
        self._ended_s = self._clock()
        self._took_s = self._ended_s - self._begun_s
        self._fitted = fit.records
        self._version += 1
        accuracy = self._accuracy.add(fit.right, fit.pairs)
        return FittedModel(self._version, fit.model, fit.records, accuracy, fit.fit_s)


class InlineLearner:
    """Fits in the caller's own thread, within `offer`: for tests and replays.

    Implements `Learner`.

    Args:
        base: a model to begin with, the first that `poll` gives.
    """

    def __init__(
        self,
        seed: int = 0,
        *,
        model: Named = XGB_MODEL,
        base: bytes | None = None,
        policy: FitPolicy = FitPolicy(),
        last_version: int = 0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._fitter = Fitter(model, seed, base)
        self._pace = _Pace(policy, last_version, clock)
        self._sent = 0
        self._ready = self._pace.begin_with(base)

    def offer(self, dataset: Dataset) -> None:
        """Fit now if a fit is due."""
        if not self._pace.due(len(dataset)):
            return
        self._pace.begin()
        fit = self._fitter.fit(self._sent, dataset.snapshot(self._sent))
        self._sent = fit.records
        self._ready = self._pace.end(fit)

    def poll(self) -> FittedModel | None:
        """The model that the last `offer` fitted, once."""
        ready, self._ready = self._ready, None
        return ready

    def close(self) -> None:
        """Do nothing: there is no process to stop."""

    @property
    def pid(self) -> int | None:
        """None: there is no process."""
        return None


class ProcessLearner:
    """Fits in a child process, which is warm from the first row on. One fit at a time: newer rows
    wait for the next.

    A child that dies, raises or misses a deadline is replaced after a pause that grows with
    each failure in a row; meanwhile the loop uses the model it has. After a fit that took too long,
    or too much memory, the next fits take half as many rows. A child is killed when the
    thread that made it ends, so one thread must make, use and close this. Implements `Learner`.

    Args:
        seed: of every fit.
        model: names the class of the cost model, made with the seed; where a user's raises, so
            does `poll`, with `LayerFailed`.
        base: a model to begin with, the first that `poll` gives, which every fit starts from. The
            class must take it as `base`.
        last_version: version of the newest model of earlier sessions.
        deadline_s: time for one fit, and for a child to become ready.
        memory_limit_bytes: size at which the child is killed.
        least_rows: number of rows below which a failed fit does not lower the number for the next.
        log: file for the child's output.
        frozen_s: gives the seconds that children spent frozen so far, which count in no deadline.
        on_start: called with the process id of each new child.
    """

    def __init__(
        self,
        seed: int = 0,
        *,
        model: Named = XGB_MODEL,
        base: bytes | None = None,
        policy: FitPolicy = FitPolicy(),
        last_version: int = 0,
        deadline_s: float = 60.0,
        memory_limit_bytes: int | None = None,
        least_rows: int = _LEAST_ROWS,
        log: Path | None = None,
        frozen_s: Callable[[], float] = lambda: 0.0,
        on_start: Callable[[int], object] = lambda pid: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._args = (model, seed, base)
        self._pace = _Pace(policy, last_version, clock)
        self._base = self._pace.begin_with(base)
        self._deadline_s = deadline_s
        self._memory_limit_bytes = memory_limit_bytes
        self._most_rows, self._least_rows = MOST_ROWS, least_rows
        self._log = log
        self._frozen_s = frozen_s
        self._on_start = on_start
        self._clock = clock
        self._dataset: Dataset | None = None
        self._child: Child | None = None
        self._closed = False
        self._failures = 0
        self._rest_until_s = clock()
        self._sent = 0
        self._busy = self._ready = False
        self._fitting_rows = 0
        self._frozen_before_s = 0.0

    def offer(self, dataset: Dataset) -> None:
        """Remember the dataset, and begin a fit on it if one is due."""
        self._dataset = dataset
        self._advance()

    def poll(self) -> FittedModel | None:
        """The model of a fit that ended since the last call; replaces a child that failed."""
        if self._base is not None:
            base, self._base = self._base, None
            return base
        if self._child is None or not self._busy:
            self._advance()
            return None
        outcome = self._child.poll(_EXCHANGE_S) if self._ready else self._child.ready(0.0)
        if outcome is None or (isinstance(outcome, DeadlinePassed) and not self._ready):
            self._check_deadline()
            return None
        if not isinstance(outcome, Returned):
            self._drop_child(outcome)
            return None
        self._busy = False
        fitted = None
        if self._ready:
            self._sent = outcome.value.records
            self._failures = 0
            fitted = self._pace.end(outcome.value)
        self._ready = True
        self._advance()
        return fitted

    def close(self) -> None:
        """Kill the child."""
        self._closed = True
        if self._child is not None:
            self._child.close()
            self._child = None

    @property
    def pid(self) -> int | None:
        """The child's process id: another after a failure, None between two children."""
        return self._child.pid if self._child is not None else None

    @property
    def fitting(self) -> bool:
        """Whether a fit is in progress now."""
        return self._child is not None and self._busy and self._ready

    def _advance(self) -> None:
        """Start a child or a fit, if one is due and possible now."""
        if self._dataset is None or not len(self._dataset):
            return  # there is nothing to learn from, and other processes want to start
        if self._child is None:
            if not self._closed and self._clock() >= self._rest_until_s:
                self._start_child()
        elif not self._busy and self._pace.due(len(self._dataset)):
            self._begin()
            self._fitting_rows = min(len(self._dataset), self._most_rows)
            new = self._dataset.snapshot(self._sent)
            self._child.start_call("fit", self._sent, new, self._most_rows)

    def _start_child(self) -> None:
        self._child = Child(
            "tuner.cost_models.fitter:make_fitter",
            self._args,
            env={"OMP_NUM_THREADS": "1"},
            memory_limit_bytes=self._memory_limit_bytes,
            log=self._log,
        )
        self._sent = 0
        self._ready = False
        self._begin()
        self._on_start(self._child.pid)

    def _begin(self) -> None:
        """Start the deadline of the child's next step: getting ready, or a fit."""
        self._busy = True
        self._pace.begin()
        self._frozen_before_s = self._frozen_s()

    def _check_deadline(self) -> None:
        frozen_s = self._frozen_s() - self._frozen_before_s
        if self._pace.running_s - frozen_s > self._deadline_s:
            self._drop_child(DeadlinePassed(self._deadline_s))

    def _drop_child(self, outcome: Outcome) -> None:
        _log.warning("learner: %s", outcome)
        if isinstance(outcome, Raised) and outcome.fault:
            self.close()
            raise LayerFailed(outcome.fault)
        if self.fitting and isinstance(outcome, DeadlinePassed | MemoryExceeded):
            self._take_fewer_rows()
        if self._child is not None:
            self._child.close()
            self._child = None
        self._failures += 1
        self._rest_until_s = self._clock() + min(2.0**self._failures, _LONGEST_REST_S)

    def _take_fewer_rows(self) -> None:
        """Halve the rows of the next fits: a fit on all of them might never finish."""
        if self._fitting_rows <= self._least_rows:
            return
        self._most_rows = max(self._least_rows, self._fitting_rows // 2)
        _log.warning("learner: from now on it fits on %d rows at most", self._most_rows)
