"""A picture of the slots' time: coarse where it must be, never wrong about where time went."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from tuner.report.slots import drawable, lanes
from tuner.utilisation import SlotSpan


def span(slot: str, start_s: float, end_s: float, category: str = "busy") -> SlotSpan:
    return SlotSpan("runner", slot, category, start_s, end_s)


def busy_then_waiting(number: int, slot: str = "r") -> list[SlotSpan]:
    """Stretches of a second, a tenth of each spent waiting."""
    return [
        part
        for n in range(number)
        for part in (span(slot, n, n + 0.9), span(slot, n + 0.9, n + 1, "waiting"))
    ]


def test_few_are_shown_as_they_are() -> None:
    some = busy_then_waiting(10)
    assert drawable(some, 20) == some


def test_work_on_many_tasks_is_work() -> None:
    some = [
        part
        for n in range(6000)
        for part in (
            SlotSpan("runner", "r", "busy", n, n + 0.9, f"task {n % 30}"),
            span("r", n + 0.9, n + 1, "no_builds"),
        )
    ]
    drawn = drawable(some, 100)
    assert {s.category for s in drawn} == {"busy"}
    assert {s.task_key for s in drawn} <= {f"task {n}" for n in range(30)}


def test_of_many_each_step_shows_what_took_most_of_it() -> None:
    drawn = drawable(busy_then_waiting(5000), 100)
    assert len(drawn) <= 100
    spent = {s.category: 0.0 for s in drawn}
    for s in drawn:
        spent[s.category] += s.ended_s - s.started_s
    assert spent["busy"] > 0.9 * sum(spent.values())


@given(
    st.lists(
        st.tuples(
            st.sampled_from("rs"), st.integers(0, 50), st.sampled_from(["busy", "waiting", "idle"])
        ),
        min_size=1,
        max_size=300,
    )
)
def test_the_picture_spans_the_same_time_and_no_slot_does_two_things_at_once(
    steps: list[tuple[str, int, str]],
) -> None:
    now_s = {"r": 0.0, "s": 0.0}
    some = []
    for slot, length, category in steps:
        some.append(span(slot, now_s[slot], now_s[slot] + length + 1, category))
        now_s[slot] += length + 1
    drawn = drawable(some, 40)
    step_s = max(s.ended_s for s in some) / 60
    assert min(s.started_s for s in drawn) == 0.0
    assert abs(max(s.ended_s for s in drawn) - max(s.ended_s for s in some)) <= step_s + 1e-9
    for slot in {s.slot for s in some}:
        mine = sorted((s for s in drawn if s.slot == slot), key=lambda s: s.started_s)
        assert mine, "no slot vanishes from the picture"
        assert all(a.ended_s <= b.started_s + 1e-6 for a, b in pairwise(mine))


def test_lanes_are_by_kind_and_then_by_first_moment() -> None:
    later, first = span("r-2", 5, 6), span("r-9", 1, 2)
    builder = SlotSpan("builder", "b", "busy", 9, 10)
    assert list(lanes([later, first, builder])) == [
        ("builder", "b"),
        ("runner", "r-9"),
        ("runner", "r-2"),
    ]
