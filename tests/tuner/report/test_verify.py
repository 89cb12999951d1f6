"""What is judged of winners that were rebuilt and timed again."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tuner.candidate import Candidate, CandidateKind
from tuner.record import Measurement, Provenance, Record, Status, Trial
from tuner.report.trust.claims import Claim
from tuner.report.trust.verify import Seen, Verdict, judge, suspects
from tuner.task import Task

CANDIDATE = Candidate(CandidateKind.TRACE, "[1]", "mine")
DEFAULT = Candidate(CandidateKind.TRACE, "[]", "default")
STEADY = (1.0, 1.01, 0.99)
DIFFERS, SAME, RIGHT = Verdict.DIFFERS, Verdict.SAME, Verdict.RIGHT


def claim(
    latency_s: float = 1.0, default_s: float | None = 4.0, again_s: Sequence[float] = STEADY
) -> Claim:
    default = record(DEFAULT, default_s) if default_s else None
    return Claim(
        Task("key", "gemm", "{}", "{}"), record(CANDIDATE, latency_s), tuple(again_s), default
    )


def record(candidate: Candidate, latency_s: float) -> Record:
    measured = Measurement(Status.OK, (latency_s,))
    desk = Provenance("runner-1", "a desk", "tvm=1")
    return Record(Trial("key", candidate), measured, desk, code_hash="hash")


def seen(*turns_s: float, default_s: float | None = 4.0) -> Seen:
    return Seen(turns_s=turns_s, default_s=(default_s,) if default_s else ())


def verdicts(claims: list[Claim], looked: list[Seen], **unsure: tuple[str, ...]) -> list[Verdict]:
    return [winner.verdict for winner in judge(claims, looked, **unsure).winners]


def test_what_is_as_it_was_is_well() -> None:
    found = judge([claim(), claim()], [seen(1.02, 0.98, 1.0), seen(1.05)])
    assert found.ok
    assert [winner.verdict for winner in found.winners] == [SAME, SAME]
    assert [winner.why for winner in found.winners] == [(), ()]


@pytest.mark.parametrize("others", [0, 1, 3, 20])
@pytest.mark.parametrize(("recorded_s", "word"), [(0.5, "slower: 2.00x"), (2.0, "faster: 0.50x")])
def test_a_time_that_was_changed_is_found_among_any_number_of_kernels(
    others: int, recorded_s: float, word: str
) -> None:
    claims = [claim(recorded_s), *[claim()] * others]
    found = judge(claims, [seen(1.0)] * len(claims))
    assert not found.ok
    assert [w.verdict for w in found.winners] == [DIFFERS] + [SAME] * others
    assert found.winners[0].why[0].startswith(word)
    assert suspects(claims, [seen(1.0)] * len(claims)) == [0]


@pytest.mark.parametrize("others", [1, 3, 20])
@pytest.mark.parametrize("pace", [0.7, 1.4])
def test_a_machine_that_is_slower_for_all_kernels_is_no_difference_of_any(
    others: int, pace: float
) -> None:
    claims = [claim()] * (1 + others)
    found = judge(claims, [seen(pace, default_s=4 * pace)] * len(claims))
    assert found.ok
    assert {w.verdict for w in found.winners} == {SAME}
    assert found.machine == pytest.approx(pace)


@pytest.mark.parametrize("default_s", [4.0, None])
def test_a_changed_time_is_found_on_a_machine_that_is_slower(default_s: float | None) -> None:
    claims = [claim(0.5, default_s), *[claim(1.0, default_s)] * 8]
    pace = 1.3
    again = seen(pace, default_s=default_s and default_s * pace)
    found = judge(claims, [again] * 9)
    assert [w.verdict for w in found.winners] == [DIFFERS] + [SAME] * 8
    assert found.winners[0].why == (
        "slower: 2.60x of its record's time, all others 1.30x; noise reaches 1.10x",
    )


def test_times_that_were_all_halved_are_found_as_what_one_factor_explains() -> None:
    claims = [claim(0.5, 2.0)] * 5
    found = judge(claims, [seen(1.0, default_s=4.0)] * 5)
    assert {w.verdict for w in found.winners} == {SAME}
    assert (found.machine, found.other_machine, found.ok) == (2.0, True, False)


def test_a_default_schedule_that_was_made_slower_is_found() -> None:
    found = judge([claim(1.0, 8.0), claim()], [seen(1.0)] * 2)
    assert [w.verdict for w in found.winners] == [DIFFERS, SAME]
    assert found.winners[0].why[0].startswith("its default schedule is faster: 0.50x")


def test_noise_is_that_of_the_re_timings_or_of_the_turns() -> None:
    noisy = (1.0, 1.15, 0.9, 1.12)
    assert verdicts([claim(), claim()], [seen(1.3), seen(1.0)]) == [DIFFERS, SAME]
    assert verdicts([claim(again_s=noisy), claim()], [seen(1.3), seen(1.0)]) == [SAME, SAME]
    assert verdicts([claim(), claim()], [seen(1.1, 1.2, 1.25), seen(1.0, 1.07)]) == [SAME, SAME]
    # As noisy as a run may be, a half is no noise.
    noisiest = (1.0, 3.0, 0.2, 5.0)
    halved = [claim(0.5, again_s=noisiest), claim()]
    assert verdicts(halved, [seen(1.0), seen(1.0)]) == [DIFFERS, SAME]


def test_on_a_machine_that_is_too_noisy_little_is_found_and_nothing_is_said_to_be_the_same() -> (
    None
):
    restless = (1.0, 1.7, 0.7)
    found = judge([claim(), claim(0.1), claim()], [seen(*restless)] * 3)
    assert found.noisy is not None
    assert found.noisy > 2
    assert [w.verdict for w in found.winners] == [RIGHT, DIFFERS, RIGHT]
    assert judge([claim()], [seen(*STEADY)]).noisy is None


def test_a_winner_that_only_the_search_timed_may_have_been_lucky() -> None:
    claims = [claim(again_s=()), claim()]
    assert verdicts(claims, [seen(1.2), seen(1.0)]) == [SAME, SAME]
    assert verdicts(claims, [seen(1.3), seen(1.0)]) == [DIFFERS, SAME]


def test_where_times_are_not_judged_programs_and_outputs_are() -> None:
    claims = [claim(0.5), claim(), claim()]
    looked = [seen(1.0), Seen(("its output is wrong",)), Seen(unchecked="no such device")]
    found = judge(claims, looked, unsure=("measured elsewhere",))
    assert [w.verdict for w in found.winners] == [RIGHT, DIFFERS, Verdict.UNCHECKED]
    assert [w.ratio for w in found.winners] == [2.0, None, None]
    assert not found.ok
    assert judge(claims[:1], looked[:1], unsure=("measured elsewhere",)).ok


def test_what_could_not_be_looked_at_is_not_well() -> None:
    found = judge([claim()], [Seen(unchecked="it calls dgemm of MKL")])
    assert not found.ok
    assert found.winners[0].why == ("it calls dgemm of MKL",)
    assert found.machine is None
