"""What a kernel is busy with: the instructions of its innermost loop, as compiled."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from spaces.codegen.cuda.instructions import CONTROL, MULTIPLY_ADD, TENSOR, Code, read_code
from spaces.codegen.cuda.loops import find_loops

_MEMORY = frozenset({"LD", "LDG", "LDGSTS", "ST", "STG"})
_WORK = (TENSOR, MULTIPLY_ADD, _MEMORY)
"""What loops are chosen by: the first of these that is in any loop."""


@dataclass(frozen=True, slots=True)
class Mix:
    """Instructions of the loop in which a kernel does its work, each counted once.

    Attributes:
        in_loop: whether that is a loop; False where no loop has work, and this is of all the
            kernel.
        instructions: number of instructions.
        counts: of those that tell most, by their names: products of tensor cores, multiply-adds,
            loads, stores and copies with the bits that a thread moves by each, barriers.
    """

    in_loop: bool
    instructions: int
    counts: Mapping[str, int]

    def share(self, kinds: Collection[str]) -> float:
        """The share of the instructions that some kinds have; a width belongs to no kind."""
        return self.count(kinds) / max(self.instructions, 1)

    def count(self, kinds: Collection[str]) -> int:
        """The number of instructions of some kinds, of any width."""
        return sum(n for name, n in self.counts.items() if name.partition(".")[0] in kinds)


def read_mix(text: bytes, architecture: int) -> Mix | None:
    """The mix of a kernel; None where its machine code is not known.

    The innermost loop is the one that has most work which is in no loop inside it: tensor cores'
    products; where no loop has any, multiply-adds; where none has these, accesses to the device's
    memory.

    Args:
        text: the kernel's section of a cubin.
        architecture: such as 90 for `sm_90a`.
    """
    code = read_code(text, architecture)
    if code is None:
        return None
    loops = sorted(find_loops(code), key=len)
    for work in _WORK:
        own = [_count_own(code, loop, loops, work) for loop in loops]
        if most := max(own, default=0):
            return _mix(code, loops[own.index(most)], in_loop=True)
    return _mix(code, range(len(code.names)), in_loop=False)


def _count_own(
    code: Code, loop: frozenset[int], loops: Iterable[frozenset[int]], work: frozenset[str]
) -> int:
    """Instructions of a kind of work that a loop has, and no loop inside it."""
    inside = frozenset().union(*(other for other in loops if other < loop))
    return sum(code.names[i].partition(".")[0] in work for i in loop - inside)


def _mix(code: Code, places: Collection[int], *, in_loop: bool) -> Mix:
    names = Counter(code.names[i] for i in places)
    told = {name: n for name, n in sorted(names.items()) if name and name not in CONTROL}
    return Mix(in_loop, len(places), told)
