"""From a scheduled module to an artifact that another machine can load and run, and back.

An artifact is a zip file without compression:

    kernel.so       host code, as TVM loads it
    device.bin      for CUDA: the machine code of the kernels (a cubin)
    emulated.so     for the emulated CUDA device: the kernels, see `spaces.emulation`
    kernels.json    for CUDA: registers, shared memory, spills and innermost loop of each kernel,
                    as compiled
    packing.json    how constant operands are packed ahead, if they are; see
                    `spaces.codegen.prepack.Packing`

For a schedule that packs constant operands, `kernel.so` holds two functions: "prepack" makes the
packed operands, "main" computes with them. So the time of "main" is that of a compiled model. For
any other schedule there is "main" alone.

TVM leaves CUDA source in `kernel.so` where it has no CUDA runtime, and compiles it when the library
is loaded, on the machine that has the device, while that device idles. We compile it here instead,
and hand the result to TVM when it asks for it.
"""

from __future__ import annotations

import io
import shutil
import subprocess
import tempfile
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from spaces.codegen.cuda.compile import parse_uses
from spaces.codegen.cuda.cubin import KernelUse
from spaces.codegen.cuda.device_code import hand_over
from spaces.codegen.prepack import COMPUTE, PREPACK, Packing, split
from spaces.codegen.theirs import Compiler
from spaces.emulation.library import DEADLINE_S, build_kernels, drop_kernels, load_kernels
from spaces.passes.cuda.launches import LaunchWatch
from spaces.passes.pipeline import tir_pipeline
from spaces.targets.backends import backend_of, compiling, load
from spaces.targets.target import parse_target

_HOST = "kernel.so"
_DEVICE = "device.bin"
_EMULATED = "emulated.so"
_KERNELS = "kernels.json"
_PACKING = "packing.json"
_TRUSTING = {"tirx.disable_assert": True}
"""Timed kernels get arguments that fit, and checks of these take a sixth of a build."""
_EPOCH = (1980, 1, 1, 0, 0, 0)


def build_artifact(module: Any, target: Any, compiler: Compiler | None = None) -> bytes:
    """Compile a scheduled IRModule.

    Args:
        module: its functions keep their names in the artifact. One that holds "main" alone may
            pack constant operands.
        target: a `tvm.target.Target`, or its JSON.
        compiler: a user's own, in the place of TVM's with our passes.

    Raises:
        ValueError: the program packs an operand ahead that is no constant, or a kernel needs more
            threads, registers or shared memory than its device has.
        Exception: whatever the compiler threw; TVM does not document its kinds.
    """
    target = parse_target(target) if isinstance(target, str) else target
    row, members, watch = backend_of(target), {}, LaunchWatch()
    looks_on = (watch.instrument(),) if row.device_code else ()
    library, packing = compile_kernel(module, target, compiler, looks_on)
    if row.emulated and (emulated := build_kernels(library, target)) is not None:
        members[_EMULATED] = emulated
        drop_kernels(library)
    with tempfile.TemporaryDirectory(prefix="build-") as folder:
        members[_HOST] = _host_library(library, Path(folder))
    if row.device_code and (code := load(row.device_code)(library, target, watch.shared_bytes)):
        members |= {_DEVICE: code.binary, _KERNELS: code.uses_json()}
    if packing is not None:
        members[_PACKING] = packing.to_json().encode()
    return _pack(members)


def compile_kernel(
    module: Any, target: Any, compiler: Compiler | None = None, instruments: Sequence[Any] = ()
) -> tuple[Any, Packing | None]:
    """Compile for `build_artifact`: a `tvm.runtime.Module`, and its packing, if any.

    Args:
        target: a `tvm.target.Target`.
        compiler: as for `build_artifact`.
        instruments: of TVM's passes; not of a user's compiler.
    """
    import tvm

    parts = split(module) if [gv.name_hint for gv in module.functions] == [COMPUTE] else None
    module = module if parts is None else parts.module
    with compiling(target):
        if compiler is not None:
            library = compiler(module, target)
        else:
            with tvm.transform.PassContext(config=_TRUSTING, instruments=list(instruments)):
                library = tvm.compile(module, target=target, tir_pipeline=tir_pipeline(target)).mod
    return library, None if parts is None else parts.packing


@dataclass(frozen=True, slots=True)
class Kernel:
    """A loaded artifact.

    Attributes:
        module: a `tvm.runtime.Module`, whose "main" is to be timed.
        packing: the packing of operands; None where "main" takes the program's own arguments.
    """

    module: Any
    packing: Packing | None

    def arguments(self, tensors: Sequence[Any], device: Any) -> list[Any]:
        """The arguments of "main", made from the program's arguments by packing constant operands.

        Each packed operand is a new tensor; the others are those that were given.
        """
        import tvm

        arguments = list(tensors)
        if self.packing is None:
            return arguments
        packed = [tvm.runtime.empty(p.shape, p.dtype, device) for p in self.packing.packed]
        self.module[PREPACK](*(tensors[i] for i in self.packing.sources), *packed)
        for operand, tensor in zip(self.packing.packed, packed, strict=True):
            arguments[operand.position] = tensor
        return arguments


def load_kernel(artifact: bytes, *, launch_s: float = DEADLINE_S) -> Kernel:
    """Load an artifact into this process, as `load_artifact` does, with its packing."""
    packing = _unpack(artifact).get(_PACKING)
    return Kernel(
        load_artifact(artifact, launch_s=launch_s),
        None if packing is None else Packing.from_json(packing.decode()),
    )


def kernels_of(artifact: bytes) -> dict[str, KernelUse]:
    """What each kernel of an artifact takes of its device, as compiled; empty of a CPU's."""
    text = _unpack(artifact).get(_KERNELS)
    return {} if text is None else parse_uses(text)


def load_artifact(
    artifact: bytes, folder: Path | None = None, *, launch_s: float = DEADLINE_S
) -> Any:
    """Load an artifact into this process: a `tvm.runtime.Module`.

    Args:
        folder: folder for the library while it is loaded.
        launch_s: how long a launch may take on the emulated device.
    """
    import tvm

    members = _unpack(artifact)
    with tempfile.TemporaryDirectory(prefix="load-", dir=folder) as made:
        path = Path(made) / _HOST
        path.write_bytes(members[_HOST])
        with hand_over(members.get(_DEVICE)):
            loaded = tvm.runtime.load_module(str(path))
    if _EMULATED in members:
        loaded.import_module(load_kernels(members[_EMULATED], deadline_s=launch_s))
    return loaded


def _host_library(library: Any, folder: Path) -> bytes:
    """The host code as a shared library.

    Calling the linker directly takes 4 ms; TVM's way, by the C++ compiler's driver, 30 ms. Symbols
    of the C library are resolved from the process that loads the kernel.
    """
    output = folder / _HOST
    linker = shutil.which("ld")
    if library.imports or linker is None:
        library.export_library(str(output))
        return output.read_bytes()
    objects = folder / "kernel.o"
    library.write_to_file(str(objects))
    command = [linker, "-shared", "-o", str(output), str(objects)]
    linked = subprocess.run(command, capture_output=True, text=True, check=False)
    if linked.returncode != 0:
        raise RuntimeError(f"linker: {linked.stderr.strip()}")
    return output.read_bytes()


def _pack(members: dict[str, bytes]) -> bytes:
    """The archive of some members; equal members give equal bytes."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        for name, data in members.items():
            archive.writestr(zipfile.ZipInfo(name, date_time=_EPOCH), data)
    return buffer.getvalue()


def _unpack(artifact: bytes) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(artifact)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}
