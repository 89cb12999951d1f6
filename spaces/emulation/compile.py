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

from spaces.emulation.kernels import translate
from spaces.ir import tvm_compat
from tuner.errors import TunerError
from tuner.files.atomic import write_bytes

_SOURCES = Path(__file__).parent / "cpp"
_OPTIONS = (
    *("-std=c++20", "-fPIC", "-fvisibility=hidden", "-w", "-pipe"),
    # CUDA C reads memory as it pleases, integers wrap around, and there is no `errno`.
    *("-fno-strict-aliasing", "-fwrapv", "-fno-math-errno", "-fno-trapping-math"),
    # A library that is dropped is unloaded, and gives its memory back.
    *("-fno-exceptions", "-fno-rtti", "-fno-gnu-unique"),
)
_HEADER = "kernels.h"
"""What each program of kernels begins with."""
_WELL, _FAST = "-O2", "-O1"
_LONG = 1000
"""Lines from which on kernels take longer to be compiled well than they run."""
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


def compile_kernels(
    source: str, architecture: int, target: str = "", *, watched: bool = False
) -> bytes:
    """A shared library with the kernels of CUDA C as packed functions of their names.

    A kernel's function takes its arguments, its launch parameters, and a text with the tags of
    these, separated by commas.

    Args:
        architecture: the digits of the device's, such as 80 for sm_80.
        target: a text that the library keeps, to tell which device it is for.
        watched: as for `spaces.emulation.kernels.translate`.

    Raises:
        TunerError: there is no C++ compiler.
        ValueError: the program has what the emulated device does not know; the text names it.
    """
    with tempfile.TemporaryDirectory(prefix="emulated-") as folder:
        program, output = Path(folder) / "kernels.cpp", Path(folder) / "kernels.so"
        text = translate(source, target, watched=watched)
        program.write_text(text)
        objects = Path(folder) / "kernels.o"
        level = _WELL if text.count("\n") < _LONG else _FAST
        options = (level, *_of_this_cpu(), f"-D__CUDA_ARCH__={architecture * 10}")
        _compile(program, objects, *_header(options), *options)
        machine = Path(folder) / "machine.o"
        machine.write_bytes(_machine())
        _call("-shared", "-o", str(output), str(objects), str(machine), "-lrt")
        return output.read_bytes()


@cache
def _machine() -> bytes:
    """The object file of the machine, compiled once and kept with the user's other caches."""
    kept = _cache() / "machine.o"
    with suppress(OSError):
        return kept.read_bytes()
    made = _compile_machine()
    with suppress(OSError):
        kept.parent.mkdir(parents=True, exist_ok=True)
        write_bytes(kept, made)
    return made


@cache
def _header(options: tuple[str, ...]) -> tuple[str, ...]:
    """Options by which the header of all kernels is not read again for each, which takes longer
    than most kernels: g++ keeps it compiled. Where that fails, the header itself is read."""
    name = sha256(" ".join(options).encode()).hexdigest()[:16]
    folder = _cache() / name
    kept = folder / f"{_HEADER}.gch"
    with suppress(OSError, ValueError):
        if not kept.exists():
            folder.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(prefix="header-", dir=folder) as scratch:
                made = Path(scratch) / kept.name
                include = (*_includes(), "-x", "c++-header")
                header = str(_SOURCES / "include" / _HEADER)
                _call(*_OPTIONS, *options, *include, "-o", str(made), header)
                made.replace(kept)
    return (f"-I{folder}",) if kept.exists() else ()


@cache
def _cache() -> Path:
    """The folder of what is made of these sources, with this compiler."""
    import platformdirs

    sources = sorted(path for path in _SOURCES.rglob("*") if path.is_file())
    text = b"\0".join([_call("--version").encode(), *(path.read_bytes() for path in sources)])
    key = sha256(" ".join(_OPTIONS).encode() + text).hexdigest()
    return Path(platformdirs.user_cache_dir("elastic-tuner")) / "emulation" / key


def _compile_machine() -> bytes:
    with (
        tempfile.TemporaryDirectory(prefix="machine-") as folder,
        ThreadPoolExecutor(os.cpu_count()) as pool,
    ):
        sources = sorted(_SOURCES.glob("*.cpp"))
        outputs = [Path(folder) / f"{source.stem}.o" for source in sources]
        list(pool.map(lambda one, to: _compile(one, to, "-O2"), sources, outputs))
        whole = Path(folder) / "whole.o"
        _call("-r", "-nostdlib", "-o", str(whole), *map(str, outputs))
        return whole.read_bytes()


@cache
def _of_this_cpu() -> tuple[str, ...]:
    found = {name for name, there in tvm_compat.host_features().items() if there}
    return ("-march=x86-64-v3", "-ffp-contract=fast") if found >= _NEWER else ()


def _compile(source: Path, output: Path, *options: str) -> None:
    _call(*_OPTIONS, *options, *_includes(), "-c", "-o", str(output), str(source))


def _includes() -> list[str]:
    import tvm_ffi.libinfo

    folders = [
        _SOURCES / "include",
        _SOURCES,
        tvm_ffi.libinfo.find_include_path(),
        tvm_ffi.libinfo.find_dlpack_include_path(),
    ]
    return [f"-I{folder}" for folder in folders]


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
