"""The pool's commands carried out by real Ray actors, which crash, hang and raise."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from typing import Any

import pytest

from cluster.ray_workers.ray_pool import Done, RayPool
from cluster.scaling.pool import Pool
from cluster.scaling.pool_policy import PoolPolicy

pytestmark = [pytest.mark.ray, pytest.mark.slow, pytest.mark.usefixtures("embedded_ray")]


class Odd:
    """A worker that does what its job says."""

    def ready(self) -> str:
        return f"pid {os.getpid()}"

    def work(self, job: str) -> str:
        verb, _, argument = job.partition(" ")
        if verb == "crash" or (verb == "crash-once" and _first_time(argument)):
            os._exit(7)
        if verb == "hang":
            time.sleep(1000)
        if verb == "raise":
            raise ValueError("odd")
        return f"did {job}"

    def leave(self, folder: str) -> None:
        open(os.path.join(folder, str(os.getpid())), "w").close()


def _first_time(path: str) -> bool:
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return False
    return True


def make_pool(*, lease_s: float = 60.0, attempts: int = 2, **settings: Any) -> RayPool[str]:
    import ray

    # Workers cannot import this file: its classes travel whole.
    ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])
    actor = ray.remote(num_cpus=0, max_restarts=0)(Odd)
    return RayPool(
        Pool("odd", lambda job: lease_s, PoolPolicy(attempts=attempts)),
        start=lambda name: actor.remote(),
        call=lambda handle, job: handle.work.remote(job),
        **settings,
    )


def run(pool: RayPool[str], until: Callable[[list[Done[str]]], bool]) -> list[Done[str]]:
    import ray

    done: list[Done[str]] = []
    deadline_s = time.monotonic() + 60
    while not until(done):
        assert time.monotonic() < deadline_s, f"only {done}"
        assert not pool.state.broken
        if refs := pool.pending():
            ray.wait(refs, num_returns=1, timeout=0.2)
        done += pool.step()
    return done


@pytest.fixture
def pool() -> Any:
    made = make_pool()
    yield made
    made.close()


def test_every_job_is_answered_once(pool: RayPool[str]) -> None:
    pool.resize(2)
    jobs = [f"job {n}" for n in range(20)]
    for job in jobs:
        pool.submit(job)
    done = run(pool, lambda d: len(d) >= len(jobs))
    assert sorted(d.value for d in done) == sorted(f"did {job}" for job in jobs)
    assert all(d.about.startswith("pid ") for d in done)


def test_a_crash_costs_an_attempt_and_the_job_is_done_by_another(
    pool: RayPool[str], tmp_path: Any
) -> None:
    pool.resize(1)
    pool.submit(f"crash-once {tmp_path / 'crashed'}")
    (done,) = run(pool, lambda d: len(d) >= 1)
    assert done.lost == ""
    assert done.attempt == 2


def test_a_job_that_kills_every_worker_is_given_up_and_innocents_go_on(
    pool: RayPool[str],
) -> None:
    pool.resize(1)
    for job in ("crash", "after"):
        pool.submit(job)
    by_job = {d.job: d for d in run(pool, lambda d: len(d) >= 2)}
    assert by_job["crash"].lost
    assert by_job["crash"].attempt == 2
    assert by_job["after"].value == "did after"


def test_a_worker_that_is_refused_gets_no_job() -> None:
    seen: list[str] = []

    def refuses(about: str) -> str:
        seen.append(about)
        return "not this one" if len(seen) == 1 else ""

    pool = make_pool(refuses=refuses)
    pool.resize(1)
    pool.submit("job")
    (done,) = run(pool, lambda d: len(d) >= 1)
    assert done.about == seen[-1] != seen[0]
    pool.close()


def test_an_error_in_a_workers_own_code_counts_as_its_loss(pool: RayPool[str]) -> None:
    pool.resize(1)
    pool.submit("raise")
    (done,) = run(pool, lambda d: len(d) >= 1)
    assert "odd" in done.lost


def test_a_hanging_worker_is_killed_at_the_deadline_of_its_lease() -> None:
    pool = make_pool(lease_s=1.0, attempts=1)
    pool.resize(1)
    pool.submit("hang")
    (done,) = run(pool, lambda d: len(d) >= 1)
    assert "too long" in done.lost
    pool.submit("after")
    (after,) = run(pool, lambda d: len(d) >= 1)
    assert after.value == "did after"
    pool.close()


def test_workers_leave_before_they_are_ended(tmp_path: Any) -> None:
    pool = make_pool(leave=lambda handle: handle.leave.remote(str(tmp_path)))
    pool.resize(2)
    run(pool, lambda _: pool.state.ready == 2)
    pool.close()
    assert len(list(tmp_path.iterdir())) == 2


def test_one_that_does_not_leave_is_ended_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cluster.ray_workers.ray_pool._LEAVE_S", 0.1)
    pool = make_pool(leave=lambda handle: handle.work.remote("hang"))
    pool.resize(1)
    run(pool, lambda _: bool(pool.state.ready))
    pool.close()


def test_what_a_worker_keeps_on_a_machine_without_the_run_folder_goes_with_it(
    tmp_path: Any,
) -> None:
    """In order, or by a kill and the next worker that starts there."""
    import ray

    from actors.chunked_args import in_pieces
    from actors.ray_actors import WorkerPlace, actor_class
    from tuner.files.locks import try_lock

    def started(run: str) -> Any:
        none, away = tmp_path / "none", tmp_path / "runs" / run
        place = WorkerPlace(None, none / "logs", none / "scratch", away)
        actor = actor_class("builder").remote("b", place, *in_pieces([]))
        ray.get(actor.beat.remote(), timeout=60)
        return actor

    def there() -> set[str]:
        return {path.name for path in (tmp_path / "runs").iterdir()}

    killed = started("killed")
    ray.kill(killed)
    deadline_s = time.monotonic() + 60
    while (lock := try_lock(tmp_path / "runs" / "killed")) is None:
        assert time.monotonic() < deadline_s
        time.sleep(0.05)
    os.close(lock)
    left = started("left")
    assert there() == {"left"}
    ray.get(left.leave.remote(), timeout=60)
    assert there() == set()


def test_a_builder_that_cannot_build_for_the_run_s_target_is_never_ready(tmp_path: Any) -> None:
    """It would fail every trial that it gets."""
    import ray

    from actors.chunked_args import in_pieces
    from actors.ray_actors import WorkerPlace, actor_class
    from tests.contracts.programs import gemm_task

    (tmp_path / "bin").mkdir()
    nvcc = tmp_path / "bin" / "nvcc"
    nvcc.write_text("#!/bin/sh\necho 'nvcc fatal: no cudafe++'\nexit 2\n")
    nvcc.chmod(0o755)
    task = gemm_task('{"arch":"sm_90","kind":"cuda","max_num_threads":1024}', 64)
    place = WorkerPlace(None, tmp_path, tmp_path)
    options = {"runtime_env": {"env_vars": {"CUDA_HOME": str(tmp_path)}}}
    actor = actor_class("builder").options(**options).remote("b", place, *in_pieces([task]))
    with pytest.raises(RuntimeError, match=r"cannot build for the target: .*no cudafe\+\+"):
        ray.get(actor.ready.remote(), timeout=120)
    ray.kill(actor)
