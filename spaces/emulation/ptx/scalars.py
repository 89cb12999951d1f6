"""Instructions on numbers in registers, and jumps (PTX ISA, "Integer Arithmetic", "Floating-Point",
"Comparison and Selection", "Logic and Shift", "Data Movement and Conversion", "Control Flow")."""

from __future__ import annotations

import re

from spaces.emulation.ptx.forms import (
    NOTHING,
    ROUND,
    TYPE,
    TYPES,
    Operands,
    bits,
    flag,
    form,
    pair,
    set_to,
    vector,
)

SPECIAL_REGISTERS = {
    "laneid": "emu::now->lane",
    "warpid": "emu::now->warp",
    **{f"tid.{d}": f"emu::now->index.{d}" for d in "xyz"},
    **{f"ntid.{d}": f"emu::block_extent.{d}" for d in "xyz"},
    **{f"ctaid.{d}": f"emu::block_index.{d}" for d in "xyz"},
    **{f"nctaid.{d}": f"emu::grid_extent.{d}" for d in "xyz"},
    "cluster_ctarank": "emu::here",
    "cluster_nctarank": "emu::cluster_blocks",
    **{f"cluster_ctaid.{d}": f"emu::ptx::number_in_cluster({i})" for i, d in enumerate("xyz")},
    **{f"cluster_nctaid.{d}": f"emu::cluster_extent.{d}" for d in "xyz"},
    **{f"clusterid.{d}": f"(emu::block_index.{d} / emu::cluster_extent.{d})" for d in "xyz"},
    **{f"nclusterid.{d}": f"(emu::grid_extent.{d} / emu::cluster_extent.{d})" for d in "xyz"},
    "lanemask_lt": "((1u << emu::now->lane) - 1)",
    "lanemask_le": "(~0u >> (31 - emu::now->lane))",
    "lanemask_eq": "(1u << emu::now->lane)",
    "lanemask_ge": "(~0u << emu::now->lane)",
    "lanemask_gt": "(~0u << emu::now->lane << 1)",
}
"""Values of special registers (PTX ISA, "Special Registers")."""

_COMPARE = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
_COMPARE |= {"lo": "<", "ls": "<=", "hi": ">", "hs": ">="}
_BINARY = {"add": "+", "sub": "-", "mul": "*", "mul.lo": "*", "and": "&", "or": "|", "xor": "^"}
_BINARY |= {"div": "/", "rem": "%"}
_NARROW = {"f16": "emu::Fp16", "bf16": "emu::Bf16"}
_OPERATORS = r"add|sub|mul\.lo|mul|and|or|xor|div|rem"


def _move(_found: re.Match[str], operands: Operands) -> str:
    target, value = operands
    if target.startswith("{"):
        return f"emu::ptx::unpack({value}, {', '.join(vector(target))});"
    if value.startswith("{"):
        return f"emu::ptx::pack({target}, {', '.join(vector(value))});"
    return set_to(target, value)


def _compare(found: re.Match[str], operands: Operands) -> str:
    first, second = pair(operands[0])
    a, b = (bits(found["type"], operand) for operand in operands[1:])
    other = f"{second} = !t_; " if second else ""
    return f"{{ bool t_ = {a} {_COMPARE[found['compare']]} {b}; {first} = t_; {other}}}"


def _select(found: re.Match[str], operands: Operands) -> str:
    a, b = (bits(found["type"], operand) for operand in operands[1:3])
    return set_to(operands[0], f"{operands[3]} ? {a} : {b}")


def _binary(found: re.Match[str], operands: Operands) -> str:
    target, a, b = operands
    sign, kind = _BINARY[found["name"]], found["type"]
    if kind == "pred":
        return f"{target} = {a} {sign} {b};"
    return set_to(target, f"static_cast<{TYPES[kind]}>({bits(kind, a)} {sign} {bits(kind, b)})")


def _shift(found: re.Match[str], operands: Operands) -> str:
    value = bits(found["type"], operands[1])
    by = f"static_cast<uint32_t>({operands[2]})"
    return set_to(operands[0], f"emu::ptx::{found['name']}({value}, {by})")


def _fuse(found: re.Match[str], operands: Operands) -> str:
    values = ", ".join(bits(found["type"], operand) for operand in operands[1:])
    return set_to(operands[0], f"emu::ptx::fused({values})")


def _dot(found: re.Match[str], operands: Operands) -> str:
    signs = f"{flag(found['a'] == 's')}, {flag(found['b'] == 's')}"
    return set_to(operands[0], f"emu::ptx::dp4a<{signs}>({', '.join(operands[1:])})")


def _convert(found: re.Match[str], operands: Operands) -> str:
    return set_to(
        operands[0], f"static_cast<{TYPES[found['to']]}>({bits(found['type'], operands[1])})"
    )


_LESS_EXACT = r"(?:\.approx)?(?:\.ftz)?"
FORMS = (
    form(r"mov\.(?:pred|[busf]\d+)", _move, 2),
    form(rf"setp\.(?P<compare>\w\w){TYPE}", _compare, 3),
    form(rf"selp{TYPE}", _select, 4),
    form(rf"(?P<name>{_OPERATORS}){ROUND}(?:\.full|\.approx)?(?:\.ftz)?{TYPE}", _binary, 3),
    form(rf"(?P<name>shl|shr){TYPE}", _shift, 3),
    form(rf"(?:mad\.lo|fma|mad){ROUND}{TYPE}", _fuse, 4),
    form(r"not\.pred", "{0} = !{1};", 2),
    form(rf"not{TYPE}", "emu::ptx::set({0}, ~emu::ptx::bits<{t}>({1}));", 2),
    form(rf"neg(?:\.ftz)?{TYPE}", "emu::ptx::set({0}, -emu::ptx::bits<{t}>({1}));", 2),
    form(
        rf"(?P<name>min|max)(?:\.ftz)?{TYPE}",
        "emu::ptx::set({0}, {name}(emu::ptx::bits<{t}>({1}), emu::ptx::bits<{t}>({2})));",
        3,
    ),
    form(rf"ex2{_LESS_EXACT}\.f32", "emu::ptx::set({0}, ::exp2f({1}));", 2),
    form(rf"lg2{_LESS_EXACT}\.f32", "emu::ptx::set({0}, ::log2f({1}));", 2),
    form(r"tanh\.approx\.f32", "emu::ptx::set({0}, ::tanhf({1}));", 2),
    form(rf"rcp{ROUND}{_LESS_EXACT}\.f32", "emu::ptx::set({0}, 1.0f / ({1}));", 2),
    form(rf"sqrt{ROUND}{_LESS_EXACT}\.f32", "emu::ptx::set({0}, ::sqrtf({1}));", 2),
    form(rf"rsqrt{_LESS_EXACT}\.f32", "emu::ptx::set({0}, rsqrtf({1}));", 2),
    form(r"dp4a\.(?P<a>[us])32\.(?P<b>[us])32", _dot, 4),
    form(r"cvt\.(?P<to>[us](?:8|16|32|64))\.(?P<type>[us](?:8|16|32|64))", _convert, 2),
    form(r"cvt\.rna\.tf32\.f32", "emu::ptx::set({0}, emu::ptx::tf32({1}));", 2),
    form(
        r"cvt\.r(?P<way>[nz])\.(?P<kind>f16|bf16)x2\.f32",
        lambda found, o: set_to(
            o[0],
            f"emu::ptx::narrow_pair<{_NARROW[found['kind']]}, {flag(found['way'] == 'n')}>"
            f"({o[1]}, {o[2]})",
        ),
        3,
    ),
    form(
        r"cvt\.rn\.f16x2\.(?P<kind>e4m3|e5m2)x2",
        lambda found, o: set_to(o[0], f"emu::halves_of<emu::{found['kind'].capitalize()}>({o[1]})"),
        2,
    ),
    form(
        r"cvt\.rn\.(?P<kind>f16|bf16)\.f32",
        lambda found, o: set_to(o[0], f"{_NARROW[found['kind']]}::narrowed({o[1]})"),
        2,
    ),
    form(
        r"cvt\.f32\.(?P<kind>f16|bf16)",
        lambda found, o: set_to(o[0], f"{_NARROW[found['kind']]}::widened({o[1]})"),
        2,
    ),
    form(r"prmt\.b32", "emu::ptx::set({0}, emu_bytes({1}, {2}, {3}));", 4),
    form(rf"sin{_LESS_EXACT}\.f32", "emu::ptx::set({0}, ::sinf({1}));", 2),
    form(rf"cos{_LESS_EXACT}\.f32", "emu::ptx::set({0}, ::cosf({1}));", 2),
    form(r"cvta\.to\.shared\.u64", "emu::ptx::set({0}, emu::ptx::shared_of({1}));", 2),
    form(r"cvta\.shared\.u64", "emu::ptx::set({0}, emu::ptx::generic_of({1}));", 2),
    form(r"cvta(?:\.to)?\.global\.u64", "emu::ptx::set({0}, {1});", 2),
    form(r"bra(?:\.uni)?", "goto {0};", 1),
    form(r"nanosleep\.u32", 'emu::yield("nanosleep", __LINE__);', 1),
    form(r"trap", "__builtin_trap();"),
    form(r"griddepcontrol\.(?:wait|launch_dependents)", NOTHING),
)
