"""The pool: every job given up or answered exactly once, whatever becomes of the workers."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.scaling.pool import Assign, GiveUp, KillWorker, Pool, StartWorker
from cluster.scaling.pool_policy import PoolCounts, PoolPolicy


def pool(**policy: float) -> Pool[str]:
    return Pool("builder", lambda job: 10.0, PoolPolicy(**policy))  # type: ignore[arg-type]


def test_a_pool_starts_as_many_workers_as_are_wanted() -> None:
    p = pool()
    assert p.resize(2, 0.0) == [StartWorker("builder-1"), StartWorker("builder-2")]
    assert p.ready == 0


def test_a_job_waits_for_a_worker_to_be_ready() -> None:
    p = pool()
    p.resize(1, 0.0)
    assert p.submit("a", 0.0) == []
    assert p.on_ready("builder-1", 1.0) == [Assign(1, "builder-1", "a", 1)]


def test_an_answer_frees_the_worker_for_the_next_job() -> None:
    p = pool()
    p.resize(1, 0.0)
    p.on_ready("builder-1", 0.0)
    p.submit("a", 0.0)
    p.submit("b", 0.0)
    lease, commands = p.on_answer(1, 1.0)
    assert lease is not None
    assert lease.job == "a"
    assert commands == [Assign(2, "builder-1", "b", 1)]


def test_a_lost_worker_costs_its_lease_and_is_replaced() -> None:
    p = pool()
    p.resize(1, 0.0)
    p.on_ready("builder-1", 0.0)
    p.submit("a", 0.0)
    assert p.on_lost("builder-1", "node died", 1.0) == [StartWorker("builder-2")]
    assert p.on_ready("builder-2", 2.0) == [Assign(2, "builder-2", "a", 2)]


def test_its_numbers_count_what_was_lost_and_not_what_was_dismissed() -> None:
    p = pool()
    p.resize(2, 0.0)
    p.on_ready("builder-1", 0.0)
    p.on_ready("builder-2", 0.0)
    for job in "abc":
        p.submit(job, 0.0)
    assert p.counts == PoolCounts(ready=2, wanted=2, waiting=1, lost=0)
    assert p.on_lost("builder-1", "node died", 1.0) == [StartWorker("builder-3")]
    assert p.resize(1, 1.0) == [KillWorker("builder-3")]
    assert p.counts == PoolCounts(ready=1, wanted=1, waiting=2, lost=1)


def test_one_that_is_unfit_is_replaced_and_does_not_speak_against_the_others() -> None:
    p = pool(failed_starts=2)
    p.resize(1, 0.0)
    for n in range(1, 5):
        assert p.on_unfit(f"builder-{n}", 0.0) == [StartWorker(f"builder-{n + 1}")]
    assert p.broken == ""
    assert p.on_unfit("builder-1", 0.0) == []


def test_a_job_lost_too_often_is_given_up() -> None:
    p = pool(attempts=2)
    p.resize(1, 0.0)
    p.submit("a", 0.0)
    p.on_ready("builder-1", 0.0)
    p.on_lost("builder-1", "node died", 1.0)
    p.on_ready("builder-2", 2.0)
    commands = p.on_lost("builder-2", "node died", 3.0)
    assert GiveUp("a", 2, "node died") in commands
    assert p.load == 0


def test_a_worker_that_holds_its_lease_too_long_is_killed_and_its_late_answer_dropped() -> None:
    p = pool()
    p.resize(1, 0.0)
    p.on_ready("builder-1", 0.0)
    p.submit("a", 0.0)
    assert KillWorker("builder-1", "held its lease too long") in p.tick(10.0)
    assert p.on_answer(1, 11.0) == (None, [])


def test_a_worker_that_does_not_start_is_replaced_until_there_is_no_hope() -> None:
    p = pool(failed_starts=2)
    p.resize(1, 0.0)
    assert p.on_lost("builder-1", "no space left", 5.0) == [StartWorker("builder-2")]
    assert not p.broken
    assert p.on_lost("builder-2", "no module named tvm", 6.0) == []
    assert "no module named tvm" in p.broken


def test_when_the_wait_for_a_machine_is_over_there_is_no_hope() -> None:
    p = pool(start_deadline_s=5.0)
    p.resize(1, 0.0)
    assert p.tick(4.9) == []
    slow = "no machine had room for one within 5 s"
    assert p.tick(5.0) == [KillWorker("builder-1", slow)]
    assert p.broken == "builder workers do not start: no machine had room for one within 5 s"


def test_who_waits_for_a_machine_next_to_others_that_are_ready_waits_again_later() -> None:
    p = pool(start_deadline_s=5.0)
    p.resize(2, 0.0)
    p.on_ready("builder-1", 0.0)
    slow = "no machine had room for one within 5 s"
    assert p.tick(5.0) == [KillWorker("builder-2", slow), StartWorker("builder-3")]
    assert not p.broken


def test_shrinking_stops_idle_workers_and_lets_busy_ones_finish() -> None:
    p = pool()
    p.resize(2, 0.0)
    p.on_ready("builder-1", 0.0)
    p.on_ready("builder-2", 0.0)
    p.submit("a", 0.0)
    assert p.resize(1, 1.0) == [KillWorker("builder-2")]
    assert p.resize(0, 1.0) == []
    _, commands = p.on_answer(1, 2.0)
    assert commands == [KillWorker("builder-1")]


def test_where_it_matters_who_goes_those_that_work_go_when_they_are_done() -> None:
    p = pool()
    p.resize(2, 0.0)
    p.on_ready("builder-1", 0.0)
    p.on_ready("builder-2", 0.0)
    p.submit("a", 0.0)
    assert p.resize(1, 1.0, ranks={"builder-1": 1, "builder-2": 0}) == []
    p.submit("b", 1.0)
    _, commands = p.on_answer(1, 2.0)
    assert commands == [KillWorker("builder-1")]
    _, commands = p.on_answer(2, 3.0)
    assert commands == []
    assert p.ready == 1


def test_an_illegal_event_raises() -> None:
    p = pool()
    p.resize(1, 0.0)
    p.on_ready("builder-1", 0.0)
    with pytest.raises(ValueError, match="builder-1 is idle"):
        p.on_ready("builder-1", 1.0)


def test_a_worker_that_is_not_heard_of_is_lost_and_its_job_done_by_another() -> None:
    p = pool(silence_s=6.0)
    p.resize(1, 0.0)
    p.on_ready("builder-1", 0.0)
    p.submit("a", 0.0)
    for second in range(6):
        assert p.tick(float(second)) == []
    silent = KillWorker("builder-1", "not heard of any more")
    assert p.tick(6.0) == [silent, StartWorker("builder-2")]
    assert p.on_ready("builder-2", 7.0) == [Assign(2, "builder-2", "a", 2)]


def test_a_sign_of_life_counts_from_when_it_came() -> None:
    p = pool(silence_s=6.0)
    p.resize(1, 0.0)
    p.on_ready("builder-1", 0.0)
    for second in range(30):
        p.on_heard("builder-1", float(second))
        assert p.tick(float(second)) == []


def test_who_did_not_listen_blames_nobody_for_silence() -> None:
    p = pool(silence_s=6.0)
    p.resize(1, 0.0)
    p.on_ready("builder-1", 0.0)
    p.tick(1.0)
    assert p.tick(101.0) == []
    assert p.tick(102.0) == []


def test_a_worker_whose_machine_leaves_finishes_its_job_and_gets_no_other() -> None:
    p = pool()
    p.resize(1, 0.0)
    p.on_ready("builder-1", 0.0)
    p.submit("a", 0.0)
    p.submit("b", 0.0)
    assert p.on_leaving("builder-1", 1.0) == [StartWorker("builder-2")]
    lease, commands = p.on_answer(1, 2.0)
    assert lease is not None
    assert commands == [KillWorker("builder-1")]
    assert p.on_ready("builder-2", 3.0) == [Assign(2, "builder-2", "b", 1)]


def test_an_idle_worker_whose_machine_leaves_is_stopped_at_once() -> None:
    p = pool()
    p.resize(1, 0.0)
    p.on_ready("builder-1", 0.0)
    assert p.on_leaving("builder-1", 1.0) == [StartWorker("builder-2"), KillWorker("builder-1")]
    assert p.ready == 0


def test_workers_that_only_start_are_the_first_to_go() -> None:
    p = pool()
    p.resize(2, 0.0)
    p.on_ready("builder-1", 0.0)
    assert p.resize(1, 1.0) == [KillWorker("builder-2")]
    assert p.on_ready("builder-2", 2.0) == []
    assert not p.broken


def test_a_start_that_fails_next_to_others_that_are_ready_is_tried_again_later() -> None:
    p = pool(failed_starts=1)
    p.resize(2, 0.0)
    p.on_ready("builder-1", 0.0)
    assert p.on_lost("builder-2", "no space", 1.0) == [StartWorker("builder-3")]
    assert p.on_lost("builder-3", "no space", 2.0) == []
    assert p.tick(2.5) == []
    assert p.tick(3.0) == [StartWorker("builder-4")]
    assert not p.broken


def test_a_job_that_was_lost_elsewhere_has_fewer_attempts_left() -> None:
    p = pool(attempts=2)
    p.resize(1, 0.0)
    p.on_ready("builder-1", 0.0)
    assert p.submit("a", 0.0, attempt=2) == [Assign(1, "builder-1", "a", 2)]
    assert GiveUp("a", 2, "node died") in p.on_lost("builder-1", "node died", 1.0)


@given(
    st.lists(
        st.sampled_from(
            ["submit", "ready", "lost", "answer", "tick", "grow", "shrink", "leave", "late"]
        ),
        max_size=80,
    )
)
def test_every_job_ends_exactly_once(events: list[str]) -> None:
    p = pool(failed_starts=1000, start_deadline_s=1e9)
    now_s, jobs, ended = 0.0, 0, Counter[str]()
    starting: list[str] = []
    leases: dict[int, str] = {}

    def carry_out(commands: list[object]) -> None:
        for command in commands:
            if isinstance(command, StartWorker):
                starting.append(command.worker)
            elif isinstance(command, KillWorker):
                for held in [n for n, w in leases.items() if w == command.worker]:
                    del leases[held]
            elif isinstance(command, Assign):
                leases[command.lease] = command.worker
            elif isinstance(command, GiveUp):
                ended[command.job] += 1

    def answer(number: int) -> None:
        del leases[number]
        lease, commands = p.on_answer(number, now_s)
        if lease is not None:
            ended[lease.job] += 1
        carry_out(list(commands))

    carry_out(list(p.resize(2, now_s)))
    for event in events:
        now_s += 4.0
        if event == "submit":
            jobs += 1
            carry_out(list(p.submit(f"job-{jobs}", now_s)))
        elif event == "ready" and starting:
            carry_out(list(p.on_ready(starting.pop(0), now_s)))
        elif event == "lost" and leases:
            number, worker = next(iter(leases.items()))
            del leases[number]
            carry_out(list(p.on_lost(worker, "lost", now_s)))
        elif event == "answer" and leases:
            answer(next(iter(leases)))
        elif event == "tick":
            carry_out(list(p.tick(now_s)))
        elif event == "grow":
            carry_out(list(p.resize(3, now_s)))
        elif event == "shrink":
            carry_out(list(p.resize(1, now_s)))
        elif event == "leave" and leases:
            carry_out(list(p.on_leaving(next(iter(leases.values())), now_s)))
        elif event == "late":
            now_s += 7.0
            carry_out(list(p.tick(now_s)))
    for _ in range(1000):
        if not p.load:
            break
        now_s += 0.01
        while starting:
            carry_out(list(p.on_ready(starting.pop(0), now_s)))
        for number in list(leases):
            answer(number)
    assert ended == Counter({f"job-{n}": 1 for n in range(1, jobs + 1)})
