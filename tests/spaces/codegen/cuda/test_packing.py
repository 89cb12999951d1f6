"""Libraries of CUDA kernels: what is exported holds machine code for the run's target."""

from __future__ import annotations

import subprocess
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from spaces.codegen.artifact import build_artifact, kernels_of
from spaces.codegen.cuda import nvcc
from spaces.codegen.cuda.device_code import compiling_for, hand_over
from spaces.codegen.cuda.packing import compile_imports, forms_of_kernels
from spaces.codegen.executable import Executable, compile_module, export_library
from spaces.lowering.lower import lower
from spaces.targets.target import parse_target, resolve_target
from tests.needed import needs_nvcc
from tuner.errors import TunerError
from tuner.request import target_text

pytestmark = pytest.mark.tvm

CUDA = resolve_target('{"kind":"cuda","arch":"sm_86"}')
SOURCE = b"__global__"
"""What CUDA source cannot do without."""


def gelu() -> Any:
    """A graph whose operators would be single instructions with fast math."""
    from tvm import relax

    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((64, 64), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            out = builder.emit_output(relax.op.tanh(relax.op.nn.softmax(x)))
        builder.emit_func_output(out)
    return builder.get()


@pytest.fixture(scope="module")
def executable() -> Iterator[Executable]:
    """As it is where TVM has no device: its kernels are source."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TVM_COMPILE_FORCE_FALLBACK", "1")
        yield compile_module(lower(gelu(), CUDA), CUDA)


def packed(executable: Executable) -> bytes:
    import tvm

    pack = tvm.get_global_func("runtime.ModulePackImportsToTensor")
    return bytes(pack(executable.library.mod).numpy().tobytes())


def unpacked(archive: Path) -> bytes:
    """The files of an archive, one after the other."""
    with tarfile.open(archive) as files:
        found = [files.extractfile(member) for member in files if member.isfile()]
        return b"".join(file.read() for file in found if file is not None)


@needs_nvcc
@pytest.mark.parametrize("ending", ["so", "tar"])
def test_an_exported_library_holds_machine_code_and_no_source(
    executable: Executable, tmp_path: Path, ending: str
) -> None:
    path = tmp_path / f"net.{ending}"
    export_library(executable, path)
    written = path.read_bytes() if ending == "so" else unpacked(path)
    assert SOURCE not in written
    start = written.index(b"\x7fELF", written.index(b"cubin"))
    (tmp_path / "net.cubin").write_bytes(written[start:])
    read = ["cuobjdump", "-sass", str(tmp_path / "net.cubin")]
    code = subprocess.check_output(read, text=True, timeout=60)
    assert "code for sm_86" in code
    assert "MUFU.TANH" not in code


@needs_nvcc
def test_a_target_of_fast_math_has_it_wherever_its_kernels_are_compiled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from spaces.codegen.cuda import device_code

    asked: list[bool] = []
    compiled = device_code.compile_cuda

    def watched(source: str, arch: str, *, fast_math: bool) -> Any:
        asked.append(fast_math)
        return compiled(source, arch, fast_math=fast_math)

    monkeypatch.setattr(device_code, "compile_cuda", watched)
    monkeypatch.setenv("TVM_COMPILE_FORCE_FALLBACK", "1")
    for target, wanted in ((CUDA, False), (resolve_target(target_text.fast_math(CUDA)), True)):
        export_library(compile_module(lower(gelu(), target), target), tmp_path / "net.so")
        build_artifact(scheduled(), target)
        with compiling_for(parse_target(target)):
            import tvm

            tvm.get_global_func("tvm_callback_cuda_compile")('extern "C" __global__ void k() {}')
        assert asked == [wanted] * 3
        asked.clear()


@needs_nvcc
def test_a_program_s_library_does_too(tmp_path: Path) -> None:
    from tvm import te
    from tvm.ir import IRModule

    a = te.placeholder((64,), name="a")
    function = te.create_prim_func([a, te.compute((64,), lambda i: a[i] + 1.0, name="b")])
    module = lower(IRModule({"add": function.with_attr("global_symbol", "add")}), CUDA)
    export_library(compile_module(module, CUDA), tmp_path / "add.so")
    written = (tmp_path / "add.so").read_bytes()
    assert SOURCE not in written
    assert b"cubin" in written


@needs_nvcc
def test_only_the_form_and_the_code_of_kernels_change(executable: Executable) -> None:
    before = packed(executable)
    source = kernels(executable.library.mod)[0].inspect_source("cuda")
    assert forms_of_kernels(before) == ["cuda"]
    after = compile_imports(before, [source], lambda given: f"made of {len(given)}".encode())
    assert forms_of_kernels(after) == ["cubin"]
    made = f"made of {len(source)}".encode()
    assert after[8:].endswith(made)
    assert len(before) - len(after) == len(source.encode()) - len(made) - 1
    assert compile_imports(after, [], lambda given: b"") == after


def test_packed_imports_of_another_form_are_refused(executable: Executable) -> None:
    with pytest.raises(ValueError, match="source is unknown"):
        compile_imports(packed(executable), ["another"], lambda given: b"")
    with pytest.raises(ValueError, match="another size"):
        compile_imports(packed(executable)[:-1], [], lambda given: b"")


def test_without_a_compiler_an_export_says_what_brings_it(
    executable: Executable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nvcc, "find_packaged_nvcc", lambda: None)
    monkeypatch.setattr(nvcc, "_USUAL", tmp_path)
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(TunerError, match=r"elastic-tuner\[cuda\]"):
        export_library(executable, tmp_path / "net.so")
    assert list(tmp_path.iterdir()) == []


@needs_nvcc
def test_tvm_compiles_as_we_do_wherever_it_compiles_at_once(tmp_path: Path) -> None:
    """As where it has a device: it asks for the architecture that is current, the target's."""
    import tvm

    asked = "tvm_callback_cuda_compile"
    source = 'extern "C" __global__ void k(float* x) { x[0] = tanhf(x[0]); }'
    with compiling_for(parse_target(CUDA)):
        assert tvm.target.Target.current(allow_none=False).attrs["arch"] == "sm_86"
        binary = bytes(tvm.get_global_func(asked)(source))
        with hand_over(b"made"):
            assert bytes(tvm.get_global_func(asked)(source)) == b"made"
    (tmp_path / "k.cubin").write_bytes(binary)
    read = ["cuobjdump", "-sass", str(tmp_path / "k.cubin")]
    assert "code for sm_86" in subprocess.check_output(read, text=True, timeout=60)


@needs_nvcc
def test_a_module_is_compiled_in_that_context(monkeypatch: pytest.MonkeyPatch) -> None:
    """A runtime of CUDA compiles while TVM builds: what it would call is ours by then."""
    import tvm

    seen = []
    compile_now = tvm.compile

    def watched(*args: Any, **named: Any) -> Any:
        callback = tvm.get_global_func("tvm_callback_cuda_compile")
        seen.append(bytes(callback('extern "C" __global__ void k() {}'))[:4])
        return compile_now(*args, **named)

    monkeypatch.setattr(tvm, "compile", watched)
    compile_module(lower(gelu(), CUDA), CUDA)
    assert seen == [b"\x7fELF"]
    build_artifact(scheduled(), CUDA)
    assert seen == [b"\x7fELF"] * 2


@needs_nvcc
def test_what_tvm_has_compiled_at_once_is_not_compiled_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from spaces.codegen.cuda import compile as compiler

    calls = []
    run = compiler.call_nvcc
    monkeypatch.setattr(compiler, "call_nvcc", lambda *args: calls.append(args) or run(*args))
    monkeypatch.setattr(compiler, "find_nvrtc", lambda *_: None)
    source = 'extern "C" __global__ void once(float* x) { x[0] += 1.0f; }'
    first = compiler.compile_cuda(source, "sm_86")
    assert compiler.compile_cuda(source, "sm_86") == first
    assert compiler.compile_cuda(source, "sm_80") != first
    assert len(calls) == 2


@needs_nvcc
def test_an_artifact_carries_what_its_kernels_take() -> None:
    (use,) = kernels_of(build_artifact(scheduled(), CUDA)).values()
    assert use.registers > 0
    assert use.threads > 0
    assert kernels_of(build_artifact(added(), '{"kind":"llvm"}')) == {}


def added() -> Any:
    """A program that adds."""
    from tvm import te
    from tvm.ir import IRModule

    a = te.placeholder((4096,), name="a")
    function = te.create_prim_func([a, te.compute((4096,), lambda i: a[i] + 1.0, name="b")])
    return IRModule({"main": function})


def scheduled() -> Any:
    """The same, for a GPU."""
    from tvm.s_tir import dlight

    with parse_target(CUDA):
        return dlight.ApplyDefaultSchedule(dlight.gpu.Fallback())(added())


def kernels(library: Any) -> list[Any]:
    """The modules of kernels that a library imports."""
    if library.kind == "cuda":
        return [library]
    return [found for part in library.imports for found in kernels(part)]
