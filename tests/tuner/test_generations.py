"""Re-timings under another toolchain are told apart from those before."""

from __future__ import annotations

from tuner.candidate import Candidate, CandidateKind
from tuner.generations import first_rung, generation_for, is_of, of_newest, round_of, rung_of
from tuner.record import Measurement, Provenance, Record, Status, Trial


def record(rung: int, toolchain: str = "") -> Record:
    trial = Trial("task", Candidate(CandidateKind.TRACE, "[]", "space"), rung=rung)
    return Record(trial, Measurement(Status.OK, (1.0,)), Provenance("w", "d", toolchain))


def test_rungs_of_old_records_are_the_first_generations() -> None:
    assert [rung_of(0, n) for n in (1, 2, 6)] == [1, 2, 6]
    assert first_rung([]) == first_rung([record(0), record(3)]) == 1


def test_a_round_is_the_same_in_each_generation() -> None:
    for generation in (0, 1, 7):
        rung = rung_of(generation, 3)
        assert round_of(rung) == 3
        assert is_of(rung, generation)
        assert not is_of(rung, generation + 1)
    assert round_of(0) == 0
    assert is_of(0, 5)


def test_only_the_newest_are_left_and_what_the_search_measured() -> None:
    records = [record(0), record(1), record(rung_of(1, 1)), record(rung_of(1, 2))]
    assert of_newest(records) == [records[0], *records[2:]]
    assert of_newest(records[:2]) == records[:2]


def test_the_same_toolchain_goes_on_with_its_generation() -> None:
    assert generation_for([], "new") == 0
    assert generation_for([record(1, "old")], "old") == 0
    assert generation_for([record(1, "old"), record(rung_of(1, 1), "new")], "new") == 1


def test_another_toolchain_begins_the_next() -> None:
    assert generation_for([record(1, "old")], "new") == 1
    assert generation_for([record(1, "old"), record(rung_of(1, 1), "new")], "old") == 2


def test_what_is_not_known_begins_nothing() -> None:
    assert generation_for([record(1, "old")], "") == 0
    assert generation_for([record(1, "")], "new") == 0
    assert generation_for([record(0, "old")], "new") == 0
