"""CUDA source to machine code: what is in it, what is known of it, what goes wrong."""

from __future__ import annotations

import re
import subprocess
import threading
import time
from pathlib import Path

import pytest

from spaces.codegen.cuda import compile, nvrtc
from spaces.codegen.cuda.compile import compile_cuda, parse_uses
from spaces.codegen.cuda.nvcc import find_nvcc, nvcc_version
from tests.needed import needed_nvcc, needed_nvrtc, needs_nvcc
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
def test_with_fast_math_it_is_one_instruction(tmp_path: Path) -> None:
    plain, fast = compile_cuda(TANH, "sm_80"), compile_cuda(TANH, "sm_80", fast_math=True)
    assert "MUFU.TANH" in sass(fast.binary, tmp_path)
    assert compile_cuda(TANH, "sm_80") == plain, "one is not taken for the other"


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
    answers = 'case "$1" in --version) echo "V13.0.88"; exit;; esac'
    stuck.write_text(f"#!/bin/sh\n{answers}\nsleep 600 &\necho $! > {pid}\nwait\n")
    monkeypatch.setenv("CUDA_HOME", str(tmp_path))
    monkeypatch.setattr(compile, "find_nvrtc", lambda *_: None)
    with pytest.raises(RuntimeError, match="no answer within 1 s"):
        compile_cuda(TANH, "sm_80", deadline_s=1.0)
    state = Path(f"/proc/{pid.read_text().strip()}/stat")
    until_s = time.monotonic() + 30
    while runs(state):  # it was killed, and ends when the system comes to it
        assert time.monotonic() < until_s
        time.sleep(0.01)


def runs(state: Path) -> bool:
    """Whether a process is there and not a corpse."""
    try:
        return state.read_text().split()[2] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_one_that_cannot_be_run_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    program(tmp_path).chmod(0o644)
    monkeypatch.setenv("CUDA_HOME", str(tmp_path))
    with pytest.raises(TunerError, match="bin/nvcc does not run: Permission denied"):
        compile_cuda(TANH, "sm_80")


TVM_S = """
#ifdef __CUDACC_RTC__
  #include <cuda/std/cstdint>
  using cuda::std::int64_t;
  #include <cuda/std/type_traits>
  namespace std { using cuda::std::is_same_v; using cuda::std::conditional; }
#else
  #include <cstdint>
  #include <type_traits>
  #include <cuda.h>
#endif
#include <cuda_fp16.h>
extern "C" __global__ void k(half* a, float* b, int64_t n) {
  int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;
  static_assert(std::is_same_v<std::conditional<true, int, float>::type, int>, "");
  if (i < n) b[i] = tanhf(__half2float(a[i])) * powf(b[i], 1.5f) + (b[i] > 0 ? INFINITY : 0.0f);
}
"""
"""Of the form that TVM emits."""


def code_of(binary: bytes, folder: Path) -> list[str]:
    """Instructions, without addresses and encodings."""
    lines = re.sub(r"/\*.*?\*/", "", sass(binary, folder)).splitlines()
    return [line.strip() for line in lines if line.strip().endswith(";")]


@needs_nvcc
@pytest.mark.each_value
@pytest.mark.parametrize("fast_math", [False, True])
@pytest.mark.parametrize("source", [TVM_S, TANH, SPILLING, WARPGROUP])
def test_the_library_makes_the_code_of_nvcc(
    source: str, fast_math: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    needed_nvrtc()
    calls: list[object] = []
    run = compile.call_nvcc
    monkeypatch.setattr(compile, "call_nvcc", lambda *args: calls.append(args) or run(*args))
    compile._compile.cache_clear()
    by_library = compile_cuda(source, "sm_90", fast_math=fast_math)
    assert calls == []
    monkeypatch.setattr(compile, "find_nvrtc", lambda *_: None)
    compile._compile.cache_clear()
    by_nvcc = compile_cuda(source, "sm_90", fast_math=fast_math)
    assert len(calls) == 1
    assert by_library.uses == by_nvcc.uses
    code = code_of(by_library.binary, tmp_path)
    assert len(code) > 4
    assert code == code_of(by_nvcc.binary, tmp_path)


@needs_nvcc
def test_what_the_library_does_not_take_is_left_to_nvcc() -> None:
    needed_nvrtc()
    source = f"#include <string>\n{TANH}"
    toolkit = find_nvcc().parent.parent
    with pytest.raises(nvrtc.Refused, match="string"):
        nvrtc.compile_by_nvrtc(needed_nvrtc(), source, "sm_80", toolkit)
    assert compile_cuda(source, "sm_80").uses


@needs_nvcc
def test_a_library_of_another_version_is_not_taken() -> None:
    path, nvcc = needed_nvrtc(), Path(needed_nvcc())
    assert nvcc_version(nvcc).startswith(nvrtc.nvrtc_version(path))
    assert nvrtc.find_nvrtc(nvcc.parent.parent, "13.99.1") is None
    assert nvrtc.find_nvrtc(nvcc.parent.parent, nvcc_version(nvcc)) == path


def test_a_library_that_does_not_answer_is_left_behind(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    says = "Cuda compilation tools, release 13.0, V13.0.88"
    program(tmp_path, says)
    waits = threading.Event()
    monkeypatch.setenv("CUDA_HOME", str(tmp_path))
    monkeypatch.setattr(compile, "find_nvrtc", lambda *_: tmp_path)
    monkeypatch.setattr(compile, "compile_by_nvrtc", lambda *_: waits.wait(60))
    with pytest.raises(RuntimeError, match=r"^nvrtc: error: no answer within 0\.1 s$"):
        compile_cuda(TANH, "sm_80", deadline_s=0.1)
    waits.set()
