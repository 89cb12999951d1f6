"""Keeps the history of a run in its store, for whoever looks at it later."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import replace

from tuner.cost_models.base import FittedModel
from tuner.errors import TunerError
from tuner.session.observer import Silent
from tuner.storage.base import RecordStore
from tuner.storage.history import Fit, History, Outlook, coalesce
from tuner.utilisation import Utilisation
from tuner.view.progress import Snapshot

_log = logging.getLogger(__name__)

_EVERY_S = 10.0


class HistoryKeeper(Silent):
    """Takes spans of worker slots, fits of the cost model and predictions of what more trials bring
    to the store, every ten seconds and at the end. A store that refuses them is not asked again:
    the run goes on without a history.

    Args:
        clock: the clock of `utilisation`.
        wall: seconds since the epoch.
    """

    def __init__(
        self,
        store: RecordStore,
        utilisation: Utilisation,
        *,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._store = store
        self._utilisation = utilisation
        self._clock, self._wall = clock, wall
        # Once and for all: were it to change, spans of one slot would overlap.
        self._ahead_s = wall() - clock()
        self._fits: list[Fit] = []
        self._outlooks: list[Outlook] = []
        self._next_gain: float | None = None
        self._kept_s = clock()
        self._refused = False

    def on_model(self, fitted: FittedModel) -> None:
        """Remember how good a model is."""
        self._fits.append(
            Fit(
                self._wall(),
                fitted.version,
                fitted.records,
                fitted.pairwise_accuracy,
                fitted.fit_s,
            )
        )

    def on_snapshot(self, snapshot: Snapshot) -> None:
        """Keep what happened, now and then."""
        if snapshot.next_gain not in (None, self._next_gain):
            self._next_gain = snapshot.next_gain
            outlook = Outlook(self._wall(), snapshot.trials, snapshot.next_gain or 0.0)
            self._outlooks.append(outlook)
        if self._clock() - self._kept_s >= _EVERY_S:
            self.keep()

    def on_end(self, snapshot: Snapshot) -> None:
        """Keep the rest."""
        self.on_snapshot(snapshot)
        self.keep(last=True)

    def keep(self, *, last: bool = False) -> None:
        """Keep what happened so far; the last time also of what has not ended."""
        self._kept_s = self._clock()
        ahead_s = self._ahead_s
        spans = coalesce(
            replace(span, started_s=span.started_s + ahead_s, ended_s=span.ended_s + ahead_s)
            for span in self._utilisation.take_spans(last=last)
        )
        history = History(tuple(spans), tuple(self._fits), tuple(self._outlooks))
        self._fits, self._outlooks = [], []
        if self._refused or not history:
            return
        try:
            self._store.put(history)
        except TunerError as error:
            self._refused = True
            _log.warning("the history of the run is not kept any more: %s", error)
