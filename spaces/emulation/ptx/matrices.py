"""Instructions on matrices (PTX ISA, "Warp Level Matrix Instructions", "Asynchronous Warpgroup
Level Matrix Instructions")."""

from __future__ import annotations

import re
from collections.abc import Sequence

from spaces.emulation.ptx.forms import Operands, address, flag, form, vector

_KINDS = "f16|bf16|tf32|f32|f64|s8|u8|s32|e4m3|e5m2"
_SHAPE = r"m(?P<m>\d+)n(?P<n>\d+)k(?P<k>\d+)"


def _move_matrices(found: re.Match[str], operands: Operands) -> str:
    """ldmatrix has its registers first, stmatrix its address."""
    loads = found["name"] == "ldmatrix"
    registers, where = operands if loads else reversed(operands)
    names = vector(registers)
    if len(names) != int(found["count"]):
        raise ValueError(f"{found[0]} with {len(names)} registers")
    places = ", ".join(f"&{name}" if loads else name for name in names)
    kind = "uint32_t*" if loads else "uint32_t"
    numbers = f"r_, {len(names)}, {flag(found['trans'])}, {address(where)}"
    return f"{{ {kind} r_[] = {{{places}}}; emu::ptx::{found['name']}({numbers}, __LINE__); }}"


def _product(found: re.Match[str], operands: Operands) -> str:
    d, *others = map(vector, operands)
    code = _places(d) + "".join(
        _words(name, values) for name, values in zip("abc", others, strict=True)
    )
    shape = f"emu::ptx::Shape{{{found['m']}, {found['n']}, {found['k']}}}"
    counts = ", ".join(str(len(values)) for values in (d, *others))
    arguments = f"{shape}, {_kinds(found, 'dabc')}, d_, a_, b_, c_, {counts}, __LINE__"
    return f"{{ {code}emu::ptx::mma({arguments}); }}"


def _warpgroup_product(found: re.Match[str], operands: Operands) -> str:
    d, a = vector(operands[0]), vector(operands[1])
    in_registers = operands[1].startswith("{")
    scales, turned = list(operands[3:6]), list(operands[6:])
    if in_registers and turned:  # only B is then in shared memory, and may be turned
        turned = ["0", *turned]
    scales[0] = f"static_cast<bool>({scales[0]})"
    flags = f"emu::ptx::Scales{{{', '.join([*scales, *(turned or ['0', '0'])])}}}"
    sizes = f"{found['n']}, {found['k']}, {_kinds(found, 'dab')}"
    arguments = f"d_, {len(d)}, a_, {len(a)}, {operands[2]}, {flags}, {flag(in_registers)}"
    return f"{{ {_places(d)}{_words('a', a)}emu::ptx::wgmma({sizes}, {arguments}, __LINE__); }}"


def _places(registers: Sequence[str]) -> str:
    return f"void* d_[] = {{{', '.join(f'&{name}' for name in registers)}}}; "


def _words(name: str, registers: Sequence[str]) -> str:
    values = ", ".join(f"emu::ptx::word({register})" for register in registers)
    return f"uint64_t {name}_[] = {{{values}}}; "


def _kinds(found: re.Match[str], names: str) -> str:
    return ", ".join(f"emu::ptx::Kind::k{found[name].capitalize()}" for name in names)


FORMS = (
    form(
        r"(?P<name>ldmatrix|stmatrix)\.sync\.aligned\.m8n8\.x(?P<count>[124])(?P<trans>\.trans)?"
        r"\.shared(?:::cta)?\.b16",
        _move_matrices,
        2,
    ),
    form(
        r"movmatrix\.sync\.aligned\.m8n8\.trans\.b16",
        "emu::ptx::set({0}, emu::ptx::movmatrix({1}, __LINE__));",
        2,
    ),
    form(
        rf"mma\.sync\.aligned\.{_SHAPE}\.row\.col\.(?P<d>{_KINDS})\.(?P<a>{_KINDS})"
        rf"\.(?P<b>{_KINDS})\.(?P<c>{_KINDS})",
        _product,
        4,
    ),
    form(
        rf"wgmma\.mma_async\.sync\.aligned\.{_SHAPE}\.(?P<d>f16|f32)\.(?P<a>f16|bf16)"
        r"\.(?P<b>f16|bf16)",
        _warpgroup_product,
        6,
        8,
    ),
    form(
        rf"wgmma\.mma_async\.sync\.aligned\.{_SHAPE}\.(?P<d>f32)\.(?P<a>tf32|e4m3|e5m2)"
        r"\.(?P<b>tf32|e4m3|e5m2)",
        _warpgroup_product,
        6,
    ),
    form(
        rf"wgmma\.mma_async\.sync\.aligned\.{_SHAPE}\.(?P<d>s32)\.(?P<a>s8|u8)\.(?P<b>s8|u8)",
        lambda found, operands: _warpgroup_product(found, [*operands, "1", "1"]),
        4,
    ),
    form(r"wgmma\.fence\.sync\.aligned", "emu::ptx::wgmma_fence(__LINE__);"),
    form(r"wgmma\.commit_group\.sync\.aligned", "emu::ptx::wgmma_commit(__LINE__);"),
    form(r"wgmma\.wait_group\.sync\.aligned", "emu::ptx::wgmma_wait({0}, __LINE__);", 1),
)
