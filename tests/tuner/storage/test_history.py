"""The history of a run: spans of slots and fits of models, as text and joined."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.storage.history import Fit, History, Outlook, coalesce, from_text, join, to_text
from tuner.utilisation import SlotSpan

NAMES = st.sampled_from(["", "busy", "runner", "r-1", "täsk"])
MS = st.integers(0, 10**7)


@st.composite
def spans(draw: st.DrawFn) -> SlotSpan:
    kind, slot, category, task = (draw(NAMES) for _ in range(4))
    start_ms = draw(MS)
    end_ms = start_ms + 1 + draw(MS)
    return SlotSpan(kind, slot, category, start_ms / 1e3, end_ms / 1e3, task)


FITS = st.builds(
    Fit,
    st.floats(0, 1e10),
    st.integers(1, 99),
    st.integers(0, 10**6),
    st.none() | st.floats(0, 1),
    st.floats(0, 1e3),
)


OUTLOOKS = st.builds(Outlook, st.floats(0, 1e10), st.integers(1, 10**6), st.floats(0, 1))


@given(st.lists(spans()), st.lists(FITS), st.lists(OUTLOOKS))
def test_text_gives_back_what_it_was_written_from(
    some: list[SlotSpan], fits: list[Fit], outlooks: list[Outlook]
) -> None:
    history = History(tuple(some), tuple(fits), tuple(outlooks))
    assert from_text(to_text(history)) == history


def test_spans_that_round_to_nothing_are_left_out() -> None:
    told = from_text(to_text(History((span(1.0001, 1.0004), span(1.0004, 1.0008)))))
    assert told == History((span(1.0, 1.001),))


@pytest.mark.parametrize(
    "text", ["{}", "[]", "3", '{"names": [], "spans": [[0]], "fits": []}', "x"]
)
def test_other_text_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        from_text(text)


def span(start_s: float, end_s: float, *, slot: str = "r", task: str = "t") -> SlotSpan:
    return SlotSpan("runner", slot, "busy", start_s, end_s, task)


def test_spans_that_go_on_are_one_and_others_are_not() -> None:
    told = coalesce(
        [
            span(0, 1),
            span(0, 2, slot="s"),
            span(1, 3),
            span(3.5, 4),  # half a second is a gap
            span(4, 5, task="u"),
        ]
    )
    assert told == [
        span(0, 2, slot="s"),
        span(0, 3),
        span(3.5, 4),
        span(4, 5, task="u"),
    ]


def test_a_clock_that_was_set_back_makes_no_span_negative() -> None:
    told = coalesce([span(1000, 1010), span(910, 920)])
    assert [(s.started_s, s.ended_s) for s in told] == [(910, 920), (1000, 1010)]


@given(st.lists(st.tuples(st.floats(0.01, 5), st.booleans(), NAMES), max_size=30), st.data())
def test_no_second_is_lost_or_told_twice(
    steps: list[tuple[float, bool, str]], data: st.DataObject
) -> None:
    now_s, some = 0.0, []
    for length_s, gap, task in steps:
        now_s += length_s if gap else 0.0
        some.append(span(now_s, now_s + length_s, task=task))
        now_s += length_s
    cut = data.draw(st.integers(0, len(some)))
    told = join([History(tuple(some[:cut])), History(tuple(some[cut:]))]).spans
    gaps_s = 0.021 * len(some)
    spent_s = sum(s.ended_s - s.started_s for s in some)
    assert spent_s - 1e-6 <= sum(s.ended_s - s.started_s for s in told) <= spent_s + gaps_s
    assert all(a.ended_s <= b.started_s + 1e-9 for a, b in pairwise(told))
