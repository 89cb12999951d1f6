"""What is said of a kernel's innermost loop is what its machine code has there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from spaces.codegen.artifact import build_artifact, kernels_of
from spaces.codegen.cuda.compile import compile_cuda
from spaces.codegen.cuda.cubin import KernelUse
from spaces.codegen.cuda.instructions import TENSOR, Code
from spaces.codegen.cuda.loops import find_loops
from spaces.codegen.cuda.mix import Mix
from spaces.design_space.knob_space import KnobSpace
from spaces.targets.target import resolve_target
from spaces.templates.registry import templates_of
from tests.needed import needs_nvcc
from tests.spaces.templates.few_rows.few_row_programs import matmul
from tests.spaces.templates.tensor_cores.products import Sizes, task_for
from tuner.candidate import of_knobs
from tuner.task import Task

pytestmark = pytest.mark.tvm

AMPERE, HOPPER = (
    resolve_target(f'{{"kind":"cuda","arch":"{arch}"}}') for arch in ("sm_80", "sm_90a")
)
LARGE = Sizes(4096, 4096, 4096)
NESTED = """
extern "C" __global__ void nested(const float* a, float* b, int n) {
  float x = a[threadIdx.x], y = x;
#pragma unroll 1
  for (int i = 0; i < n; ++i) {
    b[i] = y;
#pragma unroll 1
    for (int j = 0; j < n; ++j) {
      x = x * y + 1.5f; y = y * x + 2.5f; x = x * y + 3.5f; y = y * x + 4.5f;
#pragma unroll 1
      while (((volatile const int*)a)[j] == 0) {}
    }
#pragma unroll 1
    for (int j = 0; j < n; ++j) b[n + j] = a[2 * n + j] + x;
  }
}
"""
COPY = """
extern "C" __global__ void copy(const float4* a, float4* b) { b[threadIdx.x] = a[threadIdx.x]; }
"""


def mix_of(use: KernelUse) -> Mix:
    assert use.mix is not None
    return use.mix


def use_of(task: Task, name: str = "product") -> KernelUse:
    """What the compiler says of the best predicted setting of a task's first template with such a
    name."""
    template = next(each for each in templates_of(task) if name in each.name)
    space = KnobSpace(task, template)
    module: Any = space.write(of_knobs(space.ranked[0], space.name)).mod
    (use,) = kernels_of(build_artifact(module, task.target)).values()
    return use


# ---- loops


def code(*lines: str) -> Code:
    """Of lines such as `BRA 0 if`, which jumps to the first instruction in some cases."""
    words = [line.split() for line in lines]
    return Code(
        tuple(word[0] for word in words),
        tuple(word[-1] == "if" for word in words),
        tuple(int(word[1]) if len(word) > 1 and word[1] != "if" else -1 for word in words),
    )


def test_a_loop_is_what_goes_back_to_its_first_instruction() -> None:
    straight = code("LDG", "BRA 3 if", "FFMA", "EXIT")
    assert find_loops(straight) == []
    one = code("LDG", "FFMA", "BRA 1 if", "EXIT")
    assert find_loops(one) == [{1, 2}]
    nested = code("LDG", "FFMA", "BRA 1 if", "BRA 0 if", "EXIT")
    assert sorted(find_loops(nested), key=len) == [{1, 2}, {0, 1, 2, 3}]


def test_what_waits_behind_the_end_belongs_to_the_loop_that_it_goes_back_to() -> None:
    """The compiler moves there what rarely runs; the jump back from there is no loop of its own."""
    waiting = code("SYNCS", "BRA 6 if", "HGMMA", "BRA 0 if", "STG", "EXIT", "SYNCS", "BRA 2")
    assert find_loops(waiting) == [{0, 1, 2, 3, 6, 7}]


def test_a_call_that_does_not_come_back_leads_on() -> None:
    left = code("FFMA", "CALL 3 if", "BRA 0", "LDG", "BRA 3 if", "EXIT")
    assert sorted(find_loops(left), key=min) == [{0, 1, 2}, {3, 4}]


def test_what_nothing_leads_to_is_in_no_loop() -> None:
    assert find_loops(code("EXIT", "BRA 1")) == []


# ---- mixes


@needs_nvcc
@pytest.mark.parametrize("arch", ["sm_75", "sm_80", "sm_90", "sm_120"])
def test_the_innermost_loop_is_the_one_with_most_work_of_its_own(arch: str) -> None:
    (use,) = compile_cuda(NESTED, arch).uses.values()
    mix = mix_of(use)
    assert mix.in_loop
    assert mix.counts == {"FFMA": 4, "LDG.32": 1}  # one load for each time that it waits
    assert 6 <= mix.instructions <= 40


@needs_nvcc
def test_of_a_kernel_without_loops_all_is_told() -> None:
    (use,) = compile_cuda(COPY, "sm_80").uses.values()
    mix = mix_of(use)
    assert not mix.in_loop
    assert mix.counts == {"LDG.128": 1, "STG.128": 1}


@needs_nvcc
def test_a_product_from_ampere_on_multiplies_on_tensor_cores_what_it_copied() -> None:
    mix = mix_of(use_of(task_for("NT", LARGE, AMPERE)))
    assert mix.in_loop
    assert {*mix.counts} == {"BAR", "HMMA", "LDGSTS.128", "LDSM.128"}
    assert mix.share(TENSOR) > 1 / 3
    assert mix.count({"LDSM"}) <= mix.count(TENSOR) / 4


@needs_nvcc
def test_a_product_on_hopper_multiplies_by_warpgroups_and_waits_by_mbarriers() -> None:
    mix = mix_of(use_of(task_for("NT", LARGE, HOPPER)))
    assert mix.in_loop
    assert {*mix.counts} == {"HGMMA", "SYNCS"}
    assert mix.counts["HGMMA"] >= 4


@needs_nvcc
def test_a_product_of_few_rows_in_float32_is_multiply_adds_and_wide_loads() -> None:
    from spaces.lowering.extract_tasks import task_of

    program = matmul(8, 4096, 4096, nt=True, kind="float32")
    mix = mix_of(use_of(task_of(program, AMPERE, name="product"), "few-rows"))
    assert mix.in_loop
    assert {*mix.counts} == {"FFMA", "LDG.128"}
    assert mix.share({"FFMA"}) >= 0.85


@needs_nvcc
def test_a_cubin_in_a_form_that_is_not_known_has_no_mix(tmp_path: Path) -> None:
    """Such as of a later toolkit, whose machine code may be another."""
    from spaces.codegen.cuda.cubin import kernel_uses

    binary = bytearray(compile_cuda(COPY, "sm_80").binary)
    (use,) = kernel_uses(bytes(binary)).values()
    assert use.mix is not None
    binary[8] += 1
    (use,) = kernel_uses(bytes(binary)).values()
    assert use.mix is None
    assert use.registers > 0
