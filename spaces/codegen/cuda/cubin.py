"""Resources of compiled CUDA kernels, read from their machine code and compared with a device's.

nvcc leaves them in the ELF file of a cubin: shared memory as a section of its own, and among
attributes registers, the stack, which holds spilled registers, and the threads of a block.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import prod

from spaces.codegen.cuda.mix import Mix, read_mix
from spaces.targets.gpu import Gpu, count_resident, gpu_of

Sections = dict[str, tuple[tuple[int, ...], bytes]]

_MAGIC = b"\x7fELF"
_FORM = b"\x41\x08"
"""The operating system and the version of cubins of CUDA 13, in whose flags the architecture is."""
_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_TEXT, _SHARED, _INFO, _SYMBOLS, _STRINGS = (
    ".text.",
    ".nv.shared.",
    ".nv.info",
    ".symtab",
    ".strtab",
)
_SYSTEMS, _SYSTEMS_BYTES = ".nv.shared.reserved.0", 1024
"""A section of cubins from sm_90 on, in which the shared memory of each kernel begins with what the
system keeps for itself."""
_SIZED, _MOST_THREADS, _FRAME_SIZE, _REGISTERS = 4, 0x05, 0x11, 0x2F
"""Attributes: the form that carries its length, a block's largest size, a function's stack, and its
registers."""
_REGISTERS_AT_ONCE = 8
"""The unit in which registers are given to a thread."""


@dataclass(frozen=True, slots=True)
class KernelUse:
    """Resources of one kernel.

    Attributes:
        registers: registers of each thread.
        shared_bytes: shared memory of a block, as declared; `launch_bytes` what its launch asks for
            besides, None where that is not known.
        stack_bytes: stack of each thread, in slow memory: spilled registers, and arrays that did
            not become registers.
        threads: the most threads of a block; 0 where the program does not say.
        spill_store_bytes: registers that the code of a thread writes to the stack, and
            `spill_load_bytes` those that it reads back, where the compiler's report is known.
        mix: instructions of its innermost loop; None where its machine code is not known.
    """

    registers: int
    shared_bytes: int
    stack_bytes: int
    threads: int = 0
    spill_store_bytes: int = 0
    spill_load_bytes: int = 0
    launch_bytes: int | None = None
    mix: Mix | None = None


def kernel_uses(binary: bytes) -> dict[str, KernelUse]:
    """Resources of each kernel of a cubin, or of a fatbin with an uncompressed one.

    Raises:
        ValueError: the binary holds no such cubin.
    """
    image = _image(binary)
    sections = _by_name(image)
    stacks, registers = (_by_function(sections, kind) for kind in (_FRAME_SIZE, _REGISTERS))
    kept = _SYSTEMS_BYTES if _SYSTEMS in sections else 0
    found = {}
    for kernel, text in _texts(sections).items():
        shared = sections.get(_SHARED + kernel)
        found[kernel] = KernelUse(
            registers=registers[kernel],
            shared_bytes=max(shared[0][5] - kept, 0) if shared else 0,
            stack_bytes=stacks.get(kernel, 0),
            threads=_threads(sections, kernel),
            mix=read_mix(text, _architecture(image)),
        )
    return found


def kernel_texts(binary: bytes) -> dict[str, bytes]:
    """The machine code of each kernel of a cubin.

    Raises:
        ValueError: see `kernel_uses`.
    """
    return _texts(_by_name(_image(binary)))


def check_launch(uses: Mapping[str, KernelUse], target_json: str) -> None:
    """Refuse kernels of which one cannot be started by any device of a target.

    Raises:
        ValueError: it names the kernel and the resource of which it needs too much.
    """
    for kernel, use in uses.items():
        if excess := too_much(use, gpu_of(target_json)):
            raise ValueError(f"kernel {kernel} cannot be launched: {excess}")


def describe_spills(uses: Mapping[str, KernelUse]) -> str:
    """The kernel whose threads keep most of their registers in slow memory, in words; empty where
    none does."""
    spills = {name: use.spill_store_bytes for name, use in uses.items()}
    name = max(spills, key=lambda kernel: spills[kernel], default="")
    if not spills.get(name):
        return ""
    return f"kernel {name} spills registers: {spills[name]} bytes of each thread"


def too_much(use: KernelUse, gpu: Gpu) -> str:
    """A resource of which a kernel needs more than a device has, in words; empty if none."""
    if use.threads > gpu.threads:
        return f"{use.threads} threads in a block, of {gpu.threads}"
    if use.registers > gpu.thread_registers:
        return f"{use.registers} registers in a thread, of {gpu.thread_registers}"
    given = -(-use.registers // _REGISTERS_AT_ONCE) * _REGISTERS_AT_ONCE
    registers = given * -(-use.threads // gpu.warp) * gpu.warp
    if registers > gpu.registers:
        return f"{registers} registers in a block, of {gpu.registers}"
    if use.shared_bytes > gpu.shared_bytes:
        return f"{use.shared_bytes} bytes of shared memory in a block, of {gpu.shared_bytes}"
    shared_bytes = use.shared_bytes + (use.launch_bytes or 0)
    if shared_bytes > gpu.dynamic_shared_bytes:
        return f"{shared_bytes} bytes of shared memory in a block, of {gpu.dynamic_shared_bytes}"
    return ""


def resident_blocks(use: KernelUse, gpu: Gpu) -> int | None:
    """Blocks of a kernel that share a multiprocessor; None where the size of a block, or its shared
    memory, is not known."""
    if use.threads == 0 or use.launch_bytes is None:
        return None
    shared_bytes = use.shared_bytes + use.launch_bytes
    return int(count_resident(gpu, shared_bytes, use.registers, use.threads))


def _image(binary: bytes) -> bytes:
    start = binary.find(_MAGIC)
    if start < 0:
        raise ValueError("no cubin, or a compressed one")
    return binary[start:]


def _by_name(image: bytes) -> Sections:
    return {name: (header, data) for name, header, data in _sections(image)}


def _texts(sections: Sections) -> dict[str, bytes]:
    """The machine code of each kernel."""
    return {
        name.removeprefix(_TEXT): data
        for name, (_, data) in sections.items()
        if name.startswith(_TEXT)
    }


def _architecture(image: bytes) -> int:
    """The number of the architecture that a cubin is for; 0 of one in an older form."""
    header = _HEADER.unpack_from(image)
    return header[7] >> 8 & 0xFF if header[0][7:9] == _FORM else 0


def _sections(image: bytes) -> Iterator[tuple[str, tuple[int, ...], bytes]]:
    header = _HEADER.unpack_from(image)
    offset, size, number, names = header[6], header[11], header[12], header[13]
    headers = [_SECTION.unpack_from(image, offset + i * size) for i in range(number)]
    for one in headers:
        # A section without bytes in the file, as shared memory, says where they would be.
        yield _text(image, headers[names][4] + one[0]), one, image[one[4] : one[4] + one[5]]


def _text(data: bytes, offset: int) -> str:
    return data[offset : data.index(b"\0", offset)].decode()


def _by_function(sections: Sections, attribute: int) -> dict[str, int]:
    """What an attribute says of each function."""
    symbols, strings = sections[_SYMBOLS][1], sections[_STRINGS][1]
    found = {}
    for value in _attributes(sections[_INFO][1], attribute):
        symbol, number = struct.unpack_from("<II", value)
        name = _SYMBOL.unpack_from(symbols, symbol * _SYMBOL.size)[0]
        found[_text(strings, name)] = number
    return found


def _threads(sections: Sections, kernel: str) -> int:
    """The largest block that a kernel says it is compiled for; 0 where it says nothing."""
    own = sections.get(f"{_INFO}.{kernel}")
    sizes = _attributes(own[1], _MOST_THREADS) if own else ()
    return max((prod(struct.unpack_from("<III", value)) for value in sizes), default=0)


def _attributes(info: bytes, wanted: int) -> Iterator[bytes]:
    """Values of those attributes of one kind that carry their length."""
    place = 0
    while place + _SIZED <= len(info):
        kind, attribute, length = struct.unpack_from("<BBH", info, place)
        place += _SIZED
        if kind == _SIZED:
            if attribute == wanted:
                yield info[place : place + length]
            place += length
