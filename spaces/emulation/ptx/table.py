"""All instructions of PTX that the emulated device knows."""

from __future__ import annotations

from spaces.emulation.ptx import copies, matrices, memory, scalars, threads
from spaces.emulation.ptx.forms import Operands

_FORMS = (
    *scalars.FORMS,
    *memory.FORMS,
    *threads.FORMS,
    *matrices.FORMS,
    *copies.FORMS,
)


def statement(opcode: str, operands: Operands) -> str:
    """An instruction as a C++ statement.

    Args:
        opcode: its name with all modifiers.
        operands: as C++; `[a]` is an address, `{a, b}` a vector, `_` a result that is not wanted.

    Raises:
        ValueError: the emulated device does not know it; the text is its name.
    """
    for form in _FORMS:
        least, most = form.operands
        found = form.pattern.fullmatch(opcode)
        if found is not None and least <= len(operands) <= most:
            return form.made(found, operands)
    raise ValueError(
        f"the emulated device does not know the instruction {opcode} of {len(operands)} operands"
    )
