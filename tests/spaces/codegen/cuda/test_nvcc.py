"""Which CUDA compiler is called, and with which words."""

from __future__ import annotations

from pathlib import Path

import pytest

from spaces.codegen.cuda import nvcc
from spaces.codegen.cuda.nvcc import architecture, command, find_nvcc, nvcc_version
from spaces.passes.toolchain import toolchain_fingerprint
from tests.needed import needs_nvcc
from tuner.errors import TunerError
from tuner.request import target_text


def program(folder: Path, says: str = "") -> Path:
    """A program called nvcc that says something."""
    made = folder / "bin" / "nvcc"
    made.parent.mkdir(parents=True)
    made.write_text(f"#!/bin/sh\necho '{says}'\n")
    made.chmod(0o755)
    return made


def test_no_call_asks_for_fast_math() -> None:
    said = command(Path("nvcc"), "sm_90", Path("a.cu"), Path("a.cubin"))
    assert not [word for word in said if "fast" in word or "ftz" in word or "prec-" in word]


def test_one_that_is_told_to_does() -> None:
    said = command(Path("nvcc"), "sm_90", Path("a.cu"), Path("a.cubin"), fast_math=True)
    plain = command(Path("nvcc"), "sm_90", Path("a.cu"), Path("a.cubin"))
    assert "--use_fast_math" in said
    assert [word for word in said if word != "--use_fast_math"] == plain


def test_a_call_names_the_architecture_once_and_makes_machine_code_for_it_alone() -> None:
    said = command(Path("/cuda/bin/nvcc"), "sm_86", Path("a.cu"), Path("b.cubin"))
    assert said[0] == "/cuda/bin/nvcc"
    assert "--cubin" in said
    assert said[said.index("-gencode") + 1] == "arch=compute_86,code=sm_86"
    assert said[said.index("-o") + 1] == "b.cubin"
    assert said[-1] == "a.cu"


@pytest.mark.parametrize(
    ("arch", "source", "compiled_for"),
    [
        ("sm_90", "mma.sync.aligned.m16n8k16", "sm_90"),
        ("sm_90", "cp.async.bulk.tensor.2d.shared::cluster", "sm_90"),
        ("sm_90", 'asm volatile("wgmma.mma_async.sync.aligned.m64n256k16...")', "sm_90a"),
        ("sm_90", 'asm volatile("setmaxnreg.inc.sync.aligned.u32 240;")', "sm_90a"),
        ("sm_90a", "wgmma.fence", "sm_90a"),
        ("sm_100", "tcgen05.mma", "sm_100a"),
        ("sm_80", "wgmma.fence", "sm_80"),
    ],
)
def test_what_one_architecture_alone_can_do_is_compiled_for_it_alone(
    arch: str, source: str, compiled_for: str
) -> None:
    assert architecture(arch, source) == compiled_for


def test_the_toolkit_that_is_named_goes_first_and_then_the_package(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    named, packaged, on_path = (program(tmp_path / name) for name in ("home", "package", "path"))
    monkeypatch.setattr(nvcc, "find_packaged_nvcc", lambda: packaged)
    path = {"PATH": str(on_path.parent)}
    assert find_nvcc({"CUDA_HOME": str(tmp_path / "home"), **path}) == named
    assert find_nvcc({"CUDA_PATH": str(tmp_path / "home"), **path}) == named
    assert find_nvcc({"CUDA_HOME": str(tmp_path / "gone"), **path}) == packaged
    assert find_nvcc(path) == packaged
    monkeypatch.setattr(nvcc, "find_packaged_nvcc", lambda: None)
    assert find_nvcc(path) == on_path


def test_without_one_the_extra_is_named_in_one_line(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(nvcc, "find_packaged_nvcc", lambda: None)
    monkeypatch.setattr(nvcc, "_USUAL", tmp_path)
    with pytest.raises(TunerError, match=r"pip install 'elastic-tuner\[cuda\]'") as refused:
        find_nvcc({"PATH": str(tmp_path)})
    assert "\n" not in str(refused.value)


def test_its_version_is_read(tmp_path: Path) -> None:
    says = "Cuda compilation tools, release 13.0, V13.0.88"
    assert nvcc_version(program(tmp_path / "a", says)) == "13.0.88"
    with pytest.raises(TunerError, match="does not say its version"):
        nvcc_version(program(tmp_path / "b", "hello"))
    with pytest.raises(TunerError, match="does not run"):
        nvcc_version(tmp_path / "none")


@needs_nvcc
def test_the_one_of_this_environment_has_a_version() -> None:
    assert nvcc_version(find_nvcc()).count(".") == 2


@pytest.mark.tvm
def test_the_toolchain_of_a_cuda_target_names_the_compiler_and_its_flags(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    cuda, cpu = '{"arch":"sm_90","kind":"cuda"}', '{"kind":"llvm"}'
    says = "Cuda compilation tools, release 13.0, V13.0.88"
    program(tmp_path, says)
    monkeypatch.setenv("CUDA_HOME", str(tmp_path))
    found = toolchain_fingerprint(cuda)
    assert found.startswith(f"{toolchain_fingerprint()} nvcc=13.0.88 flags=")
    assert toolchain_fingerprint(cpu) == toolchain_fingerprint()
    fast = toolchain_fingerprint(target_text.fast_math(cuda))
    assert fast != found
    assert toolchain_fingerprint(target_text.l2(cuda, "cold")) == found
    for where, name in ((nvcc, "FLAGS"), (nvcc.nvrtc, "OPTIONS")):
        with monkeypatch.context() as change:
            change.setattr(where, name, (*getattr(where, name), "--device-debug"))
            assert toolchain_fingerprint(cuda) != found


def test_a_machine_that_only_measures_may_have_none(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(nvcc, "find_packaged_nvcc", lambda: None)
    monkeypatch.setattr(nvcc, "_USUAL", tmp_path)
    for name in ("PATH", "CUDA_HOME", "CUDA_PATH"):
        monkeypatch.setenv(name, "")
    cuda = '{"arch":"sm_90","kind":"cuda"}'
    assert nvcc.nvcc_fingerprint(cuda).startswith("nvcc=none flags=")


def test_tvm_s_own_call_is_told_what_ours_says(monkeypatch: pytest.MonkeyPatch) -> None:
    cuda = '{"arch":"sm_90","kind":"cuda"}'
    refused = "TVM_CUDA_NVCC_NO_FAST_MATH"
    assert nvcc.stock_environment(cuda)[refused]
    assert not nvcc.stock_environment(target_text.fast_math(cuda))[refused]
