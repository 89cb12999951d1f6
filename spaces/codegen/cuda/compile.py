"""Compile CUDA source to machine code, with what its compiler says about each kernel.

NVRTC compiles where it is, and makes the same code in less time; nvcc what NVRTC does not take, and
all where there is no NVRTC of its version. One call makes a cubin for one architecture, the
target's: never for the device that happens to be here. What a kernel takes of registers, shared
memory and stack is in the cubin; how much of the stack is spilled registers only ptxas says.
"""

from __future__ import annotations

import json
import re
import struct
import subprocess
import tempfile
import threading
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from pathlib import Path
from queue import Empty, SimpleQueue

from spaces.codegen.cuda.cubin import KernelUse, kernel_uses
from spaces.codegen.cuda.mix import Mix
from spaces.codegen.cuda.nvcc import FAST_MATH, architecture, command, find_nvcc, nvcc_version
from spaces.codegen.cuda.nvrtc import Refused, compile_by_nvrtc, find_nvrtc
from tuner.errors import TunerError

DEADLINE_S = 600.0
"""For one call: a whole model's kernels are one source, and take a second each."""
_KEPT = 8
"""Compiled sources: TVM asks for the code that we ask for again, where it compiles at once."""
_NO_ANSWER = "{}: error: no answer within {:g} s"
_FUNCTION = re.compile(r"Function properties for (\S+)")
_SPILLS = re.compile(r"(\d+) bytes spill stores, (\d+) bytes spill loads")
_ERROR = re.compile(r"\berror\b|\bfatal\b", re.IGNORECASE)

Answer = tuple[bytes, str]
"""A cubin, and what its compiler said."""


@dataclass(frozen=True, slots=True)
class DeviceCode:
    """Compiled kernels.

    Attributes:
        binary: a cubin.
        uses: resources of each kernel, by its name.
    """

    binary: bytes
    uses: Mapping[str, KernelUse]

    def add_launch_bytes(self, launch_bytes: Mapping[str, int]) -> DeviceCode:
        """The same with the shared memory that launches ask for, of those kernels where that is
        known."""
        uses = {
            name: replace(use, launch_bytes=launch_bytes.get(name))
            for name, use in self.uses.items()
        }
        return replace(self, uses=uses)

    def uses_json(self) -> bytes:
        """The resources as text that `parse_uses` reads."""
        return json.dumps({name: asdict(use) for name, use in self.uses.items()}).encode()


def parse_uses(text: bytes) -> dict[str, KernelUse]:
    """The resources that `DeviceCode.uses_json` wrote."""
    return {
        name: KernelUse(**{**use, "mix": use["mix"] and Mix(**use["mix"])})
        for name, use in json.loads(text).items()
    }


def compile_cuda(
    source: str, arch: str, *, fast_math: bool = False, deadline_s: float = DEADLINE_S
) -> DeviceCode:
    """Compile CUDA source.

    Args:
        source: CUDA C++, as TVM emits it.
        arch: the architecture of the target, such as `sm_90`; see `nvcc.architecture`.
        fast_math: whether functions may have few right bits, see `spaces.check.errors.fast_math`.

    Raises:
        TunerError: there is no compiler.
        RuntimeError: it refuses the source, with its first complaint, or takes too long.
    """
    return _compile(find_nvcc(), source, architecture(arch, source), fast_math, deadline_s)


@lru_cache(maxsize=_KEPT)
def _compile(nvcc: Path, source: str, arch: str, fast_math: bool, deadline_s: float) -> DeviceCode:
    asked = nvcc, source, arch, fast_math, deadline_s
    binary, said = _by_library(*asked) or _by_nvcc(*asked)
    return DeviceCode(binary, _with_spills(_uses(binary), said))


def _by_library(
    nvcc: Path, source: str, arch: str, fast_math: bool, deadline_s: float
) -> Answer | None:
    """A cubin by NVRTC, and what that said; None where there is none, or it does not take the
    source: then nvcc has the last word."""
    toolkit, path = nvcc.parent.parent, None
    with suppress(TunerError):  # an nvcc that does not even say its version
        path = find_nvrtc(toolkit, nvcc_version(nvcc))
    if path is None:
        return None
    answers: SimpleQueue[Answer | None] = SimpleQueue()
    more = (FAST_MATH,) if fast_math else ()

    def compile_source() -> None:
        try:
            answers.put(compile_by_nvrtc(path, source, arch, toolkit, more))
        except Refused:
            answers.put(None)

    # It cannot be interrupted: if it takes too long, it is left behind.
    threading.Thread(target=compile_source, name="nvrtc", daemon=True).start()
    try:
        return answers.get(timeout=deadline_s)
    except Empty as error:
        raise RuntimeError(_NO_ANSWER.format("nvrtc", deadline_s)) from error


def _by_nvcc(nvcc: Path, source: str, arch: str, fast_math: bool, deadline_s: float) -> Answer:
    with tempfile.TemporaryDirectory(prefix="nvcc-") as folder:
        written, output = Path(folder) / "kernels.cu", Path(folder) / "kernels.cubin"
        written.write_text(source, encoding="utf-8")
        call = command(nvcc, arch, written, output, fast_math=fast_math)
        said = call_nvcc(call, deadline_s)
        return output.read_bytes(), said


def call_nvcc(call: list[str], deadline_s: float) -> str:
    """Run a call of the compiler, such as `nvcc.command` gives; return what it said.

    Raises:
        TunerError: it does not run.
        RuntimeError: it refuses its source, with its first complaint, or takes too long.
    """
    try:
        process = subprocess.Popen(
            call,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        )
    except OSError as error:
        raise TunerError(f"{call[0]} does not run: {error.strerror or error}") from error
    with process:
        try:
            said, _ = process.communicate(timeout=deadline_s)
        except BaseException as error:
            _kill_tree(process.pid)
            if isinstance(error, subprocess.TimeoutExpired):
                raise RuntimeError(_NO_ANSWER.format("nvcc", deadline_s)) from error
            raise
    if process.returncode != 0:
        lines = [line.strip() for line in said.splitlines() if line.strip()]
        first = next(filter(_ERROR.search, lines), lines[-1] if lines else "failed")
        raise RuntimeError(f"nvcc: {first}")
    return said


def _kill_tree(pid: int) -> None:
    """Kill a process and what it started: the compiler proper is a child of nvcc's."""
    import psutil

    with suppress(psutil.Error):
        process = psutil.Process(pid)
        for each in (process, *process.children(recursive=True)):
            with suppress(psutil.Error):
                each.kill()


def _uses(binary: bytes) -> dict[str, KernelUse]:
    """The resources of kernels; empty of a cubin that cannot be read, as of a later toolchain."""
    try:
        return kernel_uses(binary)
    except (ValueError, KeyError, IndexError, struct.error):
        return {}


def _with_spills(uses: dict[str, KernelUse], said: str) -> dict[str, KernelUse]:
    """Resources of kernels with the spilled bytes that ptxas reports for each."""
    found, kernel = dict(uses), ""
    for line in said.splitlines():
        if named := _FUNCTION.search(line):
            kernel = named[1]
        elif (spilled := _SPILLS.search(line)) and kernel in found:
            stores, loads = int(spilled[1]), int(spilled[2])
            found[kernel] = replace(found[kernel], spill_store_bytes=stores, spill_load_bytes=loads)
    return found
