"""What jobs need is made first, in a lease of its own; frozen time counts against no lease."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from cluster.scaling.pool import Pool
from cluster.scaling.pool_commands import Assign, GiveUp, KillWorker, Prepare, StartWorker
from cluster.scaling.pool_policy import PoolPolicy


def pool(**policy: float) -> Pool[str]:
    """Jobs are called `task-number`, and need the reference of their task."""
    return Pool(
        "runner",
        lambda job: 10.0,
        PoolPolicy(**policy),  # type: ignore[arg-type]
        needs=lambda job: job.split("-")[0],
        prepare_s=100.0,
    )


def with_workers(count: int, **policy: float) -> Pool[str]:
    p = pool(**policy)
    p.resize(count, 0.0)
    for n in range(count):
        p.on_ready(f"runner-{n + 1}", 0.0)
    return p


def test_a_worker_makes_what_a_job_needs_before_it_gets_it_and_once() -> None:
    p = with_workers(1)
    assert p.submit("a-1", 0.0) == [Prepare(1, "runner-1", "a-1")]
    assert p.on_answer(1, 50.0) == (None, [Assign(2, "runner-1", "a-1", 1)])
    answered, _ = p.on_answer(2, 51.0)
    assert answered is not None
    assert answered.job == "a-1"
    assert p.submit("a-2", 52.0) == [Assign(3, "runner-1", "a-2", 1)]


def test_what_takes_long_to_make_has_a_deadline_of_its_own() -> None:
    p = with_workers(1)
    p.submit("a-1", 0.0)
    assert p.tick(99.0) == []
    p.on_answer(1, 99.5)
    assert p.tick(109.0) == []
    assert KillWorker("runner-1", "held its lease too long") in p.tick(109.5)


def test_as_long_as_nobody_has_made_it_one_tries_and_others_do_something_else() -> None:
    p = with_workers(3)
    assert p.submit("a-1", 0.0) == [Prepare(1, "runner-1", "a-1")]
    assert p.submit("a-2", 0.0) == []
    assert p.submit("b-1", 0.0) == [Prepare(2, "runner-2", "b-1")]
    made = p.on_answer(1, 5.0)
    assert made == (None, [Assign(3, "runner-1", "a-1", 1), Prepare(4, "runner-3", "a-2")])


def test_what_cannot_be_made_is_the_end_of_all_who_need_it_and_of_nobody_else() -> None:
    p = with_workers(1)
    for job in ("a-1", "b-1", "a-2"):
        p.submit(job, 0.0)
    assert p.on_unprepared(1, "too slow", 60.0) == [
        GiveUp("a-1", 1, "too slow", unprepared=True),
        GiveUp("a-2", 1, "too slow", unprepared=True),
        Prepare(2, "runner-1", "b-1"),
    ]
    assert p.submit("a-3", 61.0) == [GiveUp("a-3", 1, "too slow", unprepared=True)]
    assert p.refused("a") == "too slow"
    assert p.refused("b") == ""


def test_what_is_lost_with_its_worker_is_made_elsewhere_and_costs_the_job_no_attempt() -> None:
    p = with_workers(2)
    p.submit("a-1", 0.0)
    lost = p.on_lost("runner-1", "node died", 30.0)
    assert lost == [StartWorker("runner-3"), Prepare(2, "runner-2", "a-1")]
    _, commands = p.on_answer(2, 60.0)
    assert commands == [Assign(3, "runner-2", "a-1", 1)]


def test_what_takes_every_worker_with_it_is_given_up() -> None:
    p = with_workers(3, attempts=3)
    p.submit("a-1", 0.0)
    p.submit("a-2", 0.0)
    p.on_lost("runner-1", "out of memory", 1.0)
    p.on_lost("runner-2", "out of memory", 2.0)
    commands = p.on_lost("runner-3", "out of memory", 3.0)
    why = "lost 3 times: out of memory"
    assert GiveUp("a-1", 1, why, unprepared=True) in commands
    assert GiveUp("a-2", 1, why, unprepared=True) in commands
    assert p.load == 0


def test_a_worker_that_has_lost_what_it_made_makes_it_again() -> None:
    p = with_workers(1, attempts=2)
    p.submit("a-1", 0.0)
    p.on_answer(1, 1.0)
    assert p.on_unprepared(2, "gone", 2.0) == [Prepare(3, "runner-1", "a-1")]
    assert p.on_answer(3, 3.0) == (None, [Assign(4, "runner-1", "a-1", 2)])
    assert p.on_unprepared(4, "gone", 4.0) == [GiveUp("a-1", 2, "gone", unprepared=True)]
    assert p.refused("a") == ""


def test_what_was_made_once_is_not_given_up_for_all_since_others_fail_at_it() -> None:
    p = with_workers(1, attempts=2)
    p.submit("a-1", 0.0)
    p.on_answer(1, 1.0)
    p.resize(2, 2.0)
    p.on_ready("runner-2", 3.0)
    assert p.submit("a-2", 4.0) == [Prepare(3, "runner-2", "a-2")]
    assert p.on_unprepared(3, "too slow", 5.0) == []
    answered, commands = p.on_answer(2, 6.0)
    assert answered is not None
    assert commands == [Assign(4, "runner-1", "a-2", 2)]
    assert p.refused("a") == ""


def test_who_could_not_make_it_tries_again_only_where_nobody_else_may() -> None:
    p = with_workers(1, attempts=3)
    p.submit("a-1", 0.0)
    p.on_answer(1, 1.0)
    p.resize(2, 2.0)
    p.on_ready("runner-2", 3.0)
    p.submit("a-2", 4.0)
    p.on_unprepared(3, "too slow", 5.0)
    lost = p.on_lost("runner-1", "node died", 6.0)
    assert lost == [StartWorker("runner-3"), Prepare(4, "runner-2", "a-1")]


def test_who_starts_later_makes_its_own() -> None:
    p = with_workers(1)
    p.submit("a-1", 0.0)
    p.on_answer(1, 1.0)
    p.resize(2, 2.0)
    p.on_ready("runner-2", 3.0)
    assert p.submit("a-2", 4.0) == [Prepare(3, "runner-2", "a-2")]


def test_one_that_leaves_made_it_for_the_others() -> None:
    p = with_workers(1)
    p.submit("a-1", 0.0)
    p.on_leaving("runner-1", 1.0)
    assert p.on_answer(1, 2.0) == (None, [KillWorker("runner-1")])
    assert p.on_ready("runner-2", 3.0) == [Prepare(2, "runner-2", "a-1")]


def test_late_answers_to_what_is_over_change_nothing() -> None:
    p = with_workers(1)
    p.submit("a-1", 0.0)
    p.on_lost("runner-1", "silent", 1.0)
    assert p.on_answer(1, 2.0) == (None, [])
    assert p.on_unprepared(1, "no", 2.0) == []
    assert p.refused("a") == ""


def test_time_that_a_machine_was_frozen_does_not_count_against_a_lease() -> None:
    p = Pool[str]("builder", lambda job: 10.0)
    p.resize(1, 0.0)
    p.on_ready("builder-1", 0.0)
    p.on_heard("builder-1", 1.0, 500.0)
    p.submit("a", 2.0)
    for second in range(3, 30):
        p.on_heard("builder-1", float(second), 500.0 + 0.75 * (second - 2))
        assert p.tick(float(second)) == []
    assert KillWorker("builder-1", "held its lease too long") in p.tick(33.0)


def test_what_was_frozen_before_a_lease_is_no_excuse() -> None:
    p = Pool[str]("builder", lambda job: 10.0)
    p.resize(1, 0.0)
    p.on_ready("builder-1", 0.0)
    p.submit("a", 0.0)
    p.on_heard("builder-1", 1.0, 1000.0)
    p.on_answer(1, 9.0)
    p.on_heard("builder-1", 9.5, 1008.0)
    p.submit("b", 10.0)
    p.on_heard("builder-1", 12.0, 1008.0)
    assert KillWorker("builder-1", "held its lease too long") in p.tick(20.0)


_EVENTS = ["submit", "ready", "lost", "answer", "cannot", "late", "grow", "shrink", "leave"]


@given(st.lists(st.tuples(st.sampled_from(_EVENTS), st.integers(0, 2)), max_size=80))
def test_every_job_ends_exactly_once(events: list[tuple[str, int]]) -> None:
    p = pool(failed_starts=1000, start_deadline_s=1e9)
    now_s, jobs, ended = 0.0, 0, Counter[str]()
    starting: list[str] = []
    leases: dict[int, Prepare[str] | Assign[str]] = {}
    made: set[tuple[str, str]] = set()

    def carry_out(commands: list[object]) -> None:
        for command in commands:
            if isinstance(command, StartWorker):
                starting.append(command.worker)
            elif isinstance(command, KillWorker):
                for held in [n for n, c in leases.items() if c.worker == command.worker]:
                    del leases[held]
            elif isinstance(command, Prepare | Assign):
                need = (command.worker, command.job.split("-")[0])
                assert (need in made) == isinstance(command, Assign)
                leases[command.lease] = command
            elif isinstance(command, GiveUp):
                ended[command.job] += 1

    def answer(number: int) -> None:
        given = leases.pop(number)
        if isinstance(given, Prepare):
            made.add((given.worker, given.job.split("-")[0]))
        lease, commands = p.on_answer(number, now_s)
        if lease is not None:
            ended[lease.job] += 1
        carry_out(list(commands))

    carry_out(list(p.resize(2, now_s)))
    for event, which in events:
        now_s += 4.0
        some = list(leases)[which % len(leases)] if leases else None
        if event == "submit":
            jobs += 1
            carry_out(list(p.submit(f"{'abc'[which]}-{jobs}", now_s)))
        elif event == "ready" and starting:
            carry_out(list(p.on_ready(starting.pop(0), now_s)))
        elif event == "late":
            now_s += 100.0
            carry_out(list(p.tick(now_s)))
        elif event in ("grow", "shrink"):
            carry_out(list(p.resize(3 if event == "grow" else 1, now_s)))
        elif some is not None and event == "lost":
            carry_out(list(p.on_lost(leases.pop(some).worker, "lost", now_s)))
        elif some is not None and event == "answer":
            answer(some)
        elif some is not None and event == "cannot":
            given = leases.pop(some)
            made.discard((given.worker, given.job.split("-")[0]))
            carry_out(list(p.on_unprepared(some, "cannot", now_s)))
        elif some is not None and event == "leave":
            carry_out(list(p.on_leaving(leases[some].worker, now_s)))
    for _ in range(1000):
        if not p.load:
            break
        now_s += 0.01
        while starting:
            carry_out(list(p.on_ready(starting.pop(0), now_s)))
        for number in list(leases):
            answer(number)
    assert ended == Counter(dict.fromkeys(ended, 1))
    assert ended.total() == jobs
