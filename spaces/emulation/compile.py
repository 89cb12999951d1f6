"""C++ of kernels compiled to a shared library, with the machine that runs them linked in."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import cache
from hashlib import sha256
from pathlib import Path

from spaces.emulation.kernels import translated
from tuner.errors import TunerError
from tuner.files.atomic import write_bytes

_SOURCES = Path(__file__).parent / "cpp"
_OPTIONS = (
    *("-std=c++20", "-O2", "-fPIC", "-fvisibility=hidden", "-w", "-pipe"),
    # CUDA C reads memory as it pleases, integers wrap around, and there is no `errno`.
    *("-fno-strict-aliasing", "-fwrapv", "-fno-math-errno", "-fno-trapping-math"),
    # A library that is dropped is unloaded, and gives its memory back.
    *("-fno-exceptions", "-fno-rtti", "-fno-gnu-unique"),
)
_COMPILE_LIMIT_S = 300.0
_NEWER = {"fma", "avx2", "bmi2", "f16c", "movbe"}
"""Features of CPUs that have all that the compiler's level 3 of x86-64 asks for: with them a
multiply-add is rounded once, as CUDA's compiler has it done."""


def compiler() -> str:
    """The path of the C++ compiler: `CXX`, or g++, or clang++.

    Raises:
        TunerError: there is none.
    """
    for name in (os.environ.get("CXX", ""), "g++", "clang++"):
        if name and (path := shutil.which(name)):
            return path
    raise TunerError("the emulated CUDA device needs a C++ compiler: install g++, or set CXX")


def compile_kernels(source: str, architecture: int, target: str = "") -> bytes:
    """A shared library with the kernels of CUDA C as packed functions of their names.

    A kernel's function takes its arguments, its launch parameters, and a text with the tags of
    these, separated by commas.

    Args:
        architecture: the digits of the device's, such as 80 for sm_80.
        target: a text that the library keeps, to tell which device it is for.

    Raises:
        TunerError: there is no C++ compiler.
        ValueError: the program has what the emulated device does not know; the text names it.
    """
    with tempfile.TemporaryDirectory(prefix="emulated-") as folder:
        program, output = Path(folder) / "kernels.cpp", Path(folder) / "kernels.so"
        program.write_text(translated(source, target))
        objects = Path(folder) / "kernels.o"
        defined = f"-D__CUDA_ARCH__={architecture * 10}"
        _compile(program, objects, *_of_this_cpu(), defined)
        machine = Path(folder) / "machine.o"
        machine.write_bytes(_machine())
        _call("-shared", "-o", str(output), str(objects), str(machine), "-lrt")
        return output.read_bytes()


@cache
def _machine() -> bytes:
    """The object file of the machine, compiled once and kept with the user's other caches."""
    import platformdirs

    sources = sorted(path for path in _SOURCES.rglob("*") if path.is_file())
    version = _call("--version")
    key = sha256(b"\0".join([version.encode(), *(path.read_bytes() for path in sources)]))
    folder = Path(platformdirs.user_cache_dir("elastic-tuner")) / "emulation"
    kept = folder / f"{key.hexdigest()}.o"
    with suppress(OSError):
        return kept.read_bytes()
    made = _compiled_machine()
    with suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True)
        write_bytes(kept, made)
    return made


def _compiled_machine() -> bytes:
    with (
        tempfile.TemporaryDirectory(prefix="machine-") as folder,
        ThreadPoolExecutor(os.cpu_count()) as pool,
    ):
        sources = sorted(_SOURCES.glob("*.cpp"))
        outputs = [Path(folder) / f"{source.stem}.o" for source in sources]
        list(pool.map(_compile, sources, outputs))
        whole = Path(folder) / "whole.o"
        _call("-r", "-nostdlib", "-o", str(whole), *map(str, outputs))
        return whole.read_bytes()


@cache
def _of_this_cpu() -> tuple[str, ...]:
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        return ()
    found = {
        word for line in text.splitlines() if line.startswith("flags") for word in line.split()
    }
    return ("-march=x86-64-v3", "-ffp-contract=fast") if found >= _NEWER else ()


def _compile(source: Path, output: Path, *options: str) -> None:
    import tvm_ffi.libinfo

    folders = [
        _SOURCES / "include",
        _SOURCES,
        tvm_ffi.libinfo.find_include_path(),
        tvm_ffi.libinfo.find_dlpack_include_path(),
    ]
    include = [f"-I{folder}" for folder in folders]
    _call(*_OPTIONS, *options, *include, "-c", "-o", str(output), str(source))


def _call(*arguments: str) -> str:
    done = subprocess.run(
        [compiler(), *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=_COMPILE_LIMIT_S,
    )
    if done.returncode != 0:
        lines = [line for line in done.stderr.splitlines() if "error" in line]
        raise ValueError(f"C++ compiler: {(lines or [done.stderr.strip() or 'failed'])[0]}")
    return done.stdout
