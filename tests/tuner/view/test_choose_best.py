"""Which record of a task wins."""

from __future__ import annotations

import math
import statistics

import pytest
from hypothesis import given

from tests.tuner.view.test_folds import DEFAULT, candidate, record, runs, store_of
from tuner.generations import rung_of
from tuner.record import Record, Status
from tuner.storage.facts import Defaults
from tuner.view.progress import fold
from tuner.view.winners import choose_best


def winner(*records: Record) -> Record | None:
    return choose_best(store_of(*records), "m")


class TestChooseBest:
    def test_nothing_timed_nothing_won(self) -> None:
        assert winner() is None
        assert winner(record(1, status=Status.BUILD_FAILED)) is None

    def test_without_retimings_the_fastest_of_the_search_wins(self) -> None:
        fast = record(2, 1.0)
        assert winner(record(DEFAULT, 4.0), record(1, 2.0), fast, record(3, 3.0)) == fast

    def test_without_a_default_the_fastest_wins(self) -> None:
        assert winner(record(1, 2.0), record(2, 1.0)) == record(2, 1.0)

    @pytest.mark.parametrize("status", [s for s in Status if s is not Status.OK])
    def test_what_failed_never_wins(self, status: Status) -> None:
        slow = record(1, 9.0)
        assert winner(slow, record(2, 1.0, status=status)) == slow

    def test_nothing_slower_than_the_default_wins(self) -> None:
        default = record(DEFAULT, 1.0)
        assert winner(record(1, 2.0), default) == default
        assert winner(record(1, 1.0), default) == default

    def test_retimings_overrule_the_search(self) -> None:
        lucky = [record(1, 1.0), record(1, 3.0, rung=1), record(1, 3.0, rung=2)]
        steady = [record(2, 2.0), record(2, 2.0, rung=1), record(2, 2.1, rung=2)]
        assert winner(record(DEFAULT, 9.0), *lucky, *steady) == steady[2]

    def test_the_median_over_all_retimings_decides_not_the_last(self) -> None:
        once_quick = [record(1, 1.0)] + [record(1, s, rung=r) for r, s in enumerate((3, 3, 1), 1)]
        steady = [record(2, 1.0)] + [record(2, s, rung=r) for r, s in enumerate((2, 2, 2), 1)]
        assert winner(*once_quick, *steady) == steady[3]

    def test_one_that_fell_out_with_few_retimings_was_only_lucky(self) -> None:
        lucky = [record(1, 1.0), record(1, 1.5, rung=1)]
        proven = [record(2, 1.0)] + [record(2, s, rung=r) for r, s in enumerate((1.4, 2, 2, 2), 1)]
        assert winner(*lucky, *proven) == proven[-1]

    def test_the_default_takes_part_in_retimings(self) -> None:
        default = [record(DEFAULT, 2.0), record(DEFAULT, 2.0, rung=1)]
        assert winner(*default, record(1, 1.0), record(1, 2.5, rung=1)) == default[1]
        quick = [record(1, 3.0), record(1, 1.5, rung=1)]
        assert winner(*default, *quick) == quick[1]

    def test_a_default_that_was_not_retimed_is_compared_by_the_search(self) -> None:
        retimed = [record(1, 1.0), record(1, 2.5, rung=1)]
        assert winner(record(DEFAULT, 2.0), *retimed) == retimed[1]

    @pytest.mark.parametrize(
        "status", [Status.WRONG, Status.RUN_FAILED, Status.TIMEOUT, Status.CENSORED]
    )
    def test_a_candidate_that_fails_a_retiming_is_out(self, status: Status) -> None:
        bad = [record(1, 1.0), record(1, 1.0, rung=1), record(1, 1.0, rung=2, status=status)]
        good = [record(2, 2.0), record(2, 2.0, rung=1)]
        assert winner(record(DEFAULT, 9.0), *bad, *good) == good[1]
        assert winner(record(DEFAULT, 9.0), *bad, record(3, 5.0)) == record(3, 5.0)
        assert winner(record(DEFAULT, 9.0), *bad) == record(DEFAULT, 9.0)

    def test_a_lost_worker_does_not_speak_against_a_candidate(self) -> None:
        good = [record(1, 1.0), record(1, 1.0, rung=1), record(1, rung=2, status=Status.LOST)]
        assert winner(*good, record(2, 2.0), record(2, 2.0, rung=1)) == good[1]

    def test_a_candidate_whose_retimings_were_all_lost_is_judged_by_the_search(self) -> None:
        lost = [record(1, 1.0), record(1, rung=1, status=Status.LOST)]
        assert winner(record(DEFAULT, 9.0), *lost) == lost[0]

    def test_a_faster_candidate_found_after_the_retimings_wins(self) -> None:
        retimed = [record(1, 2.0), record(1, 2.0, rung=1)]
        assert winner(*retimed, record(2, 1.0)) == record(2, 1.0)
        assert winner(*retimed, record(2, 2.5)) == retimed[1]

    def test_of_retimings_with_several_toolchains_the_newest_decide(self) -> None:
        old = [record(1, 1.0, rung=1), record(2, 2.0, rung=1), record(1, 1.0, rung=2)]
        new = [record(1, 4.0, rung=rung_of(1, 1)), record(2, 3.0, rung=rung_of(1, 1))]
        search = [record(DEFAULT, 9.0), record(1, 1.0), record(2, 2.0)]
        assert winner(*search, *old) == old[-1]
        assert winner(*search, *old, *new) == new[-1]

    def test_a_failure_with_an_older_toolchain_is_forgiven(self) -> None:
        old = record(1, rung=1, status=Status.WRONG)
        new = record(1, 1.0, rung=rung_of(1, 1))
        assert winner(record(DEFAULT, 9.0), record(1, 1.0), old, new) == new

    def test_one_that_failed_with_an_older_toolchain_does_not_win_by_its_search(self) -> None:
        """The run was stopped before its turn came again."""
        old = [record(1, rung=1, status=Status.WRONG), record(2, 2.0, rung=1)]
        new = record(2, 2.0, rung=rung_of(1, 1))
        search = [record(DEFAULT, 9.0), record(1, 1.0), record(2, 2.0)]
        assert winner(*search, *old, new) == new

    def test_other_tasks_do_not_matter(self) -> None:
        assert winner(record(1, 2.0), record(2, 1.0, task="s")) == record(1, 2.0)


@given(runs)
def test_no_winner_was_slower_than_the_default_when_both_were_timed(records: list[Record]) -> None:
    store = store_of(*records)
    best = choose_best(store, "m")
    timed = [r for r in store.scan("m") if r.latency_s is not None]
    if best is None:
        failed_again = {
            r.trial.candidate.key
            for r in store.scan("m", min_rung=1)
            if r.measurement.status not in (Status.OK, Status.LOST)
        }
        assert {r.trial.candidate.key for r in timed} <= failed_again
        return
    assert best in timed
    progress = fold(store.tasks(), store.get(Defaults).by_task, store.scan())["m"]
    key, default = best.trial.candidate.key, candidate(DEFAULT).key
    mine, theirs = progress.retimed.get(key), progress.retimed.get(default)
    search = min((r.latency_s or math.inf for r in timed if r.trial == best.trial), default=None)
    if mine and theirs:
        assert statistics.median(mine) <= statistics.median(theirs)
    elif not mine and progress.default_s is not None:
        assert search is not None
        assert search <= progress.default_s
