"""What twice as many trials would bring."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from tuner.candidate import Candidate, CandidateKind
from tuner.record import Measurement, Record, Status, Trial
from tuner.session.ending.doubling import Doublings
from tuner.task import Instance


def kernel(number: int) -> Candidate:
    return Candidate(CandidateKind.TRACE, f"[{number}]", "test")


def nothing(task_key: str, candidates: Sequence[Candidate]) -> None:
    """A search that expects nothing of kernels that were timed."""


def observe(
    doublings: Doublings,
    times_s: Mapping[int, float],
    *,
    task: str = "a",
    instance: Instance = (),
    rung: int = 0,
) -> None:
    """Kernels by the number of trials of the run when they came, which names them."""
    for trials, latency_s in times_s.items():
        trial = Trial(task, kernel(trials), instance, rung)
        doublings.observe(Record(trial, Measurement(Status.OK, (latency_s,))), trials)


def test_it_is_a_part_of_what_the_last_doubling_brought() -> None:
    doublings = Doublings({("a", ()): 3.0})
    observe(doublings, {100: 2.0, 120: 1.5, 160: 1.2, 180: 5.0})
    assert doublings.next_gain(190, nothing) is None, "there was no kernel by half of them"
    assert doublings.next_gain(250, nothing) == pytest.approx(0.4 * (1 - 1.2 / 1.5))


def test_an_earlier_doubling_that_brought_much_is_remembered_for_a_while() -> None:
    doublings = Doublings({("a", ()): 1.0})
    observe(doublings, {64: 1.0, 100: 0.5})
    assert doublings.next_gain(199, nothing) == pytest.approx(0.4 * 0.5)
    assert doublings.next_gain(256, nothing) == pytest.approx(0.4**2 * 0.5)
    assert doublings.next_gain(512, nothing) == pytest.approx(0.4**3 * 0.5)


def test_tasks_count_by_their_share_of_the_model() -> None:
    doublings = Doublings({("a", ()): 1.0, ("b", ()): 9.0})
    observe(doublings, {100: 2.0, 160: 1.0})
    observe(doublings, {102: 2.0}, task="b")
    assert doublings.next_gain(250, nothing) == pytest.approx(0.4 * 1.0 / 20.0)


def test_shapes_are_places_of_their_own() -> None:
    small, large = (("n", 1),), (("n", 64),)
    doublings = Doublings({("a", small): 0.5, ("a", large): 0.5})
    observe(doublings, {100: 1.0}, instance=small)
    observe(doublings, {101: 3.0, 170: 2.0}, instance=large)
    assert doublings.next_gain(250, nothing) == pytest.approx(0.4 * 1.0 / 4.0)


def test_both_are_judged_by_what_is_known_now() -> None:
    """The lucky time of a kernel that is no faster is no gain."""
    doublings = Doublings({("a", ()): 1.0})
    observe(doublings, {100: 1.0, 190: 0.7})
    asked = []

    def expect(task_key: str, candidates: Sequence[Candidate]) -> list[float]:
        asked.append((task_key, list(candidates)))
        return [0.97, 0.98]

    assert doublings.next_gain(250, expect) == pytest.approx(0.4 * 0.01 / 0.98)
    assert asked == [("a", [kernel(190), kernel(100)])]


def test_no_loss_is_predicted() -> None:
    """Where all that is known now says that the fastest of half the trials is still the faster."""
    doublings = Doublings({("a", ()): 1.0})
    observe(doublings, {100: 1.0, 190: 0.7})
    assert doublings.next_gain(250, lambda task_key, candidates: [1.0, 0.98]) == 0.0


def test_nothing_is_told_of_few_trials_or_before_every_task_had_a_kernel_by_half_of_them() -> None:
    doublings = Doublings({(key, ()): 1.0 for key in "abcdefgh"})
    assert doublings.next_gain(1000, nothing) is None
    observe(doublings, {1: 1.0})
    assert doublings.next_gain(100, nothing) is None
    assert doublings.next_gain(128, nothing) == 0.0
    for number, key in enumerate("bcdefgh"):
        observe(doublings, {2 + number: 1.0}, task=key)
    assert doublings.next_gain(150, nothing) is None, "eight tasks want more"
    assert doublings.next_gain(192, nothing) == 0.0


def test_what_was_timed_again_or_is_of_no_task_of_the_run_does_not_count() -> None:
    doublings = Doublings({("a", ()): 1.0})
    observe(doublings, {1: 1.0})
    observe(doublings, {160: 0.5}, rung=1)
    observe(doublings, {161: 0.5}, task="other")
    assert doublings.next_gain(250, nothing) == 0.0
