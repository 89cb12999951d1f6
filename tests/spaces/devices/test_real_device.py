"""What only a real CUDA device can show. Elsewhere these are left out (`-m gpu` runs them)."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from actors.runner import Runner
from spaces.codegen.artifact import build_artifact, load_artifact
from spaces.codegen.executable import compile_module, export_library, run_once
from spaces.design_space.default_schedule import default_candidate
from spaces.design_space.realize import realize
from spaces.design_space.task_space import TaskSpace
from spaces.devices.graph_stopwatch import cuda_stopwatch
from spaces.devices.stopwatch import Loaded
from spaces.ir.schedules import InvalidCandidate
from spaces.lowering.extract_tasks import task_of
from spaces.lowering.lower import lower
from spaces.targets import cuda
from spaces.targets.target import device_of, parse_target, resolve_target
from tests.spaces.check.test_fast_math_errors import FAST, element, module
from tests.spaces.devices.bad_kernels import kernels, program
from tests.spaces.lowering.test_host_results import ON_DEVICE, ON_HOST, X, graph
from tuner.candidate import Draft
from tuner.effort import EFFORTS
from tuner.record import Measurement, Status
from tuner.request.target_text import fast_math, l2
from tuner.task import Task

pytestmark = [pytest.mark.gpu, pytest.mark.tvm]

TIMING = EFFORTS["normal"].timing


@pytest.fixture(scope="module")
def target() -> str:
    if not cuda.present():
        pytest.fail("no CUDA device, and these tests were asked for")
    return resolve_target("cuda")


@pytest.fixture(scope="module")
def runner(target: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runner]:
    folder = tmp_path_factory.mktemp("runner")
    made = Runner(target=target, log_dir=folder, scratch=folder / "scratch")
    yield made
    made.close()


@pytest.fixture(scope="module")
def artifacts(target: str) -> dict[str, bytes]:
    return {name: build_artifact(module, target) for name, module in kernels().items()}


@pytest.fixture(scope="module")
def task(target: str) -> Task:
    return task_of(program(), target, name="add")


def run(runner: Runner, task: Task, artifact: bytes, deadline_s: float = 20.0) -> Measurement:
    learned = runner.learn(task, (), 60.0)
    assert learned.error == ""
    return runner.run(task, artifact, timing=TIMING, cutoff_s=None, deadline_s=deadline_s)


def test_a_right_kernel_has_its_own_time_and_the_devices_condition(
    runner: Runner, task: Task, artifacts: dict[str, bytes]
) -> None:
    measured = run(runner, task, artifacts["good"])
    assert measured.status is Status.OK, measured.error
    assert measured.latency_s is not None
    assert measured.latency_s < 4e-6, "a launch from the host takes longer than that"
    told = measured.conditions
    assert told.l2 == "warm"
    assert 0 < told.clock_mhz <= told.most_clock_mhz
    assert told.temperature_c > 0
    assert told.anchor_s > 0
    assert told.strangers >= 0


@pytest.mark.parametrize(
    ("kernel", "status", "says"),
    [
        ("wrong", Status.WRONG, "4321"),
        ("vandal", Status.WRONG, "it overwrote its input A"),
        ("stray", Status.RUN_FAILED, "llegal"),
        ("hang", Status.TIMEOUT, "no answer"),
    ],
)
def test_a_bad_kernel_is_its_own_end(
    runner: Runner,
    task: Task,
    artifacts: dict[str, bytes],
    kernel: str,
    status: Status,
    says: str,
) -> None:
    measured = run(runner, task, artifacts[kernel], 5.0 if kernel == "hang" else 20.0)
    assert measured.status is status, measured
    assert says in measured.error
    assert run(runner, task, artifacts["good"]).status is Status.OK


def test_a_graph_and_the_evaluator_agree_on_a_long_kernel_and_not_on_a_short_one(
    target: str,
) -> None:
    import tvm

    device = device_of(target)
    watch = cuda_stopwatch(device, target)
    for size, alike in ((1 << 12, False), (1 << 26, True)):
        loaded = Loaded(
            load_artifact(build_artifact(adding(size), target)),
            [tvm.runtime.tensor(np.zeros(size, "float32"), device) for _ in range(2)],
        )
        watch.wake(loaded, 10)
        own_s = min(watch.samples(loaded, 200, 5))
        timer = loaded.module.time_evaluator("main", device, number=200, repeat=5)
        told_s = min(timer(*loaded.arguments).results)
        assert (told_s < 1.1 * own_s) == alike, (own_s, told_s)


def test_a_run_that_finds_other_data_in_the_cache_is_slower(target: str) -> None:
    import tvm

    device, size = device_of(target), 1 << 20
    tensors = [tvm.runtime.tensor(np.zeros(size, "float32"), device) for _ in range(2)]
    loaded = Loaded(load_artifact(build_artifact(adding(size), target)), tensors)
    warm, cold = (cuda_stopwatch(device, resolve_target(l2("cuda", p))) for p in ("warm", "cold"))
    warm.wake(loaded, 10)
    warm_s, cold_s = (min(watch.samples(loaded, 50, 5)) for watch in (warm, cold))
    assert cold_s > 1.2 * warm_s
    assert (warm.conditions().l2, cold.conditions().l2) == ("warm", "cold")


@pytest.mark.parametrize("name", FAST)
def test_functions_of_fast_math_are_right_within_its_bounds(name: str, tmp_path: Path) -> None:
    from tvm.s_tir import dlight

    fast = resolve_target(fast_math("cuda"))
    made = module(lambda x: element(name, x))
    with parse_target(fast):
        scheduled = dlight.ApplyDefaultSchedule(dlight.gpu.Fallback())(made)
    runner = Runner(target=fast, log_dir=tmp_path, scratch=tmp_path / "scratch")
    with closing(runner):
        task = task_of(made["main"], fast, name=name)
        measured = run(runner, task, build_artifact(scheduled, fast))
    assert measured.status is Status.OK, measured.error


def adding(size: int) -> Any:
    import tvm
    from tvm import te

    x = te.placeholder((size,), name="x")
    schedule = tvm.s_tir.Schedule(
        te.create_prim_func([x, te.compute((size,), lambda i: x[i] + 1.0, name="y")])
    )
    block, lane = schedule.split(*schedule.get_loops(schedule.get_sblock("y")), [None, 256])
    schedule.bind(block, "blockIdx.x")
    schedule.bind(lane, "threadIdx.x")
    return schedule.mod


def drawn_programs() -> dict[str, Any]:
    """Sizes that are no multiples of any tile."""
    from tvm import te, tirx, topi

    def unary(function: Any, *shape: int) -> Any:
        x = te.placeholder(shape, name="x")
        return te.create_prim_func([x, function(x)])

    def product(m: int, n: int, k: int, dtype: str) -> Any:
        a, b = te.placeholder((m, k), dtype, name="a"), te.placeholder((k, n), dtype, name="b")
        along = te.reduce_axis((0, k), "k")
        wide = "float32"
        c = te.compute(
            (m, n),
            lambda i, j: te.sum(a[i, along].astype(wide) * b[along, j].astype(wide), along),
        )
        d = te.compute((m, n), lambda i, j: c[i, j].astype(dtype)) if dtype != wide else c
        return te.create_prim_func([a, b, d])

    def tanh(x: Any) -> Any:
        return te.compute(x.shape, lambda *at: tirx.tanh(x(*at)) * tirx.exp(x(*at)), name="y")

    return {
        "product": product(333, 205, 517, "float32"),
        "product of half": product(160, 176, 208, "float16"),
        "one column of half": product(1000, 1, 512, "float16"),
        "softmax": unary(topi.nn.softmax, 77, 1003),
        "tanh": unary(tanh, 77, 1003),
        "sum": unary(lambda x: topi.sum(x, 1), 77, 3001),
    }


@pytest.mark.parametrize("name", list(drawn_programs()))
def test_schedules_drawn_from_its_space_are_right(runner: Runner, target: str, name: str) -> None:
    task = task_of(drawn_programs()[name], target, name="drawn")
    space, seen = TaskSpace(task), []
    candidates = [default_candidate(task)]
    for number in range(60):
        if len(candidates) == 6:
            break
        try:
            point = space.realize_draft(Draft(task.key, number, 1 + number))
        except InvalidCandidate:
            continue
        candidates.append(point.candidate)
    for candidate in candidates:
        module = realize(task, candidate).mod
        measured = run(runner, task, build_artifact(module, parse_target(target)))
        seen.append(measured.status)
        assert measured.status is Status.OK, measured.error
    assert len(seen) == 6


@pytest.mark.parametrize("name", [*ON_HOST, *ON_DEVICE])
def test_operators_that_sort_and_scan_run(target: str, name: str) -> None:
    operator = {**ON_HOST, **ON_DEVICE}[name]
    cpu = resolve_target('{"kind":"llvm","num-cores":1}')
    want = run_once(compile_module(lower(graph(operator), cpu), cpu), [X])
    got = run_once(compile_module(lower(graph(operator), target), target), [X])
    for one, other in zip(got, want, strict=True):
        np.testing.assert_array_equal(one, other)


def test_an_exported_library_loads_and_runs_without_a_compiler(target: str, tmp_path: Path) -> None:
    path = tmp_path / "sums.so"
    operator = ON_DEVICE["cumsum"]
    export_library(compile_module(lower(graph(operator), target), target), path)
    text = f"""
import numpy as np, tvm
from tvm import relax
machine = relax.VirtualMachine(tvm.runtime.load_module({str(path)!r}), tvm.cuda())
x = np.arange(8, dtype="float32").reshape(2, 4)
print(machine["main"](tvm.runtime.tensor(x, tvm.cuda())).numpy().tolist())
"""
    done = subprocess.run(
        [sys.executable, "-c", text],
        env={**_environment(), "PATH": "/nowhere", "CUDA_HOME": "/nowhere"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-500:]
    assert done.stdout.strip() == "[[0.0, 1.0, 3.0, 6.0], [4.0, 9.0, 15.0, 22.0]]"


def test_torch_gets_tensors_on_its_own_stream_without_copies_through_the_host(
    target: str,
) -> None:
    import torch

    from cluster.app.api.torch_graph import callable_of

    run_sums = callable_of(lower(graph(ON_DEVICE["cumsum"], (512, 4096)), target), target, [0])
    stream = torch.cuda.Stream()
    x = torch.ones(512, 4096, device="cuda")
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        for number in range(1, 6):
            scaled = x * number  # queued on the same stream, and not waited for
            (got,) = run_sums(scaled)
            assert got.device == x.device
            assert bool((got[:, -1] == 4096 * number).all())


def _environment() -> dict[str, str]:
    import os

    return dict(os.environ)
