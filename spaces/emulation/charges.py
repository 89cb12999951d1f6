"""What the statements of a kernel cost, written into it: the model of time adds it up.

A kernel's text is read line by line, as TVM writes it. What a line does to memory and to floats is
counted; loops of known length multiply it; a loop of another length, and each branch, begins with a
statement that charges for its own lines. Lines that cannot be read cost nothing.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

_BYTES = {"half": 2, "nv_bfloat16": 2, "float": 4, "double": 8, "int": 4, "uint": 4, "int64_t": 8}
_BYTES |= {"signed char": 1, "int8_t": 1, "uchar": 1, "uint8_t": 1, "short": 2, "bool": 1}
_LOOP = re.compile(r"for \(\w+ (\w+) = (?:\(\w+\))?0; \1 < (?:\(\w+\))?(\d+); \+\+\1\) \{$")
_PARAMETER = re.compile(r"(?:const )?([\w ]+?)\s*\*\s*(?:__restrict__)?\s*(\w+)$")
_ACCESS = re.compile(r"(?:\*\(([\w ]+?)\*\)\(\(?(?:\([\w ]+\*\))?)?\b(\w+_ptr)\b\)?(?=\[| \+)")
_VECTOR = re.compile(r"([a-z_]+?\d*?)([1234])$")
_SLOW = re.compile(r"\b(?:__)?(?:exp|log|tanh|pow|erf|sqrt|rsqrt|sin|cos)\w*\(")
_SLOW_COST = 8


@dataclass(slots=True)
class Work:
    """What a thread does.

    Attributes:
        operations: on floats, a multiply-add being two.
        global_bytes: read from and written to global memory; `shared_bytes` to shared memory.
    """

    operations: int = 0
    global_bytes: int = 0
    shared_bytes: int = 0

    def add(self, other: Work, times: int = 1) -> None:
        """Add another's, some times."""
        self.operations += other.operations * times
        self.global_bytes += other.global_bytes * times
        self.shared_bytes += other.shared_bytes * times

    def __bool__(self) -> bool:
        return bool(self.operations or self.global_bytes or self.shared_bytes)


@dataclass(slots=True)
class _Block:
    """Lines between brackets: the line that opens them, and how often they run each time that the
    lines around them do; None where that is not known."""

    opening: int
    times: int | None
    work: Work = field(default_factory=Work)


def charge(kernel: str, parameters: str) -> str:
    """A kernel's text, from its opening bracket on, with its charges.

    Args:
        parameters: of the kernel, as they are declared.
    """
    sizes = dict(filter(None, map(_pointer, parameters.split(","))))
    lines = kernel.split("\n")
    charges: dict[int, Work] = {}
    open_blocks: list[_Block] = []
    for number, line in enumerate(lines):
        text = line.strip()
        if text.startswith("}"):
            if not open_blocks:
                break
            _close(open_blocks.pop(), open_blocks, charges)
        if text.endswith("{"):
            loop = _LOOP.search(text)
            open_blocks.append(_Block(number, int(loop[2]) if loop else None))
        elif open_blocks and "=" in text:
            open_blocks[-1].work.add(_cost(text, sizes))
    for number, work in charges.items():
        numbers = f"{work.operations}, {work.global_bytes}, {work.shared_bytes}"
        lines[number] += f" emu::charge({numbers});"
    return "\n".join(lines)


def _close(block: _Block, around: Sequence[_Block], charges: dict[int, Work]) -> None:
    if block.times is not None and around:
        around[-1].work.add(block.work, block.times)
    elif block.work:
        charges[block.opening] = block.work


def _pointer(parameter: str) -> tuple[str, int] | None:
    found = _PARAMETER.search(parameter.strip())
    return (found[2], _bytes(found[1])) if found else None


def _bytes(kind: str) -> int:
    """The size of a type, in bytes; 4 of one that is not known."""
    kind = kind.strip()
    if kind in _BYTES:
        return _BYTES[kind]
    vector = _VECTOR.match(kind)
    return _bytes(vector[1]) * int(vector[2]) if vector and vector[1] != kind else 4


def _cost(line: str, sizes: dict[str, int]) -> Work:
    work = Work()
    for found in _ACCESS.finditer(line):
        kind, name = found[1], found[2]
        if name in sizes:
            work.global_bytes += _bytes(kind) if kind else sizes[name]
        elif "shared" in name or "shmem" in name or "pool" in name:
            work.shared_bytes += _bytes(kind) if kind else 4
    plain = _without_places(line.partition("=")[2])
    work.operations = len(re.findall(r" [-+*/] ", plain)) if "_ptr" in line else 0
    work.operations += _SLOW_COST * len(_SLOW.findall(plain))
    return work


def _without_places(expression: str) -> str:
    """An expression without what is between square brackets, and behind pointers."""
    kept, depth = [], 0
    for piece in re.split(r"([\[\]])", re.sub(r"_ptr \+ .*", "", expression)):
        depth += (piece == "[") - (piece == "]")
        if depth == 0 and piece != "]":
            kept.append(piece)
    return "".join(kept)
