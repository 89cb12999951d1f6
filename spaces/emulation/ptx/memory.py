"""Loads, stores, atomics and fences (PTX ISA, "Data Movement and Conversion Instructions",
"Parallel Synchronization and Communication Instructions")."""

from __future__ import annotations

import re

from spaces.emulation.ptx.forms import (
    NOTHING,
    ORDER,
    SPACE,
    TYPE,
    TYPES,
    Operands,
    address,
    bits,
    form,
    set_to,
    vector,
)

_HOW = (
    r"(?:\.nc|\.volatile|\.weak|\.relaxed|\.acquire|\.release|\.cta|\.cluster|\.gpu|\.sys"
    r"|\.c[agvs]|\.w[bt]|\.L1::\w+|\.L2::(?:64|128|256)B)*"
)


def _place(found: re.Match[str], operand: str, count: int, *, constant: bool = False) -> str:
    space = "shared" if "shared" in (found["space"] or "") else "generic"
    kind = ("const " if constant else "") + TYPES[found["type"]]
    return f"emu::ptx::{space}_place<{kind}>({address(operand)}, {count}, __LINE__)"


def _load(found: re.Match[str], operands: Operands) -> str:
    targets = vector(operands[0])
    place = _place(found, operands[1], len(targets), constant=True)
    sets = " ".join(set_to(target, f"v_[{i}]") for i, target in enumerate(targets) if target != "_")
    return f"{{ const auto* v_ = {place}; {sets} }}"


def _store(found: re.Match[str], operands: Operands) -> str:
    values = vector(operands[1])
    place = _place(found, operands[0], len(values))
    sets = " ".join(f"v_[{i}] = {bits(found['type'], value)};" for i, value in enumerate(values))
    return f"{{ auto* v_ = {place}; {sets} }}"


def _atomic(found: re.Match[str], operands: Operands) -> str:
    target, where, *values = operands if found["name"] == "atom" else ("_", *operands)
    numbers = ", ".join(bits(found["type"], value) for value in values)
    name = {"cas": "CAS", "exch": "Exch"}.get(found["do"], found["do"].capitalize())
    return set_to(target, f"atomic{name}({_place(found, where, 1)}, {numbers})")


_FOLDS = "add|min|max|and|or|xor|exch|cas"
FORMS = (
    form(rf"ld{_HOW}{SPACE}{_HOW}(?:\.v[248])?{TYPE}", _load, 2),
    form(rf"st{_HOW}{SPACE}{_HOW}(?:\.v[248])?{TYPE}", _store, 2),
    form(rf"(?P<name>atom){ORDER}{SPACE}{ORDER}\.(?P<do>{_FOLDS}){TYPE}", _atomic, 3, 4),
    form(rf"(?P<name>red){ORDER}{SPACE}{ORDER}\.(?P<do>{_FOLDS}){TYPE}", _atomic, 2),
    form(
        r"fence\.proxy\.async(?:\.(?:global|shared::(?:cta|cluster)))?",
        "emu::ptx::proxy_fence();",
    ),
    form(r"fence\.mbarrier_init\.release\.cluster", "emu::ptx::mbarrier_init_fence();"),
    # Threads of a block take turns: what one wrote, the next one sees.
    form(
        r"fence(?:\.(?:sc|acq_rel|acquire|release))?(?:\.(?:cta|cluster|gpu|sys))?"
        r"|membar\.(?:cta|gl|sys)",
        NOTHING,
    ),
    form(r"prefetchu?\.\S+", NOTHING, 1),
)
