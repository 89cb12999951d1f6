"""Finalists: contenders only, the default among them, interleaved and by share."""

from __future__ import annotations

from dataclasses import replace

from tuner.candidate import Candidate, CandidateKind
from tuner.effort import Effort
from tuner.record import Measurement, Record, Status, Trial
from tuner.session.ending.finalists import (
    Contention,
    count_each,
    finalists,
    most_retimings,
    schedule,
)
from tuner.task import Task
from tuner.view.progress import TaskProgress


def candidate(name: str) -> Candidate:
    return Candidate(CandidateKind.TRACE, name, "test")


def record(name: str, latency_s: float) -> Record:
    return Record(Trial("task", candidate(name)), Measurement(Status.OK, (latency_s,)))


def progress(
    *, key: str = "task", weight: float = 1.0, best_s: float = 1.0, default_s: float = 9.0
) -> TaskProgress:
    return TaskProgress(
        Task(key, key, "module", "target", weight),
        default_key=candidate("default").key,
        bests={(): best_s},
        defaults={(): default_s},
    )


def names(chosen: list[Candidate]) -> list[str]:
    return [c.payload for c in chosen]


def test_the_fastest_are_chosen_up_to_the_count() -> None:
    best = [record("a", 1.0), record("b", 1.05), record("c", 1.1)]
    assert names(finalists(progress(), best, candidate("default"), 2)) == ["a", "b"]


def test_the_default_joins_where_it_is_near_the_best() -> None:
    near = progress(default_s=1.1)
    best = [record("a", 1.0), record("default", 1.1)]
    assert names(finalists(near, best, candidate("default"), 3)) == ["a", "default"]


def test_two_candidates_of_one_program_are_one_finalist() -> None:
    best = [record("a", 1.0), record("twin", 1.01), record("b", 1.02), record("c", 1.03)]
    best[:2] = [replace(r, code_hash="same") for r in best[:2]]
    assert names(finalists(progress(), best, candidate("default"), 3)) == ["a", "b", "c"]


def test_a_task_without_a_valid_time_has_none() -> None:
    assert finalists(progress(), [], candidate("default"), 3) == []


def test_a_task_below_the_mean_share_has_fewer_in_proportion() -> None:
    tasks = [progress(key=str(n), weight=weight) for n, weight in enumerate((4.0, 1.0, 0.9, 0.1))]
    assert count_each(tasks, 16) == [16, 11, 10, 2]
    assert count_each(tasks[:1], 16) == [16]


def test_no_task_has_more_than_the_effort_says() -> None:
    assert count_each([progress(), progress(key="light", weight=0.001)], 1) == [1, 1]
    assert count_each([progress()], 0) == [0]


def test_a_task_without_a_time_has_no_share() -> None:
    lacking = TaskProgress(Task("none", "none", "module", "target"))
    assert count_each([progress(), lacking], 8) == [8, 2]
    assert count_each([], 8) == []


def test_rounds_are_interleaved_and_the_largest_share_comes_first() -> None:
    light = (progress(key="light"), [(candidate("l"), ())])
    heavy = (progress(key="heavy", weight=5.0), [(candidate("h1"), ()), (candidate("h2"), ())])
    trials = list(schedule([light, heavy], lambda task: range(1, 3), lambda trial: False))
    assert [(t.candidate.payload, t.rung) for t in trials] == [
        ("h1", 1),
        ("h2", 1),
        ("l", 1),
        ("h1", 2),
        ("h2", 2),
        ("l", 2),
    ]


def test_how_many_trials_they_take_is_known_about_beforehand() -> None:
    effort = Effort("test", 10, 60.0, finalists=3, shape_rounds=2)
    plain = Task("a", "a", "module", "target")
    shapes = tuple((((("n", size),), 1.0)) for size in range(100))
    assert most_retimings([plain, plain], effort) == 2 * (3 + 2)
    assert most_retimings([Task("b", "b", "module", "target", shapes=shapes)], effort) == 4 * 16 * 2


def test_what_has_a_record_already_is_not_timed_again() -> None:
    entry = (progress(), [(candidate("a"), ())])
    trials = list(schedule([entry], lambda task: range(1, 4), lambda trial: trial.rung == 2))
    assert [t.rung for t in trials] == [1, 3]


def test_every_shape_of_a_task_is_timed_in_each_round() -> None:
    small, large = (("n", 1),), (("n", 9),)
    pairs = [(candidate("a"), small), (candidate("b"), small), (candidate("a"), large)]
    trials = list(schedule([(progress(), pairs)], lambda task: range(1, 3), lambda trial: False))
    assert [(t.candidate.payload, t.instance) for t in trials if t.rung == 1] == [
        ("a", small),
        ("b", small),
        ("a", large),
    ]
    assert len(trials) == 6


def timed(name: str, latency_s: float, rung: int, shape: int = 1) -> Record:
    trial = Trial("task", candidate(name), (("n", shape),), rung)
    return Record(trial, Measurement(Status.OK, (latency_s,)))


def holds(contention: Contention, name: str, rung: int, shape: int = 1) -> bool:
    return contention.holds(Trial("task", candidate(name), (("n", shape),), rung))


def test_who_was_far_from_the_fastest_in_one_round_is_not_in_the_next() -> None:
    contention = Contention([timed("a", 1.0, 1), timed("b", 1.1, 1), timed("c", 1.5, 1)])
    assert [holds(contention, name, 2) for name in "abc"] == [True, True, False]
    contention.observe(timed("a", 0.8, 2))
    assert not holds(contention, "b", 3)


def test_each_shape_is_judged_by_itself() -> None:
    contention = Contention([timed("a", 1.0, 1, 1), timed("b", 3.0, 1, 1), timed("b", 3.0, 1, 2)])
    assert not holds(contention, "b", 2, 1)
    assert holds(contention, "b", 2, 2)


def test_a_pair_that_is_chosen_is_timed_however_slow_it_is() -> None:
    contention = Contention([timed("a", 1.0, 1), timed("b", 3.0, 0)])
    assert not holds(contention, "b", 1)
    contention.require([Trial("task", candidate("b"), (("n", 1),), 1)])
    assert holds(contention, "b", 1)


def test_who_was_far_off_in_the_search_is_not_timed_again_once_the_first_was() -> None:
    contention = Contention([timed("a", 1.0, 0), timed("b", 3.0, 0)])
    assert holds(contention, "b", 1)
    contention.observe(timed("a", 1.0, 1))
    assert not holds(contention, "b", 1)


def test_luck_in_the_search_puts_nobody_out_but_keeps_who_had_it_in() -> None:
    contention = Contention([timed("lucky", 0.1, 0), timed("lucky", 2.0, 1), timed("a", 1.0, 1)])
    assert holds(contention, "a", 2)
    assert holds(contention, "lucky", 2)


def test_on_a_quiet_machine_fewer_are_contenders() -> None:
    """Where times of one pair differ by two percent, one slower by a tenth is slower."""
    pairs = [(f"k{n}", shape) for n in range(4) for shape in range(5)]
    quiet = [timed(name, latency_s, rung, shape)
             for name, shape in pairs for rung, latency_s in ((0, 0.98), (1, 1.0))]  # fmt: skip
    noisy = [timed(name, latency_s, rung, shape)
             for name, shape in pairs for rung, latency_s in ((0, 0.85), (1, 1.0))]  # fmt: skip
    rivals = [timed("near", 1.03, 1), timed("slower", 1.1, 1), timed("far", 1.3, 1)]
    for records, in_contention in ((quiet, [True, False, False]), (noisy, [True, True, False])):
        contention = Contention([*records, *rivals])
        assert [holds(contention, n, 2) for n in ("near", "slower", "far")] == in_contention


def retimed(name: str, *times_s: float) -> list[Record]:
    trials = [Trial("task", candidate(name), rung=rung) for rung in range(1, 1 + len(times_s))]
    return [
        Record(trial, Measurement(Status.OK, (latency_s,)))
        for trial, latency_s in zip(trials, times_s, strict=True)
    ]


def test_the_better_half_goes_on_by_the_medians_of_its_re_timings() -> None:
    times = {"a": (1.0, 3.0, 1.0), "b": (2.0, 2.0, 0.1), "c": (1.5, 1.5, 1.5), "d": (4.0, 4.0, 4.0)}
    contention = Contention(r for name, each in times.items() for r in retimed(name, *each))
    pairs = [(candidate(name), ()) for name in "abcd"]
    _, kept = contention.keep((progress(), [*pairs]))
    assert names([c for c, _ in kept]) == ["a", "c"]


def test_the_last_two_are_told_apart_and_one_alone_is_not_timed_again() -> None:
    contention = Contention([*retimed("a", 1.0), *retimed("b", 2.0), *retimed("c", 3.0)])
    pairs = [(candidate(name), ()) for name in "abc"]
    _, kept = contention.keep((progress(), pairs))
    assert names([c for c, _ in kept]) == ["a", "b"]
    assert contention.keep((progress(), kept))[1] == []


def test_one_that_no_machine_could_time_again_goes_no_further() -> None:
    contention = Contention([*retimed("a", 1.0), *retimed("b", 1.1), record("c", 0.5)])
    _, kept = contention.keep((progress(), [(candidate(name), ()) for name in "abc"]))
    assert names([c for c, _ in kept]) == ["a", "b"]


def test_kernels_of_a_task_with_shapes_all_go_on() -> None:
    task = Task("task", "task", "module", "target", shapes=(((("n", 1),), 1.0),))
    chosen = (TaskProgress(task), [(candidate("a"), (("n", 1),)), (candidate("b"), (("n", 1),))])
    assert Contention([]).keep(chosen) == chosen
