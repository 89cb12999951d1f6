"""Copies beside the threads (PTX ISA, "Data Movement and Conversion Instructions: Asynchronous
copy")."""

from __future__ import annotations

import re

from spaces.emulation.ptx.forms import HINT, SHARED, Operands, address, flag, form, parts, vector

_BULK = r"cp\.async\.bulk"
_ARRIVES = r"\.mbarrier::complete_tx::bytes"
_TENSOR = rf"{_BULK}\.tensor\.(?P<rank>[1-5])d"


def _copy(_found: re.Match[str], operands: Operands) -> str:
    """The last operand, the bytes to read, may be left out: all of them."""
    to, source, size, *rest = operands
    numbers = f"{address(to)}, {address(source)}, {size}, {rest[0] if rest else size}"
    return f"emu::ptx::copy_async({numbers}, __LINE__);"


def _tile(found: re.Match[str], operand: str, code: str) -> str:
    """A call with the tensor map and the coordinates in brackets."""
    tensor, coordinates = parts(operand[1:-1])
    numbers = ", ".join(f"static_cast<int32_t>({c})" for c in vector(coordinates))
    return f"{{ const int32_t c_[] = {{{numbers}}}; {code.format(tensor, found['rank'])} }}"


def _load_tile(found: re.Match[str], operands: Operands) -> str:
    to, mbarrier = address(operands[0]), address(operands[2])
    code = f"emu::ptx::load_tile({to}, {{0}}, c_, {{1}}, {mbarrier}, __LINE__);"
    return _tile(found, operands[1], code)


def _load_tile_multicast(found: re.Match[str], operands: Operands) -> str:
    to, mbarrier, mask = address(operands[0]), address(operands[2]), operands[3]
    call = f"load_tile_multicast({to}, {{0}}, c_, {{1}}, {mbarrier}, {mask}, __LINE__)"
    return _tile(found, operands[1], f"emu::ptx::{call};")


def _store_tile(found: re.Match[str], operands: Operands) -> str:
    code = f"emu::ptx::store_tile({{0}}, c_, {{1}}, {address(operands[1])}, __LINE__);"
    return _tile(found, operands[0], code)


def _arrive(found: re.Match[str], operands: Operands) -> str:
    counts = flag(not found["noinc"])
    return f"emu::ptx::arrive_after_copies({address(operands[0])}, {counts}, __LINE__);"


FORMS = (
    form(
        r"cp\.async\.c[ag]\.shared(?:::cta)?\.global(?:\.L2::(?:64|128|256)B)?",
        _copy,
        3,
        4,
    ),
    form(r"cp\.async\.commit_group", "emu::ptx::commit_copies();"),
    form(r"cp\.async\.wait_group", "emu::ptx::wait_copies({0});", 1),
    form(r"cp\.async\.wait_all", "emu::ptx::commit_copies(); emu::ptx::wait_copies(0);"),
    form(rf"cp\.async\.mbarrier\.arrive(?P<noinc>\.noinc)?{SHARED}\.b64", _arrive, 1),
    form(
        rf"{_TENSOR}\.shared::(?:cluster|cta)\.global(?:\.tile)?{_ARRIVES}{HINT}",
        _load_tile,
        3,
        4,
    ),
    form(
        rf"{_TENSOR}\.shared::cluster\.global(?:\.tile)?{_ARRIVES}\.multicast::cluster{HINT}",
        _load_tile_multicast,
        4,
        5,
    ),
    form(
        rf"{_TENSOR}\.global\.shared::cta(?:\.tile)?\.bulk_group{HINT}",
        _store_tile,
        2,
        3,
    ),
    form(
        rf"{_BULK}\.shared::(?:cluster|cta)\.global{_ARRIVES}{HINT}",
        "emu::ptx::load_bulk({a[0]}, {a[1]}, {2}, {a[3]}, __LINE__);",
        4,
        5,
    ),
    form(
        rf"{_BULK}\.global\.shared::cta\.bulk_group{HINT}",
        "emu::ptx::store_bulk({a[0]}, {a[1]}, {2}, __LINE__);",
        3,
        4,
    ),
    form(rf"{_BULK}\.commit_group", "emu::ptx::commit_bulk();"),
    form(rf"{_BULK}\.wait_group(?:\.read)?", "emu::ptx::wait_bulk({0});", 1),
)
