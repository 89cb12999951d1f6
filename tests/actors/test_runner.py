"""Runners: only a right and honestly timed kernel is OK, and nothing it does harms the next."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from actors.quiet_lock import Quiet
from actors.runner import Runner
from tuner.effort import Timing
from tuner.record import Measurement, Status
from tuner.task import Task

WAIT_S = 120.0
TARGET = json.dumps({"kind": "llvm", "num-cores": 1})
CUDA = json.dumps({"kind": "cuda", "arch": "sm_90"})
TASK = Task("0" * 16, "matmul", "no module", TARGET)
TIMING = Timing(sample_s=0.001, total_s=0.004, min_samples=3, max_samples=5)

FAKE = '''
import os, signal, time
from actors.run_child import Checked
from spaces.devices.ladder import Timed

class Fake:
    """Does what the artifact says."""
    def __init__(self, target, threads, scratch): self.known, self.ran = set(), 0
    def knows(self, key, instance): return (key, instance) in self.known
    def learn(self, task, instance):
        if task.name == "hang": time.sleep(1000)
        if task.name == "crash": os.abort()
        if task.name.startswith("killed") and not os.path.exists(task.name.split()[1]):
            open(task.name.split()[1], "w").close()
            os.kill(os.getpid(), signal.SIGKILL)
        self.known.add((task.key, instance))
    def prepare(self, key, instance, artifact, deadline_s):
        self.ran += 1
        self.word = artifact.decode()
        if self.word == "large": self.kept = bytearray(os.urandom(1) * (200 << 20))
        if self.word == "grow":
            self.kept = []
            while True:
                self.kept.append(bytearray(os.urandom(1) * (1 << 20)))
                time.sleep(0.001)
        if self.word == "crash if used" and self.ran > 1: os.abort()
        if self.word == "poisoned if used" and self.ran > 1:
            raise RuntimeError("CUDA: an illegal memory access was encountered")
        if self.word.startswith("killed") and not os.path.exists(self.word.split()[1]):
            open(self.word.split()[1], "w").close()
            os.kill(os.getpid(), signal.SIGKILL)
        if self.word.startswith("full"):
            _, place, error = self.word.split(maxsplit=2)
            if not os.path.exists(place):
                if os.path.isabs(place): open(place, "w").close()
                raise RuntimeError(error)
        if self.word == "slow": time.sleep(1.1)
        error = "off by one" if self.word == "wrong" else ""
        return Checked(error, 1.1 if self.word == "slow" else 0.001)
    def time(self, timing, cutoff_s):
        if self.word == "hang timed": time.sleep(1000)
        if self.word == "crash timed": os.abort()
        if self.word.startswith("samples"):
            return Timed(tuple(float(w) for w in self.word.split()[1:]))
        if cutoff_s is not None and cutoff_s < 0.002: return Timed((0.002,), censored=True)
        return Timed((0.002, float(os.getpid())))
'''


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Runner]]:
    (tmp_path / "fake_run.py").write_text(FAKE)
    monkeypatch.syspath_prepend(str(tmp_path))
    made: list[Runner] = []

    def make(**settings: Any) -> Runner:
        runner = Runner(
            **{"target": TARGET, **settings},
            log_dir=tmp_path,
            scratch=tmp_path / "scratch",
            child="fake_run:Fake",
        )
        made.append(runner)
        return runner

    yield make
    for runner in made:
        runner.close()


def run(
    runner: Runner,
    artifact: bytes,
    task: Task = TASK,
    *,
    cutoff_s: float | None = None,
    deadline_s: float = WAIT_S,
) -> Measurement:
    return runner.run(task, artifact, timing=TIMING, cutoff_s=cutoff_s, deadline_s=deadline_s)


def pid(measured: Measurement) -> int:
    assert measured.status is Status.OK, measured
    return int(measured.samples_s[1])


def test_all_samples_are_kept(fake: Callable[..., Runner]) -> None:
    measured = run(fake(), b"samples 0.25 0.5 0.125")
    assert (measured.status, measured.samples_s) == (Status.OK, (0.25, 0.5, 0.125))
    assert measured.run_s > 0


def test_a_sound_child_is_used_again_and_a_suspect_one_is_not(fake: Callable[..., Runner]) -> None:
    runner = fake()
    first = pid(run(runner, b"good"))
    assert pid(run(runner, b"good")) == first
    assert run(runner, b"wrong").status is Status.WRONG
    assert pid(run(runner, b"good")) != first


def test_a_wrong_output_on_a_device_leaves_the_host_sound(fake: Callable[..., Runner]) -> None:
    runner = fake(target=CUDA)
    first = pid(run(runner, b"good"))
    assert run(runner, b"wrong").status is Status.WRONG
    assert pid(run(runner, b"good")) == first


@pytest.mark.parametrize(
    "error",
    [
        "CUDA Error: cudaErrorMemoryAllocation (2): out of memory",
        "CUDAError: cuModuleLoadData(...) failed with error: CUDA_ERROR_OUT_OF_MEMORY",
    ],
)
def test_memory_that_others_took_from_a_device_is_nobodys_fault(
    fake: Callable[..., Runner], tmp_path: Path, error: str
) -> None:
    runner = fake(target=CUDA)
    first = pid(run(runner, b"good"))
    second = pid(run(runner, f"full {tmp_path / 'freed'} {error}".encode()))
    assert second != first, "another try, in a child of its own"
    lost = run(runner, f"full forgood {error}".encode())
    assert lost.status is Status.LOST
    assert error in lost.error


def test_a_child_that_has_grown_is_replaced_but_not_one_that_was_as_large_at_first(
    fake: Callable[..., Runner],
) -> None:
    runner = fake(recycle_growth_bytes=100 << 20)
    first = pid(run(runner, b"good"))
    assert pid(run(runner, b"large")) == first
    second = pid(run(runner, b"large"))
    assert second != first
    assert pid(run(runner, b"large")) == second


def test_a_child_that_uses_more_than_half_of_the_memory_there_is_is_killed(
    fake: Callable[..., Runner], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("actors.runner.memory_bytes", lambda: 400 << 20)
    measured = run(fake(), b"grow")
    assert measured.status is Status.RUN_FAILED
    assert measured.error.endswith("of 200 MB")


def test_a_crash_in_a_used_child_is_tried_again_in_a_fresh_one(
    fake: Callable[..., Runner],
) -> None:
    runner = fake()
    first = pid(run(runner, b"good"))
    assert pid(run(runner, b"crash if used")) != first


def test_an_error_of_the_device_that_another_kernel_may_have_left_is_not_believed_at_once(
    fake: Callable[..., Runner],
) -> None:
    runner = fake()
    first = pid(run(runner, b"good"))
    assert pid(run(runner, b"poisoned if used")) != first


def test_a_child_that_is_killed_from_outside_is_no_fault_of_the_artifact(
    fake: Callable[..., Runner], tmp_path: Path
) -> None:
    assert run(fake(), f"killed {tmp_path / 'death'}".encode()).status is Status.OK


def test_a_crash_while_timed_names_the_signal(fake: Callable[..., Runner]) -> None:
    measured = run(fake(), b"crash timed")
    assert (measured.status, measured.error) == (Status.RUN_FAILED, "killed by SIGABRT")


def test_a_hang_while_timed_is_a_timeout_and_leaves_quiet(
    fake: Callable[..., Runner], tmp_path: Path
) -> None:
    quiet = Quiet(tmp_path / "quiet")
    runner = fake(quiet=quiet)
    assert run(runner, b"hang timed", deadline_s=0.3).status is Status.TIMEOUT
    with quiet.section(0.0):
        pass
    pid(run(runner, b"good"))


def test_a_timed_section_is_cut_at_the_limit_of_quiet(
    fake: Callable[..., Runner], tmp_path: Path
) -> None:
    runner = fake(quiet=Quiet(tmp_path / "quiet", limit_s=0.3))
    assert run(runner, b"hang timed").status is Status.TIMEOUT


@pytest.mark.parametrize("sample", ["nan", "0", "-1", "inf"])
def test_a_sample_that_is_no_time_fails_the_run(fake: Callable[..., Runner], sample: str) -> None:
    measured = run(fake(), f"samples 0.5 {sample}".encode())
    assert measured.status is Status.RUN_FAILED
    assert "no time" in measured.error


def test_no_sample_at_all_fails_the_run(fake: Callable[..., Runner]) -> None:
    assert run(fake(), b"samples").status is Status.RUN_FAILED


def test_a_slow_kernel_is_cut_off(fake: Callable[..., Runner]) -> None:
    measured = run(fake(), b"good", cutoff_s=0.001)
    assert (measured.status, measured.samples_s) == (Status.CENSORED, (0.002,))


def test_a_hopeless_kernel_is_not_timed_at_all(fake: Callable[..., Runner]) -> None:
    measured = run(fake(), b"slow", cutoff_s=0.1)
    assert measured.status is Status.CENSORED
    assert measured.samples_s == (1.1,)


def test_a_long_run_without_a_time_to_beat_is_the_only_one_and_quiet(
    fake: Callable[..., Runner], tmp_path: Path
) -> None:
    quiet = Quiet(tmp_path / "quiet")
    measured = run(fake(quiet=quiet), b"slow")
    assert (measured.status, measured.samples_s) == (Status.OK, (1.1,))
    assert measured.run_s >= 1.1
    assert quiet.frozen_s() >= 1.1


def test_a_reference_has_a_deadline_of_its_own_and_its_failure_a_reason(
    fake: Callable[..., Runner],
) -> None:
    runner = fake()
    runner.ready()
    hangs = Task("1" * 16, "hang", "", TARGET)
    assert runner.learn(hangs, (), 0.3).error == "no answer within 0.3 s"
    assert runner.learn(TASK, (), WAIT_S).error == ""
    pid(run(runner, b"good"))


def test_a_run_without_a_reference_says_nothing_of_the_artifact(
    fake: Callable[..., Runner],
) -> None:
    runner = fake()
    runner.ready()
    measured = run(runner, b"good", Task("1" * 16, "hang", "", TARGET), deadline_s=0.3)
    assert measured.status is Status.UNCHECKED
    assert measured.error == "reference output: no answer within 0.3 s"


def test_a_reference_whose_child_a_stranger_kills_is_made_again(
    fake: Callable[..., Runner], tmp_path: Path
) -> None:
    task = Task("2" * 16, f"killed {tmp_path / 'death'}", "", TARGET)
    assert fake().learn(task, (), WAIT_S).error == ""
    assert (tmp_path / "death").exists()


def test_a_reference_that_crashes_in_a_fresh_child_is_told_with_its_signal(
    fake: Callable[..., Runner],
) -> None:
    task = Task("3" * 16, "crash", "", TARGET)
    assert fake().learn(task, (), WAIT_S).error == "killed by SIGABRT"


# With real kernels from here on.

N = 32


def _task(make: Callable[[Any, Any], Any], key: str, dtype: str = "float32") -> Task:
    import tvm
    from tvm import te

    a = te.placeholder((N, N), name="A", dtype=dtype)
    b = te.placeholder((N, N), name="B", dtype=dtype)
    module = tvm.IRModule({"main": te.create_prim_func([a, b, make(a, b)])})
    return Task(key, key, tvm.ir.save_json(module), TARGET)


def _matmul(a: Any, b: Any) -> Any:
    from tvm import te

    k = te.reduce_axis((0, N), name="k")
    return te.compute((N, N), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C")


@pytest.fixture(scope="module")
def matmul() -> Task:
    return _task(_matmul, "matmul")


@pytest.fixture(scope="module")
def kernels() -> dict[str, bytes]:
    """Artifacts with the signature of the product of matrices, most of them bad."""
    import tvm
    from tvm.script import tirx as T

    from spaces.codegen.artifact import build_artifact

    @T.prim_func(s_tir=True)
    def good(
        A: T.Buffer((N, N), "float32"),
        B: T.Buffer((N, N), "float32"),
        C: T.Buffer((N, N), "float32"),
    ):
        T.func_attr({"global_symbol": "main", "tirx.noalias": True})
        for i, j, k in T.grid(N, N, N):
            with T.sblock("C"):
                vi, vj, vk = T.axis.remap("SSR", [i, j, k])
                with T.init():
                    C[vi, vj] = T.float32(0)
                C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vk, vj]

    @T.prim_func(s_tir=True)
    def short(
        A: T.Buffer((N, N), "float32"),
        B: T.Buffer((N, N), "float32"),
        C: T.Buffer((N, N), "float32"),
    ):
        """Leaves the last term of the sums out."""
        T.func_attr({"global_symbol": "main", "tirx.noalias": True})
        for i, j, k in T.grid(N, N, N - 1):
            with T.sblock("C"):
                vi, vj, vk = T.axis.remap("SSR", [i, j, k])
                with T.init():
                    C[vi, vj] = T.float32(0)
                C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vk, vj]

    @T.prim_func(s_tir=True)
    def nothing(
        A: T.Buffer((N, N), "float32"),
        B: T.Buffer((N, N), "float32"),
        C: T.Buffer((N, N), "float32"),
    ):
        """Writes one element only."""
        T.func_attr({"global_symbol": "main", "tirx.noalias": True})
        C[0, 0] = A[0, 0] * B[0, 0]

    @T.prim_func(s_tir=True)
    def vandal(
        A: T.Buffer((N, N), "float32"),
        B: T.Buffer((N, N), "float32"),
        C: T.Buffer((N, N), "float32"),
    ):
        """Right, and then spoils its input."""
        T.func_attr({"global_symbol": "main", "tirx.noalias": True})
        for i, j, k in T.grid(N, N, N):
            with T.sblock("C"):
                vi, vj, vk = T.axis.remap("SSR", [i, j, k])
                with T.init():
                    C[vi, vj] = T.float32(0)
                C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vk, vj]
        A[3, 3] = T.float32(7)

    @T.prim_func(s_tir=True)
    def hang(
        A: T.Buffer((N, N), "float32"),
        B: T.Buffer((N, N), "float32"),
        C: T.Buffer((N, N), "float32"),
    ):
        T.func_attr({"global_symbol": "main"})
        T.evaluate(T.call_extern("int32", "sleep", 1000))

    @T.prim_func(s_tir=True)
    def crash(
        A: T.Buffer((N, N), "float32"),
        B: T.Buffer((N, N), "float32"),
        C: T.Buffer((N, N), "float32"),
    ):
        T.func_attr({"global_symbol": "main"})
        T.evaluate(T.call_extern("void", "abort"))

    @T.prim_func(s_tir=True)
    def segfault(
        A: T.Buffer((N, N), "float32"),
        B: T.Buffer((N, N), "float32"),
        C: T.Buffer((N, N), "float32"),
    ):
        T.func_attr({"global_symbol": "main"})
        T.evaluate(T.call_extern("int32", "raise", 11))

    @T.prim_func(s_tir=True)
    def greedy(
        A: T.Buffer((N, N), "float32"),
        B: T.Buffer((N, N), "float32"),
        C: T.Buffer((N, N), "float32"),
    ):
        T.func_attr({"global_symbol": "main"})
        for _ in range(1 << 30):  # private, anonymous, populated; malloc would be optimised away
            T.evaluate(
                T.call_extern(
                    "handle", "mmap", T.int64(0), T.int64(16 << 20), 3, 0x8022, -1, T.int64(0)
                )
            )

    functions = [good, short, nothing, vandal, hang, crash, segfault, greedy]
    words = ["good", "short", "nothing", "vandal", "hang", "crash", "segfault", "greedy"]
    return {
        word: build_artifact(tvm.IRModule({"main": function}), TARGET)
        for word, function in zip(words, functions, strict=True)
    }


@pytest.fixture(scope="module")
def runner(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runner]:
    folder = tmp_path_factory.mktemp("runner")
    made = Runner(
        target=TARGET,
        log_dir=folder,
        scratch=folder / "scratch",
        quiet=Quiet(folder / "quiet"),
        memory_limit_bytes=1 << 30,
    )
    yield made
    made.close()


@pytest.mark.tvm
def test_a_right_kernel_is_timed(runner: Runner, matmul: Task, kernels: dict[str, bytes]) -> None:
    measured = run(runner, kernels["good"], matmul)
    assert measured.status is Status.OK, measured.error
    assert TIMING.min_samples <= len(measured.samples_s) <= TIMING.max_samples
    assert all(0 < s < 1 for s in measured.samples_s)


@pytest.mark.tvm
@pytest.mark.parametrize(
    ("kernel", "error"),
    [
        ("short", "largest error"),
        ("nothing", "not finite"),
        ("vandal", "overwrote its input A"),
    ],
)
def test_a_wrong_output_is_told_with_its_size(
    runner: Runner, matmul: Task, kernels: dict[str, bytes], kernel: str, error: str
) -> None:
    measured = run(runner, kernels[kernel], matmul)
    assert measured.status is Status.WRONG, measured.error
    assert error in measured.error


@pytest.mark.tvm
@pytest.mark.parametrize(
    ("kernel", "status", "error"),
    [
        ("crash", Status.RUN_FAILED, "killed by SIGABRT"),
        pytest.param("segfault", Status.RUN_FAILED, "killed by SIGSEGV", marks=pytest.mark.long),
        ("greedy", Status.RUN_FAILED, "memory limit"),
    ],
)
def test_a_bad_kernel_is_its_own_end(
    runner: Runner,
    matmul: Task,
    kernels: dict[str, bytes],
    kernel: str,
    status: Status,
    error: str,
) -> None:
    measured = run(runner, kernels[kernel], matmul)
    assert measured.status is status
    assert error in measured.error
    assert run(runner, kernels["good"], matmul).status is Status.OK


@pytest.mark.tvm
def test_a_kernel_that_hangs_is_a_timeout(
    runner: Runner, matmul: Task, kernels: dict[str, bytes]
) -> None:
    measured = run(runner, kernels["hang"], matmul, deadline_s=1.0)
    assert measured.status is Status.TIMEOUT
    assert run(runner, kernels["good"], matmul).status is Status.OK


@pytest.mark.tvm
def test_a_kernel_that_packs_a_constant_ahead_is_checked_and_timed(runner: Runner) -> None:
    import tvm

    from spaces.codegen.artifact import build_artifact, load_kernel
    from spaces.ir import tvm_compat
    from spaces.ir.schedules import new_schedule, task_module

    task = _task(_matmul, "packed")
    function = task_module(task.module)["main"].with_attr(tvm_compat.LAYOUT_FREE, [1])
    module = tvm.IRModule({"main": function})
    schedule = new_schedule(module)
    block = schedule.get_sblock("C")
    packed = schedule.cache_read(block, 1, "global")
    schedule.annotate(packed, tvm_compat.PREPROC, 1)
    schedule.transform_layout(block, ("read", 1), lambda k, n: (n // 12, k, n % 12), pad_value=0.0)
    artifact = build_artifact(schedule.mod, TARGET)
    assert load_kernel(artifact).packing is not None
    measured = run(runner, artifact, Task(task.key, "packed", tvm.ir.save_json(module), TARGET))
    assert measured.status is Status.OK, measured.error
    assert len(measured.samples_s) >= TIMING.min_samples


@pytest.mark.tvm
def test_what_passed_twice_is_not_checked_again(
    tmp_path: Path, matmul: Task, kernels: dict[str, bytes]
) -> None:
    """In a process of its own: the first parallel kernel that TVM runs may bind the thread that
    ran it to one core, and all tests after it."""
    from tuner.process.child import Child
    from tuner.process.outcome import Returned

    with Child("actors.run_child:RunChild", (TARGET, None, tmp_path)) as child:

        def asked(method: str, *arguments: Any) -> Any:
            outcome = child.call(method, *arguments, deadline_s=WAIT_S)
            assert isinstance(outcome, Returned), outcome
            return outcome.value

        def checked(kernel: str) -> Any:
            return asked("prepare", matmul.key, (), kernels[kernel])

        assert isinstance(child.ready(WAIT_S), Returned)
        asked("learn", matmul, ())
        assert [checked("good").run_s > 0 for _ in range(4)] == [True, True, False, False]
        assert asked("time", TIMING, None).samples_s  # it is loaded all the same
        for _ in range(4):
            assert "largest error" in checked("short").error


def _clipped(high: float) -> Any:
    """A program that clips below at 0 and above at a limit."""
    import tvm
    from tvm import te, topi

    a = te.placeholder((N, N), name="A")
    return tvm.IRModule({"main": te.create_prim_func([a, topi.clip(a, 0.0, high)])})


@pytest.fixture(scope="module")
def relu6() -> Task:
    import tvm

    return Task("relu6", "relu6", tvm.ir.save_json(_clipped(6.0)), TARGET)


@pytest.mark.tvm
def test_a_fault_that_shows_on_one_draw_only_is_found(runner: Runner, relu6: Task) -> None:
    from spaces.codegen.artifact import build_artifact

    assert run(runner, build_artifact(_clipped(6.0), TARGET), relu6).status is Status.OK
    measured = run(runner, build_artifact(_clipped(60.0), TARGET), relu6)
    assert measured.status is Status.WRONG
    assert "instead of 6" in measured.error


@pytest.mark.tvm
def test_a_slow_kernel_is_checked_on_the_draws_in_turn(
    tmp_path: Path, relu6: Task, monkeypatch: pytest.MonkeyPatch
) -> None:
    from actors import run_child
    from spaces.codegen.artifact import build_artifact
    from spaces.devices import checker

    looked_at: list[float] = []

    def look(case: Any, tensors: Any) -> str:
        looked_at.append(float(tensors[0].numpy().max()))
        return how_wrong(case, tensors)

    how_wrong = checker.how_wrong
    monkeypatch.setattr(checker, "how_wrong", look)
    monkeypatch.setattr(run_child, "_BOTH_S", 0.0)  # slower than that is any
    child = run_child.RunChild(TARGET, None, tmp_path)
    child.learn(relu6, ())
    artifact = build_artifact(_clipped(6.0), TARGET)
    assert [child.prepare(relu6.key, (), artifact).error for _ in range(3)] == ["", "", ""]
    wide, moderate = looked_at
    assert wide > 6 > moderate


@pytest.mark.tvm
def test_a_salt_has_other_inputs_drawn_by_which_kernels_are_judged_as_well(
    tmp_path: Path, matmul: Task, kernels: dict[str, bytes]
) -> None:
    import numpy as np

    from actors.run_child import RunChild

    drawn = []
    for salt in ("", "one", "other", "one"):
        child = RunChild(TARGET, None, tmp_path, salt=salt)
        child.learn(matmul, ())
        assert child.prepare(matmul.key, (), kernels["good"]).error == ""
        drawn.append(child._references[matmul.key, ()].cases[0].fresh(0))
    none, one, other, again = drawn
    assert np.array_equal(one, again)
    assert not np.array_equal(none, one)
    assert not np.array_equal(one, other)


@pytest.mark.tvm
def test_kernels_of_a_target_of_fast_math_are_judged_by_what_it_may_lose(
    tmp_path: Path, matmul: Task
) -> None:
    from dataclasses import replace

    import tvm

    from actors.run_child import RunChild
    from tests.actors.gate_programs import module_of

    module = tvm.ir.save_json(module_of("softmax"))
    bounds = []
    for keys in ("", ',"keys":["cuda","gpu","cold-l2"]', ',"keys":["cuda","gpu","fast-math"]'):
        target = f'{{"arch":"sm_90","kind":"cuda"{keys}}}'
        task = replace(matmul, module=module, target=target, key="same")
        child = RunChild(TARGET, None, tmp_path / str(len(bounds)))
        child.learn(task, ())
        bounds.append(child._references["same", ()].cases[0].bounds)
    (last,) = bounds[0]
    plain, cold, fast = (each[last] for each in bounds)
    assert (plain == cold).all()
    assert (fast > plain).any()


@pytest.mark.tvm
def test_what_is_no_artifact_fails(runner: Runner, matmul: Task) -> None:
    measured = run(runner, b"no library", matmul)
    assert measured.status is Status.RUN_FAILED
    assert "zip" in measured.error


@pytest.mark.tvm
def test_a_target_with_other_threads_than_tvm_uses_is_refused(tmp_path: Path) -> None:
    from tuner.process.child import Child
    from tuner.process.outcome import Raised

    with Child(
        "actors.run_child:RunChild", (TARGET, 3, tmp_path), env={"TVM_NUM_THREADS": "2"}
    ) as child:
        outcome = child.ready(WAIT_S)
    assert isinstance(outcome, Raised)
    assert outcome.text == "thread count: TVM uses 2, the target has 3"


@pytest.mark.tvm
def test_the_target_says_how_many_threads_run(
    tmp_path: Path, matmul: Task, kernels: dict[str, bytes]
) -> None:
    made = Runner(
        target=json.dumps({"kind": "llvm", "num-cores": 2}), log_dir=tmp_path, scratch=tmp_path
    )
    try:
        assert run(made, kernels["good"], matmul).status is Status.OK
        threads = Path(f"/proc/{made._child.pid}/task").iterdir()
        bound = [os.sched_getaffinity(int(t.name)) != os.sched_getaffinity(0) for t in threads]
    finally:
        made.close()
    assert len(bound) >= 2
    assert not any(bound), "a thread that is bound shares its CPU with one that is not"


@pytest.mark.tvm
def test_nothing_is_left_on_disk_but_logs_and_references(
    tmp_path: Path,
    matmul: Task,
    kernels: dict[str, bytes],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    made = Runner(target=TARGET, log_dir=tmp_path / "logs", scratch=tmp_path / "scratch")
    try:
        assert run(made, kernels["good"], matmul).status is Status.OK
        assert run(made, kernels["crash"], matmul).status is Status.RUN_FAILED
    finally:
        made.close()
    assert os.listdir(temporary) == []
    assert [p.name for p in (tmp_path / "scratch" / "references").iterdir()] == [
        "reference-4-matmul.npz"
    ]
