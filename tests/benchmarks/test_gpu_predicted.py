"""What is read of a kernel's program is what the emulated device counts when it runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from benchmarks.gpu.predicted import predict_s, read_launches
from benchmarks.gpu.workloads import Workload
from spaces.codegen.artifact import build_artifact, load_kernel
from spaces.design_space.trace_space import TraceSpace
from spaces.devices.launch_model import launch_s
from spaces.emulation.library import Launch, launches_of
from spaces.ir.schedules import InvalidCandidate
from spaces.targets.target import emulate_target
from tuner.candidate import Draft

pytestmark = pytest.mark.tvm

TARGET = emulate_target('{"kind":"cuda","arch":"sm_75"}')


def drawn(workload: Workload) -> Any:
    """The first schedule of a workload by TVM's rules that is valid."""
    task = workload.task(TARGET)
    space = TraceSpace(task)
    for seed in range(50):
        try:
            return space.realize_draft(Draft(task.key, seed, 1 + seed, None)).schedule.mod
        except InvalidCandidate:
            continue
    raise AssertionError("no draw is valid")


def run(module: Any, *shapes: tuple[int, ...], dtype: str) -> Sequence[Launch]:
    import tvm

    kernel = load_kernel(build_artifact(module, TARGET)).module
    kernel["main"](*(tvm.runtime.empty(shape, dtype) for shape in shapes))
    return launches_of(kernel)


def test_threads_blocks_and_operations_of_a_product_on_tensor_cores() -> None:
    module = drawn(Workload("product", "product", (80, 96, 64), "float16"))
    (read,) = read_launches(module)
    (ran,) = run(module, (80, 64), (64, 96), (80, 96), dtype="float16")
    assert (read.blocks, read.threads) == (ran.blocks, ran.threads)
    assert read.tensor_operations == ran.tensor_operations == 2 * 80 * 96 * 64
    assert ran.global_bytes <= read.global_bytes <= 2 * ran.global_bytes
    assert ran.shared_bytes <= read.shared_bytes <= 2 * ran.shared_bytes
    assert predict_s(module, TARGET) == pytest.approx(launch_s(ran, TARGET), rel=0.2)


def test_each_kernel_of_a_program_is_a_launch() -> None:
    module = drawn(Workload("softmax", "softmax", (20, 72)))
    read, ran = read_launches(module), run(module, (20, 72), (20, 72), dtype="float32")
    assert len(ran) > 1
    assert [(r.blocks, r.threads) for r in read] == [(r.blocks, r.threads) for r in ran]
    seconds = sum(launch_s(launch, TARGET) for launch in ran)
    assert predict_s(module, TARGET) == pytest.approx(seconds, rel=0.2)


def test_a_program_of_open_sizes_has_no_prediction() -> None:
    import tvm

    task = Workload("open", "product", (72, 40), rows=(3, 9)).task(TARGET)
    assert predict_s(tvm.ir.load_json(task.module), TARGET) is None
