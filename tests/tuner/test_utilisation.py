"""Every second of a slot has a place: the categories add up, whatever happens."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.replay.replay import VirtualClock
from tuner.utilisation import (
    BUILDER,
    BUSY,
    RUNNER,
    SPACE,
    STARTING,
    WAITING,
    Idle,
    Utilisation,
    shares,
    total,
)


def test_the_life_of_a_slot() -> None:
    clock = VirtualClock()
    used = Utilisation(clock)
    used.started(RUNNER, "r")
    clock.now_s = 2.0
    used.ready(RUNNER, "r")
    used.idle_because({RUNNER: Idle.NO_CANDIDATES})
    clock.now_s = 5.0
    used.idle_because({RUNNER: Idle.NO_BUILDS})
    clock.now_s = 6.0
    used.given(RUNNER, "r")
    clock.now_s = 10.0
    used.answered(RUNNER, "r", worked_s=3.0)
    used.gone(RUNNER, "r")
    clock.now_s = 100.0
    assert used.seconds()[RUNNER] == {
        STARTING: 2.0,
        Idle.NO_CANDIDATES: 3.0,
        Idle.NO_BUILDS: 1.0,
        BUSY: 3.0,
        WAITING: 1.0,
    }


def test_a_job_in_progress_counts_as_busy_up_to_now() -> None:
    clock = VirtualClock()
    used = Utilisation(clock)
    used.started(SPACE, "s")
    used.given(SPACE, "s")
    clock.now_s = 3.0
    assert used.seconds()[SPACE][BUSY] == used.seconds()[SPACE][BUSY] == 3.0


def test_events_of_a_slot_that_is_gone_change_nothing() -> None:
    used = Utilisation(VirtualClock())
    for event in (used.ready, used.given, used.answered, used.gone):
        event(RUNNER, "never seen")
    assert used.seconds() == {}


KINDS = (RUNNER, BUILDER, SPACE)
EVENTS = ("started", "ready", "given", "answered", "gone", "reason", "wait")


@given(
    st.lists(
        st.tuples(
            st.sampled_from(EVENTS),
            st.sampled_from(KINDS),
            st.integers(0, 2),
            st.floats(0, 10),
            st.sampled_from(Idle),
        ),
        max_size=60,
    )
)
def test_categories_add_up_to_slots_times_the_time_they_were_there(
    events: list[tuple[str, str, int, float, Idle]],
) -> None:
    clock = VirtualClock()
    used = Utilisation(clock)
    slots, born, lived_s = 3, {}, dict.fromkeys(KINDS, 0.0)
    for kind in KINDS:
        for n in range(slots):
            used.started(kind, str(n))
            born[kind, str(n)] = 0.0
    for event, kind, n, amount, reason in events:
        clock.now_s += amount
        slot = str(n)
        if event == "started" and (kind, slot) not in born:
            used.started(kind, slot)
            born[kind, slot] = clock.now_s
        elif event == "gone" and (kind, slot) in born:
            used.gone(kind, slot)
            lived_s[kind] += clock.now_s - born.pop((kind, slot))
        elif event == "answered":
            used.answered(kind, slot, amount * 3)  # may say more than it held the job
        elif event == "reason":
            used.idle_because({kind: reason})
        elif event in ("ready", "given"):
            getattr(used, event)(kind, slot)
    for (kind, _), since_s in born.items():
        lived_s[kind] += clock.now_s - since_s
    for kind in KINDS:
        categories = used.seconds().get(kind, {})
        assert math.fsum(categories.values()) == pytest.approx(lived_s[kind], abs=1e-6)
        assert all(seconds >= 0 for seconds in categories.values())


def test_sessions_add_up_and_shares_add_up_to_one() -> None:
    both = total([{RUNNER: {BUSY: 1.0}}, {RUNNER: {BUSY: 2.0, WAITING: 1.0}, SPACE: {}}])
    assert both == {RUNNER: {BUSY: 3.0, WAITING: 1.0}, SPACE: {}}
    assert shares(both[RUNNER]) == {BUSY: 0.75, WAITING: 0.25}
    assert shares({}) == {}
