"""Builders: a candidate's misdeed is its result, and the next candidate gets a sound child."""

from __future__ import annotations

import ast
import io
import json
import os
import threading
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from actors.build_child import BuildChild
from actors.builder import Builder, Built
from actors.quiet_lock import Quiet
from tests.needed import needs_nvcc
from tuner.candidate import Candidate, CandidateKind
from tuner.record import Measurement, Status
from tuner.task import SpaceSource, Task

WAIT_S = 120.0
TASK = Task("0" * 16, "matmul", "no module", '{"kind":"llvm"}')

FAKE = '''
import os, signal, time
from actors.build_child import BuildAnswer
from tuner.record import Status

class Fake:
    """Does what the payload says."""
    def __init__(self): self.tasks, self.built, self.kept = {}, 0, None
    def knows(self, key, text_hash):
        return key in self.tasks, text_hash in {at for at, _ in self.tasks.values()}
    def learn(self, task, text_hash):
        self.tasks[task.key] = text_hash, task.space.text if task.space else ""
    def build(self, key, candidate):
        assert key in self.tasks
        self.built += 1
        word = candidate.payload
        if word == "crash": os.abort()
        if word == "crash if used" and self.built > 1: os.abort()
        if word.startswith("killed"):
            with open(word.split()[1], "a") as deaths: deaths.write("x")
            if os.path.getsize(word.split()[1]) <= int(word.split()[2]):
                os.kill(os.getpid(), signal.SIGKILL)
        if word == "hang": time.sleep(1000)
        if word == "grow":
            kept = []
            while True: kept.append(bytearray(os.urandom(1) * (8 << 20)))
        if word == "grow a little": self.kept = bytearray(os.urandom(1) * (200 << 20))
        if word == "raise": raise RuntimeError("a bug of ours")
        if word == "texts": return BuildAnswer(repr([t for _, t in self.tasks.values()]).encode())
        if word == "invalid": return BuildAnswer(status=Status.INVALID, error="refused")
        return BuildAnswer(f"{os.getpid()} {self.built}".encode())

class NeverReady:
    def __init__(self): raise RuntimeError("no compiler")
'''


def candidate(payload: str, space: str = "test") -> Candidate:
    return Candidate(CandidateKind.TRACE, payload, space)


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Builder]]:
    (tmp_path / "fake_build.py").write_text(FAKE)
    monkeypatch.syspath_prepend(str(tmp_path))
    made: list[Builder] = []

    def make(child: str = "Fake", **settings: Any) -> Builder:
        made.append(Builder(log_dir=tmp_path, child=f"fake_build:{child}", **settings))
        return made[-1]

    yield make
    for builder in made:
        builder.close()


def built(result: Built | Measurement) -> tuple[int, int]:
    """Process that built, and how many it had built."""
    assert isinstance(result, Built), result
    pid, count = result.artifact.split()
    return int(pid), int(count)


def failed(result: Built | Measurement) -> Measurement:
    assert isinstance(result, Measurement), result
    return result


def test_one_child_builds_many(fake: Callable[..., Builder]) -> None:
    builder = fake()
    first = built(builder.build(TASK, candidate("a"), WAIT_S))
    second = built(builder.build(TASK, candidate("b"), WAIT_S))
    assert (first[0], second[1]) == (second[0], 2)


def test_the_text_of_a_users_file_is_sent_to_each_child_once(fake: Callable[..., Builder]) -> None:
    builder = fake()
    space = SpaceSource("theirs.py", "SPACE = 1", "SPACE")
    for name in "abc":
        builder.build(replace(TASK, key=name, space=space), candidate("ok"), WAIT_S)
    texts = builder.build(TASK, candidate("texts"), WAIT_S)
    assert isinstance(texts, Built)
    assert ast.literal_eval(texts.artifact.decode()) == ["SPACE = 1", "", "", ""]
    builder.build(TASK, candidate("crash"), WAIT_S)
    builder.build(replace(TASK, key="b", space=space), candidate("ok"), WAIT_S)
    texts = builder.build(TASK, candidate("texts"), WAIT_S)
    assert isinstance(texts, Built)
    assert ast.literal_eval(texts.artifact.decode()) == ["SPACE = 1", ""]


@pytest.mark.tvm
def test_what_a_child_knows_is_whole() -> None:
    child = BuildChild()
    space = SpaceSource("theirs.py", "SPACE = 1", "SPACE", parts=("one",))
    first, second = (replace(TASK, key=key, space=space) for key in "ab")
    child.learn(first, "hash")
    assert child.knows("b", "hash") == (False, True)
    child.learn(replace(second, space=replace(space, text="")), "hash")
    assert child._tasks["b"].space == space


def test_a_refused_schedule_is_invalid(fake: Callable[..., Builder]) -> None:
    result = failed(fake().build(TASK, candidate("invalid"), WAIT_S))
    assert (result.status, result.error) == (Status.INVALID, "refused")


def test_a_compiler_that_crashes_is_a_failed_build(fake: Callable[..., Builder]) -> None:
    builder = fake()
    result = failed(builder.build(TASK, candidate("crash"), WAIT_S))
    assert (result.status, result.error) == (Status.BUILD_FAILED, "build: killed by SIGABRT")
    assert built(builder.build(TASK, candidate("next"), WAIT_S))[1] == 1


def test_a_crash_in_a_used_child_is_tried_again_in_a_fresh_one(
    fake: Callable[..., Builder],
) -> None:
    builder = fake()
    before = built(builder.build(TASK, candidate("first"), WAIT_S))
    after = built(builder.build(TASK, candidate("crash if used"), WAIT_S))
    assert after[0] != before[0]
    assert after[1] == 1


def test_a_crash_in_a_fresh_child_too_is_the_candidates_own(fake: Callable[..., Builder]) -> None:
    builder = fake()
    built(builder.build(TASK, candidate("first"), WAIT_S))
    result = failed(builder.build(TASK, candidate("crash"), WAIT_S))
    assert result.status is Status.BUILD_FAILED


def test_a_child_that_is_killed_from_outside_is_no_fault_of_the_candidate(
    fake: Callable[..., Builder], tmp_path: Path
) -> None:
    builder = fake()
    assert built(builder.build(TASK, candidate(f"killed {tmp_path / 'deaths'} 2"), WAIT_S))[1] == 1


def test_one_whose_child_is_killed_each_time_is(
    fake: Callable[..., Builder], tmp_path: Path
) -> None:
    result = failed(fake().build(TASK, candidate(f"killed {tmp_path / 'deaths'} 9"), WAIT_S))
    assert (result.status, result.error) == (Status.BUILD_FAILED, "build: killed by SIGKILL")
    assert len((tmp_path / "deaths").read_text()) == 3


def test_a_compiler_that_hangs_ends_at_the_deadline(fake: Callable[..., Builder]) -> None:
    builder = fake()
    result = failed(builder.build(TASK, candidate("hang"), 0.3))
    assert (result.status, result.error) == (
        Status.BUILD_FAILED,
        "build: no answer within 0.3 s",
    )
    built(builder.build(TASK, candidate("next"), WAIT_S))


def test_a_compiler_that_allocates_without_end_is_stopped(fake: Callable[..., Builder]) -> None:
    result = failed(fake(memory_limit_bytes=300 << 20).build(TASK, candidate("grow"), WAIT_S))
    assert result.status is Status.BUILD_FAILED
    assert "memory limit" in result.error


def test_a_child_that_has_grown_is_replaced(fake: Callable[..., Builder]) -> None:
    builder = fake(recycle_rss_bytes=150 << 20)
    before = built(builder.build(TASK, candidate("grow a little"), WAIT_S))
    after = built(builder.build(TASK, candidate("next"), WAIT_S))
    assert after[0] != before[0]


def test_an_error_of_ours_fails_the_build_with_its_reason(fake: Callable[..., Builder]) -> None:
    result = failed(fake().build(TASK, candidate("raise"), WAIT_S))
    assert result.error == "build: RuntimeError: a bug of ours"


def test_a_builder_that_cannot_start_says_so_and_blames_no_candidate(
    fake: Callable[..., Builder],
) -> None:
    builder = fake("NeverReady")
    with pytest.raises(RuntimeError, match="builder did not start: RuntimeError: no compiler"):
        builder.ready()
    with pytest.raises(RuntimeError, match="no compiler"):
        builder.build(TASK, candidate("a"), WAIT_S)


def test_its_child_is_registered_with_the_quiet_lock(
    fake: Callable[..., Builder], tmp_path: Path
) -> None:
    builder = fake(quiet=Quiet(tmp_path / "quiet"))
    pid = built(builder.build(TASK, candidate("a"), WAIT_S))[0]
    assert (tmp_path / "quiet" / str(pid)).exists()
    builder.close()
    assert not (tmp_path / "quiet" / str(pid)).exists()


def test_folders_of_killed_owners_are_removed_and_others_are_left(
    fake: Callable[..., Builder], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    temporary = tmp_path / "tmp"
    stale = temporary / "tuner-work-stale"
    stale.mkdir(parents=True)
    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    first, second = fake(), fake()
    built(first.build(TASK, candidate("a"), WAIT_S))
    built(second.build(TASK, candidate("a"), WAIT_S))
    assert not stale.exists()
    assert len(list(temporary.iterdir())) == 2
    first.close()
    second.close()
    assert list(temporary.iterdir()) == []


def test_one_whose_process_is_about_to_end_leaves_nothing(
    fake: Callable[..., Builder], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    builder = fake()
    pid, _ = built(builder.build(TASK, candidate("a"), WAIT_S))
    assert len(list(temporary.iterdir())) == 1
    leaving = threading.Thread(target=builder.leave)
    leaving.start()
    leaving.join(WAIT_S)
    assert list(temporary.iterdir()) == []
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)  # its child ends, too


@pytest.mark.parametrize("planted", ["a link", "another user's"])
def test_only_folders_of_ones_own_are_removed(
    fake: Callable[..., Builder], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, planted: str
) -> None:
    temporary, victim = tmp_path / "tmp", tmp_path / "tmp" / "tuner-work-victim"
    temporary.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    if planted == "a link":
        victim = tmp_path / "victim"
        (temporary / "tuner-work-link").symlink_to(victim)
    elif os.geteuid() != 0:
        pytest.skip("only root can plant what is another's")
    victim.mkdir()
    (victim / "file").touch()
    if planted != "a link":
        os.chown(victim, 12345, 12345)
    fake().ready()
    assert (victim / "file").exists()


@pytest.fixture(scope="module")
def real_task() -> Task:
    """A small product of matrices."""
    import tvm
    from tvm import te

    a = te.placeholder((16, 16), name="A")
    b = te.placeholder((16, 16), name="B")
    k = te.reduce_axis((0, 16), name="k")
    c = te.compute((16, 16), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C")
    module = tvm.IRModule({"main": te.create_prim_func([a, b, c])})
    return Task("1" * 16, "small", tvm.ir.save_json(module), '{"kind":"llvm","num-cores":1}')


def untouched(task: Task) -> Candidate:
    from spaces.design_space.realize import DEFAULT_SPACE
    from spaces.ir.schedules import canonical_payload, new_schedule, task_module

    schedule = new_schedule(task_module(task.module))
    return candidate(canonical_payload(schedule.trace), DEFAULT_SPACE)


@pytest.mark.tvm
def test_a_candidate_becomes_an_artifact_that_loads(real_task: Task, tmp_path: Path) -> None:
    from spaces.codegen.artifact import load_artifact

    builder = Builder(log_dir=tmp_path)
    try:
        first = builder.build(real_task, untouched(real_task), WAIT_S)
        assert isinstance(first, Built), first
        assert len(first.sha256) == 64
        assert load_artifact(first.artifact).implements_function("main")
        broken = builder.build(real_task, candidate("[[1], []]"), WAIT_S)
        assert isinstance(broken, Measurement)
        assert broken.status is Status.INVALID
        assert "\n" not in broken.error
        assert broken.error
    finally:
        builder.close()


def bound(task: Task) -> Candidate:
    """Every element by a GPU thread of its own."""
    from spaces.design_space.realize import DEFAULT_SPACE
    from spaces.ir.schedules import canonical_payload, new_schedule, task_module

    schedule = new_schedule(task_module(task.module))
    i, j, _ = schedule.get_loops(schedule.get_sblock("C"))
    schedule.bind(i, "blockIdx.x")
    schedule.bind(j, "threadIdx.x")
    return candidate(canonical_payload(schedule.trace), DEFAULT_SPACE)


def cuda_task(task: Task, arch: str) -> Task:
    target = {"kind": "cuda", "arch": arch, "max_threads_per_block": 1024}
    return Task(f"2-{arch}", "small", task.module, json.dumps(target))


@pytest.mark.tvm
def test_what_the_compiler_refuses_is_a_failed_build(real_task: Task, tmp_path: Path) -> None:
    """There was never such an architecture."""
    builder = Builder(log_dir=tmp_path)
    try:
        result = builder.build(cuda_task(real_task, "sm_1"), bound(real_task), WAIT_S)
        assert isinstance(result, Measurement)
        assert result.status is Status.BUILD_FAILED
        assert result.error
        assert "\n" not in result.error
    finally:
        builder.close()


@pytest.mark.tvm
def test_a_machine_without_the_compiler_of_a_target_says_so_before_it_is_counted_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would fail every candidate."""
    home = tmp_path / "cuda"
    (home / "bin").mkdir(parents=True)
    (home / "bin" / "nvcc").write_text("#!/bin/sh\necho 'fatal: cudafe++ died' >&2\nexit 2\n")
    (home / "bin" / "nvcc").chmod(0o755)
    monkeypatch.setenv("CUDA_HOME", str(home))
    builder = Builder(log_dir=tmp_path)
    try:
        builder.ready()
        builder.try_target('{"kind":"llvm","num-cores":1}')
        with pytest.raises(RuntimeError, match=r"cannot build .*cudafe\+\+ died"):
            builder.try_target('{"arch":"sm_90","kind":"cuda"}')
    finally:
        builder.close()


@pytest.mark.tvm
@needs_nvcc
def test_a_machine_that_can_build_for_a_target_is_counted_on(tmp_path: Path) -> None:
    builder = Builder(log_dir=tmp_path)
    try:
        builder.ready()
        builder.try_target('{"arch":"sm_90","kind":"cuda"}')
    finally:
        builder.close()


@pytest.mark.tvm
@needs_nvcc
def test_cuda_code_is_compiled_by_the_builder(real_task: Task, tmp_path: Path) -> None:
    builder = Builder(log_dir=tmp_path)
    try:
        result = builder.build(cuda_task(real_task, "sm_90"), bound(real_task), WAIT_S)
        assert isinstance(result, Built), result
        with zipfile.ZipFile(io.BytesIO(result.artifact)) as archive:
            assert archive.namelist() == ["kernel.so", "device.bin", "kernels.json"]
            assert len(archive.read("device.bin")) > 1000
    finally:
        builder.close()
