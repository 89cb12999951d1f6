"""The history of a run beside its records: what its worker slots did, how good its models were, and
what more trials would have brought.

Nothing depends on it: it is there to be looked at. It is kept in pieces of some seconds each.

    {"fits": [[time, version, records, accuracy, fit_s], ...],
     "outlooks": [[time, trials, next_gain], ...],
     "names": [...],
     "spans": [[kind, slot, category, task, start, length], ...]}

Kinds, slots, categories and tasks are places in `names`; starts are milliseconds since the start of
the span before (the first: since the epoch), lengths are milliseconds.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from tuner.utilisation import SlotSpan

_GAP_S = 0.02
"""Spans of a slot that are alike and no further apart are one."""


@dataclass(frozen=True, slots=True)
class Fit:
    """A cost model that was put to use.

    Attributes:
        time_s: seconds since the epoch.
        version: counts up within a session.
        records: the number that it was fitted to.
        accuracy: share of pairs of records it had not seen that it ordered correctly; None where
            there were too few.
        fit_s: seconds that fitting took.
    """

    time_s: float
    version: int
    records: int
    accuracy: float | None
    fit_s: float


@dataclass(frozen=True, slots=True)
class Outlook:
    """A prediction of what the next doubling of a run's trials brings.

    Attributes:
        time_s: seconds since the epoch.
        trials: of the run by then.
        next_gain: share of the model's time that it saves.
    """

    time_s: float
    trials: int
    next_gain: float


@dataclass(frozen=True, slots=True)
class History:
    """A stretch of a run's history.

    Attributes:
        spans: of worker slots, in seconds since the epoch, in the order of their ends.
        fits: in the order in which they were put to use.
        outlooks: in the order of their times.
    """

    spans: tuple[SlotSpan, ...] = ()
    fits: tuple[Fit, ...] = ()
    outlooks: tuple[Outlook, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.spans or self.fits or self.outlooks)


def join(parts: Iterable[History]) -> History:
    """Several stretches as one."""
    parts = list(parts)
    spans = coalesce(span for part in parts for span in part.spans)
    return History(
        tuple(spans),
        tuple(fit for part in parts for fit in part.fits),
        tuple(outlook for part in parts for outlook in part.outlooks),
    )


def coalesce(spans: Iterable[SlotSpan]) -> list[SlotSpan]:
    """Spans with those that go on with the one before merged into it, in the order of their ends.

    Args:
        spans: each slot's in the order of their ends.
    """
    open_spans: dict[tuple[str, str], SlotSpan] = {}
    done: list[SlotSpan] = []
    for span in spans:
        slot = span.kind, span.slot
        last = open_spans.get(slot)
        if last is not None and _goes_on(last, span):
            open_spans[slot] = replace(last, ended_s=max(last.ended_s, span.ended_s))
            continue
        if last is not None:
            done.append(last)
        open_spans[slot] = span
    return sorted((*done, *open_spans.values()), key=lambda span: span.ended_s)


def _goes_on(last: SlotSpan, span: SlotSpan) -> bool:
    alike = last.category == span.category and last.task_key == span.task_key
    # A clock that was set back begins anew.
    return alike and abs(span.started_s - last.ended_s) <= _GAP_S


def to_text(history: History) -> str:
    """A stretch as one line of text, times rounded to milliseconds; spans without one are left
    out."""
    names: dict[str, int] = {}
    spans, before_ms = [], 0
    for span in history.spans:
        start_ms, end_ms = round(span.started_s * 1e3), round(span.ended_s * 1e3)
        if start_ms == end_ms:
            continue
        said = (span.kind, span.slot, span.category, span.task_key)
        places = [names.setdefault(name, len(names)) for name in said]
        spans.append([*places, start_ms - before_ms, end_ms - start_ms])
        before_ms = start_ms
    fits = [[f.time_s, f.version, f.records, f.accuracy, f.fit_s] for f in history.fits]
    outlooks = [[o.time_s, o.trials, o.next_gain] for o in history.outlooks]
    plain = {"fits": fits, "outlooks": outlooks, "names": [*names], "spans": spans}
    return json.dumps(plain, separators=(",", ":"), allow_nan=False)


def from_text(text: str) -> History:
    """The stretch that `to_text` wrote.

    Raises:
        ValueError: it is none.
    """
    try:
        plain = json.loads(text)
        names = plain["names"]
        return History(
            tuple(_spans(names, plain["spans"])),
            tuple(Fit(*fit) for fit in plain["fits"]),
            tuple(Outlook(*outlook) for outlook in plain.get("outlooks", ())),
        )
    except (KeyError, IndexError, TypeError, AttributeError) as error:
        raise ValueError(f"no history: {error!r}") from error


def _spans(names: list[str], rows: list[list[int]]) -> Iterator[SlotSpan]:
    start_ms = 0
    for kind, slot, category, task, since_ms, length_ms in rows:
        start_ms += since_ms
        yield SlotSpan(
            names[kind],
            names[slot],
            names[category],
            start_ms / 1e3,
            (start_ms + length_ms) / 1e3,
            names[task],
        )
