"""CUDA source to machine code: what is in it, what is known of it, what goes wrong."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from spaces.codegen.cuda import nvcc
from spaces.codegen.cuda.compile import compile_cuda, parse_uses
from tests.needed import needs_nvcc
from tests.spaces.codegen.cuda.test_nvcc import program
from tuner.errors import TunerError

TANH = 'extern "C" __global__ void k(float* x) { x[threadIdx.x] = tanhf(x[threadIdx.x]); }'
SPILLING = """
extern "C" __global__ void __launch_bounds__(1024) k(float* x, int n) {
  float a[96];
  #pragma unroll
  for (int i = 0; i < 96; ++i) a[i] = x[i * 1024 + threadIdx.x];
  for (int s = 0; s < n; ++s) {
    #pragma unroll
    for (int i = 0; i < 96; ++i) a[i] = a[i] * a[(i * 7 + 1) % 96] + 1.0f;
  }
  #pragma unroll
  for (int i = 0; i < 96; ++i) x[i * 1024 + threadIdx.x] = a[i];
}
"""
WARPGROUP = """
extern "C" __global__ void k() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
"""


def sass(binary: bytes, folder: Path) -> str:
    file = folder / "k.cubin"
    file.write_bytes(binary)
    return subprocess.check_output(["cuobjdump", "-sass", str(file)], text=True, timeout=60)


@needs_nvcc
def test_a_tangent_is_computed_to_the_last_bits(tmp_path: Path) -> None:
    """TVM's own call makes it one instruction, wrong from the eleventh bit on."""
    code = sass(compile_cuda(TANH, "sm_80").binary, tmp_path)
    assert "MUFU.TANH" not in code
    assert "MUFU.EX2" in code, "it is computed with an exponential and a division"


@needs_nvcc
def test_it_is_compiled_for_the_architecture_that_is_asked_for(tmp_path: Path) -> None:
    for arch in ("sm_80", "sm_90"):
        code = sass(compile_cuda(TANH, arch).binary, tmp_path)
        assert re.search(rf"\bcode for {arch}\b", code)


@needs_nvcc
def test_products_of_a_warpgroup_need_no_other_target(tmp_path: Path) -> None:
    assert "sm_90a" in sass(compile_cuda(WARPGROUP, "sm_90").binary, tmp_path)


@needs_nvcc
def test_the_compiler_s_report_is_kept() -> None:
    code = compile_cuda(SPILLING, "sm_80")
    (use,) = code.uses.values()
    assert use.threads == 1024
    assert use.registers == 64
    assert use.stack_bytes > 0
    assert use.spill_store_bytes > 0
    assert use.spill_load_bytes > 0
    assert parse_uses(code.uses_json()) == code.uses
    (calm,) = compile_cuda(TANH, "sm_80").uses.values()
    assert (calm.spill_store_bytes, calm.spill_load_bytes) == (0, 0)


@needs_nvcc
def test_what_it_complains_of_is_one_line() -> None:
    with pytest.raises(RuntimeError, match=r"^nvcc: .*error.*nonsense") as refused:
        compile_cuda('extern "C" __global__ void k() { nonsense(); }', "sm_80")
    assert "\n" not in str(refused.value)
    with pytest.raises(RuntimeError, match=r"^nvcc: .*fatal.*\bcompute_1\b"):
        compile_cuda(TANH, "sm_1")


def test_one_that_does_not_answer_is_ended_with_what_it_started(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    stuck = program(tmp_path)
    pid = tmp_path / "pid"
    stuck.write_text(f"#!/bin/sh\nsleep 600 &\necho $! > {pid}\nwait\n")
    monkeypatch.setattr(nvcc, "packaged_nvcc", lambda: None)
    monkeypatch.setenv("CUDA_HOME", str(tmp_path))
    with pytest.raises(RuntimeError, match="no answer within 1 s"):
        compile_cuda(TANH, "sm_80", deadline_s=1.0)
    state = Path(f"/proc/{pid.read_text().strip()}/stat")
    assert not state.exists() or state.read_text().split()[2] == "Z"


def test_one_that_cannot_be_run_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    program(tmp_path).chmod(0o644)
    monkeypatch.setenv("CUDA_HOME", str(tmp_path))
    with pytest.raises(TunerError, match="bin/nvcc does not run: Permission denied"):
        compile_cuda(TANH, "sm_80")
