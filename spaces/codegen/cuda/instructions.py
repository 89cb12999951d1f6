"""Instructions of a kernel, read from its machine code (SASS).

Since Volta an instruction has 16 bytes, whose lowest 9 bits tell what it does; a load or a store
has its width, and a jump its distance, in fixed places. NVIDIA documents none of this, and its
disassembler takes 0.24 to 0.54 s of a CPU for a kernel, half of what compiling it takes, so that no
build could afford it; this takes 1 ms (the median of 99 kernels; 8 at most). Tests compare both for
each architecture that is known here, instruction by instruction; of any other one nothing is read.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

KNOWN = frozenset({75, 80, 86, 87, 88, 89, 90, 100, 103, 110, 120, 121})
"""Architectures whose code is as described here."""
TENSOR = frozenset({"BMMA", "DMMA", "HGMMA", "HMMA", "IGMMA", "IMMA", "QMMA"})
"""Products of matrices on tensor cores; those with a G are a warpgroup's."""
MULTIPLY_ADD = frozenset({"DFMA", "FFMA", "FFMA2", "HFMA2", "IDP"})
"""Multiply-adds of each thread."""
JUMP, CALL, ENDS = "BRA", "CALL", frozenset({"BRX", "EXIT", "RET"})
"""A jump; what may come back, and stands for a jump where it does not; and what nothing known
follows, such as a jump by a table."""
CONTROL = ENDS | {JUMP, CALL}
"""What ends a run of instructions."""

_OPCODES = {
    0x023: "FFMA",
    0x026: "IDP",
    0x02B: "DFMA",
    0x031: "HFMA2",
    0x037: "IMMA",
    0x03B: "LDSM",
    0x03C: "HMMA",
    0x03D: "BMMA",
    0x03F: "DMMA",
    0x044: "STSM",
    0x049: "FFMA2",
    0x07A: "QMMA",
    0x108: "MUFU",
    0x11D: "BAR",
    0x144: CALL,
    0x147: JUMP,
    0x149: "BRX",
    0x14D: "EXIT",
    0x150: "RET",
    0x180: "LD",
    0x181: "LDG",
    0x183: "LDL",
    0x184: "LDS",
    0x185: "ST",
    0x186: "STG",
    0x187: "STL",
    0x188: "STS",
    0x189: "SHFL",
    0x1A7: "SYNCS",
    0x1AE: "LDGSTS",
    0x1B2: "SYNCS",
    0x1B4: "UTMALDG",
    0x1B5: "UTMASTG",
    0x1BA: "UBLKCP",
    0x1F0: "HGMMA",
    0x1F1: "IGMMA",
}
_EARLIER = {0x035: "HFMA2"}
"""What stands for something else from `_LATER_ADDS` on."""
KINDS = frozenset(_OPCODES.values())
"""The instructions that are told, without their widths."""
_SIZED = frozenset({"LD", "LDG", "LDL", "LDS", "ST", "STG", "STL", "STS"})
_MATRICES = frozenset({"LDSM", "STSM"})
_BITS = (8, 8, 16, 16, 32, 64, 128)
_COPIED = "LDGSTS"
_LATER_COPIES, _LATER_ADDS, _LATER_JUMPS = 100, 100, 90
"""Architectures from which on the width of LDGSTS, an addition, and the distance of a jump have
other places."""
_ZERO = 255
"""The register that is always zero: a multiply-add with it is how constants are loaded."""
_ALWAYS, _NEVER = 7, 15
"""The predicates of what runs in any case, and in none."""
_OPCODE = 0x1FF
_JUMPS = {code for code, name in _OPCODES.items() if name in (JUMP, CALL)}
_INSTRUCTION_BYTES, _WORD_BYTES = 16, 4


@dataclass(frozen=True, slots=True)
class Code:
    """The instructions of a kernel, in the order of the machine code.

    Attributes:
        names: as NVIDIA's disassembler spells them, with the bits that each thread moves where they
            are known, such as `LDG.128`; empty of those that say nothing here.
        conditional: whether a predicate decides whether it runs.
        targets: of a jump or a call, the number of the instruction that it goes to; else -1.
    """

    names: tuple[str, ...]
    conditional: tuple[bool, ...]
    targets: tuple[int, ...]


def read_code(text: bytes, architecture: int) -> Code | None:
    """The instructions of a kernel; None where the architecture is not known.

    Args:
        text: the kernel's section of a cubin.
        architecture: such as 90 for `sm_90a`.
    """
    if architecture not in KNOWN:
        return None
    whole = text[: len(text) // _INSTRUCTION_BYTES * _INSTRUCTION_BYTES]
    words = np.frombuffer(whole, "<u8").reshape(-1, 2).tolist()
    return Code(
        names=tuple(_name(low, high, architecture) for low, high in words),
        conditional=tuple(_is_conditional(low, high) for low, high in words),
        targets=tuple(_target(i, low, high, architecture) for i, (low, high) in enumerate(words)),
    )


def _name(low: int, high: int, architecture: int) -> str:
    name = _OPCODES.get(low & _OPCODE, "")
    if not name and architecture < _LATER_ADDS:
        name = _EARLIER.get(low & _OPCODE, "")
    if low >> 12 & 0xF == _NEVER or (name == "HFMA2" and low >> 24 & 0xFF == _ZERO):
        return ""
    bits, kind = 0, high >> 9 & 7
    if name in _SIZED and kind < len(_BITS):
        bits = _BITS[kind]
    elif name in _MATRICES:
        bits = 32 << (high >> 8 & 3)
    elif name == _COPIED:
        bits = 32 << (kind >> 1 if architecture >= _LATER_COPIES else kind - 4)
    return f"{name}.{bits}" if bits else name


def _is_conditional(low: int, high: int) -> bool:
    """A jump may have a second predicate, besides the one that each instruction has."""
    second = low & _OPCODE in _JUMPS and high >> 23 & 0xF != _ALWAYS
    return low >> 12 & 0xF != _ALWAYS or second


def _target(place: int, low: int, high: int, architecture: int) -> int:
    """Jumps say how many words behind the next instruction they go, in 48 bits; later ones have 8
    bits more, the lowest."""
    if low & _OPCODE not in _JUMPS:
        return -1
    words = low >> 34 | (high & 0x3FFFF) << 30
    words -= words >> 47 << 48
    if architecture >= _LATER_JUMPS:
        words = words << 8 | low >> 16 & 0xFF
    return place + 1 + words * _WORD_BYTES // _INSTRUCTION_BYTES
