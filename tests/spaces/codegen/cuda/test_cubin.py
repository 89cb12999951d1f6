"""What a compiled CUDA kernel uses, and that one no device can start is no artifact."""

from __future__ import annotations

import re
import zipfile
from dataclasses import replace
from io import BytesIO
from typing import Any

import pytest

from actors.build_child import BuildChild
from spaces.codegen.cuda.compile import compile_cuda
from spaces.codegen.cuda.cubin import (
    KernelUse,
    check_launch,
    kernel_uses,
    resident_blocks,
    too_much,
)
from spaces.design_space.realize import DEFAULT_SPACE
from spaces.ir.schedules import canonical_payload, new_schedule, task_module
from spaces.lowering.extract_tasks import task_of
from spaces.targets.gpu import gpu_of
from spaces.targets.target import resolve_target
from tests.needed import needs_nvcc
from tests.spaces.templates.attention.attentions import Sizes, task_for
from tuner.candidate import Candidate, CandidateKind, of_knobs
from tuner.record import Status
from tuner.task import Task

pytestmark = pytest.mark.tvm

CUDA = resolve_target('{"kind":"cuda","arch":"sm_80"}')
GPU = gpu_of(CUDA)
GOOD = KernelUse(registers=64, shared_bytes=48 << 10, stack_bytes=0, threads=1024, launch_bytes=0)


def test_a_kernel_may_use_all_that_there_is() -> None:
    assert too_much(GOOD, GPU) == ""


@pytest.mark.parametrize(
    ("use", "says"),
    [
        (replace(GOOD, threads=1056), "1056 threads in a block, of 1024"),
        (replace(GOOD, registers=65), "73728 registers in a block, of 65536"),
        (replace(GOOD, registers=256, threads=0), "256 registers in a thread, of 255"),
        (replace(GOOD, shared_bytes=49153), "49153 bytes of shared memory in a block, of 49152"),
        (
            replace(GOOD, launch_bytes=(164 - 48) << 10),
            "167936 bytes of shared memory in a block, of 166912",
        ),
    ],
)
def test_what_a_device_does_not_have_is_named(use: KernelUse, says: str) -> None:
    assert too_much(use, GPU) == says


def test_a_kernel_that_does_not_say_how_large_its_blocks_are_is_taken_for_good() -> None:
    assert too_much(replace(GOOD, registers=255, threads=0), GPU) == ""


def in_blocks(threads: int) -> tuple[Task, Candidate]:
    """Additions in blocks of so many threads."""
    from tvm import te

    a = te.placeholder((8192,), name="a")
    function = te.create_prim_func([a, te.compute((8192,), lambda i: a[i] + 1.0, name="b")])
    task = task_of(function, CUDA, name="add")
    schedule: Any = new_schedule(task_module(task.module))
    (loop,) = schedule.get_loops(schedule.get_sblock("b"))
    outer, inner = schedule.split(loop, [None, threads])
    schedule.bind(outer, "blockIdx.x")
    schedule.bind(inner, "threadIdx.x")
    return task, Candidate(CandidateKind.TRACE, canonical_payload(schedule.trace), "test")


def built(threads: int) -> Any:
    return build(*in_blocks(threads))


def build(task: Task, candidate: Candidate) -> Any:
    child = BuildChild()
    child.learn(task)
    return child.build(task.key, candidate)


@needs_nvcc
def test_the_threads_of_a_block_are_read_from_its_machine_code() -> None:
    answer = built(256)
    assert answer.status is Status.OK, answer.error
    with zipfile.ZipFile(BytesIO(answer.artifact)) as archive:
        (use,) = kernel_uses(archive.read("device.bin")).values()
    assert (use.threads, use.stack_bytes, use.shared_bytes) == (256, 0, 0)


@needs_nvcc
def test_a_kernel_that_no_device_can_start_is_a_build_that_failed() -> None:
    answer = built(2048)
    assert (answer.status, answer.artifact) == (Status.BUILD_FAILED, b"")
    assert "cannot be launched: 2048 threads in a block, of 1024" in answer.error


@needs_nvcc
def test_a_kernel_that_spills_is_not_run() -> None:
    task = task_for("wide", Sizes(1, 17, 70, 256, 256, 1), CUDA)
    warps = {"row_warps": 4, "key_warps": 1}
    knobs = warps | {"parts": 2, "keys": 32, "stages": 2, "splits": 1, "heads": 1}
    answer = build(task, of_knobs(knobs, "kernel:ampere-attention-1"))
    assert answer.status is Status.BUILD_FAILED
    assert re.fullmatch(r"kernel \w+ spills registers: \d+ bytes of each thread", answer.error)


@needs_nvcc
def test_a_kernel_whose_launch_asks_for_more_shared_memory_than_there_is_is_not_run() -> None:
    task = task_for("wide", Sizes(1, 17, 70, 256, 256, 1), CUDA)
    warps = {"row_warps": 8, "key_warps": 1}
    knobs = warps | {"parts": 2, "keys": 128, "stages": 2, "splits": 1, "heads": 1}
    answer = build(task, of_knobs(knobs, "kernel:ampere-attention-1"))
    assert answer.status is Status.BUILD_FAILED
    assert "393216 bytes of shared memory in a block, of 166912" in answer.error


@needs_nvcc
@pytest.mark.parametrize("arch", ["sm_80", "sm_90", "sm_100", "sm_120"])
def test_shared_memory_is_what_the_program_declares(arch: str) -> None:
    """From sm_90 on the compiler adds what the system keeps for itself, with which 48 KiB were once
    more than a kernel may declare."""
    source = """
extern "C" __global__ void shared(float* a) {
  __shared__ float all[12288];
  all[threadIdx.x] = a[threadIdx.x];
  __syncthreads();
  a[threadIdx.x] = all[threadIdx.x ^ 1];
}
extern "C" __global__ void none(float* a) { a[threadIdx.x] += 1.0f; }
"""
    uses = compile_cuda(source, arch).uses
    assert {name: use.shared_bytes for name, use in uses.items()} == {"shared": 48 << 10, "none": 0}
    check_launch(uses, f'{{"kind":"cuda","arch":"{arch}"}}')


@pytest.mark.parametrize(
    ("use", "blocks"),
    [
        (GOOD, 1),  # 1024 threads of 64 registers are all registers
        (replace(GOOD, threads=64, shared_bytes=0), 16),
        # Registers are given eight at a time: 216 of each thread, so that nine warps fit, and eight
        # on parts that are four.
        (replace(GOOD, threads=64, registers=210, shared_bytes=0), 4),
        (replace(GOOD, threads=64, registers=210, shared_bytes=0, launch_bytes=81920), 2),
        (replace(GOOD, threads=33, registers=16, shared_bytes=0), 32),
        (replace(GOOD, threads=0), None),
        (replace(GOOD, launch_bytes=None), None),
    ],
)
def test_blocks_share_a_multiprocessor_as_far_as_all_of_it_goes(
    use: KernelUse, blocks: int | None
) -> None:
    assert resident_blocks(use, GPU) == blocks


@needs_nvcc
def test_the_default_schedule_is_run_though_it_spills(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("spaces.codegen.cuda.cubin.describe_spills", lambda uses: "it spills")
    task, candidate = in_blocks(256)
    assert build(task, candidate).error == "it spills"
    assert build(task, replace(candidate, space=DEFAULT_SPACE)).artifact


@needs_nvcc
def test_what_keeps_its_registers_is_run() -> None:
    assert built(256).artifact
