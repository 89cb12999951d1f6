"""What is drawn from a space follows what its trials gave."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.candidate import Candidate, CandidateKind
from tuner.record import Measurement, Record, Status, Trial
from tuner.search.shares import Shares, weights_of

NAMES = st.sampled_from(["a", "b", "c"])


def record(space: str, number: int, latency_s: float | None, status: Status = Status.OK) -> Record:
    candidate = Candidate(CandidateKind.TRACE, f"[{number}]", space)
    samples = () if latency_s is None else (latency_s,)
    return Record(Trial("task", candidate), Measurement(status, samples))


def shares(*records: Record) -> dict[str, float]:
    found = Shares()
    for one in records:
        found.know(one)
    return dict(found.weights)


def test_a_space_is_judged_after_a_few_trials() -> None:
    fast = [record("fast", n, 1e-3) for n in range(8)]
    slow = [record("slow", n, 2e-3) for n in range(8)]
    assert shares(*fast, *slow[:3]) == {"fast": 1.0}
    assert shares(*fast, *slow) == {"fast": 1.0, "slow": pytest.approx(0.25)}


def test_one_whose_trials_fail_is_left_all_but_alone() -> None:
    fast = [record("fast", n, 1e-3) for n in range(4)]
    bad = [record("bad", n, None, Status.INVALID) for n in range(4)]
    assert 0 < shares(*fast, *bad)["bad"] < 0.05


def test_where_nothing_worked_no_space_is_blamed() -> None:
    assert shares(*[record("bad", n, None, Status.INVALID) for n in range(9)]) == {}


def test_programs_that_were_timed_before_say_nothing_new() -> None:
    repeats = [record("twin", n, 5e-3, Status.DUPLICATE) for n in range(9)]
    assert shares(record("fast", 0, 1e-3), *repeats) == {}


@given(
    st.dictionaries(NAMES, st.integers(0, 50)),
    st.dictionaries(NAMES, st.floats(1e-7, 10.0)),
)
def test_weights_are_shares_and_the_fastest_keeps_its_own(
    trials: dict[str, int], best_s: dict[str, float]
) -> None:
    weights = dict(weights_of(trials, best_s))
    assert all(0 < weight <= 1 for weight in weights.values())
    if best_s and (fastest := min(best_s, key=lambda name: best_s[name])) in weights:
        assert weights[fastest] == 1.0
    ranked = sorted(weights, key=lambda name: best_s.get(name, float("inf")))
    assert [weights[name] for name in ranked] == sorted(weights.values(), reverse=True)
