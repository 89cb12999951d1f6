"""What compiled CUDA kernels use, read from their machine code.

nvcc leaves that in the ELF file of a cubin: registers in the header of each kernel's code, shared
memory as a section of its own, and the stack, where spilled registers lie, among attributes.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

_MAGIC = b"\x7fELF"
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
_REGISTERS_BIT = 24
_SIZED, _FRAME_SIZE = 4, 0x11
"""An attribute that carries its length, and the one that is a function's stack."""


@dataclass(frozen=True, slots=True)
class KernelUse:
    """Resources of one kernel.

    Attributes:
        registers: of each thread.
        shared_bytes: of a block, as declared.
        stack_bytes: of each thread, in slow memory: spilled registers, and arrays that did not
            become registers.
    """

    registers: int
    shared_bytes: int
    stack_bytes: int


def kernel_uses(binary: bytes) -> dict[str, KernelUse]:
    """Resources by kernel of a cubin, or of a fatbin with one that is not compressed.

    Raises:
        ValueError: there is no cubin in it.
    """
    start = binary.find(_MAGIC)
    if start < 0:
        raise ValueError("no cubin, or a compressed one")
    image = binary[start:]
    sections = {name: (header, data) for name, header, data in _sections(image)}
    stacks = _stacks(sections)
    found = {}
    for name, (header, _) in sections.items():
        if not name.startswith(_TEXT):
            continue
        kernel = name.removeprefix(_TEXT)
        shared = sections.get(_SHARED + kernel)
        found[kernel] = KernelUse(
            registers=header[7] >> _REGISTERS_BIT,
            shared_bytes=shared[0][5] if shared else 0,
            stack_bytes=stacks.get(kernel, 0),
        )
    return found


def _sections(image: bytes) -> Iterator[tuple[str, tuple[int, ...], bytes]]:
    header = _HEADER.unpack_from(image)
    offset, size, number, names = header[6], header[11], header[12], header[13]
    headers = [_SECTION.unpack_from(image, offset + i * size) for i in range(number)]
    for one in headers:
        # A section without bytes in the file, as shared memory, says where they would be.
        yield _text(image, headers[names][4] + one[0]), one, image[one[4] : one[4] + one[5]]


def _text(data: bytes, offset: int) -> str:
    return data[offset : data.index(b"\0", offset)].decode()


def _stacks(sections: dict[str, tuple[tuple[int, ...], bytes]]) -> dict[str, int]:
    """Bytes of stack by function."""
    info, symbols = sections[_INFO][1], sections[_SYMBOLS][1]
    strings = sections[_STRINGS][1]
    found, place = {}, 0
    while place + _SIZED <= len(info):
        kind, attribute, length = struct.unpack_from("<BBH", info, place)
        place += _SIZED
        if kind != _SIZED:
            continue
        if attribute == _FRAME_SIZE:
            symbol, frame = struct.unpack_from("<II", info, place)
            name = _SYMBOL.unpack_from(symbols, symbol * _SYMBOL.size)[0]
            found[_text(strings, name)] = frame
        place += length
    return found
