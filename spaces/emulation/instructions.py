"""The instructions of PTX that the emulated device knows, each as C++.

What an instruction does is in the C++ functions; here are its forms. One that is not here, or has a
modifier that is not here, is refused by its name.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

Operands = Sequence[str]
Made = Callable[[re.Match[str], Operands], str]

SPECIAL_REGISTERS = {
    "laneid": "emu::now->lane",
    "warpid": "emu::now->warp",
    **{f"tid.{d}": f"emu::now->index.{d}" for d in "xyz"},
    **{f"ntid.{d}": f"emu::block_extent.{d}" for d in "xyz"},
    **{f"ctaid.{d}": f"emu::block_index.{d}" for d in "xyz"},
    **{f"nctaid.{d}": f"emu::grid_extent.{d}" for d in "xyz"},
    "cluster_ctarank": "0",
    "cluster_nctarank": "1",
    "lanemask_lt": "((1u << emu::now->lane) - 1)",
    "lanemask_le": "(~0u >> (31 - emu::now->lane))",
    "lanemask_eq": "(1u << emu::now->lane)",
}
"""Values of special registers (PTX ISA, "Special Registers"); a block is a cluster of its own."""

_TYPES = {
    **{f"{letter}{bits}": f"uint{bits}_t" for letter in "bu" for bits in (8, 16, 32, 64)},
    **{f"s{bits}": f"int{bits}_t" for bits in (8, 16, 32, 64)},
    "f32": "float",
    "f64": "double",
    "pred": "bool",
}
_TYPE = r"\.(?P<type>[busf]\d+|pred)"
_COMPARE = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
_COMPARE |= {"lo": "<", "ls": "<=", "hi": ">", "hs": ">="}
_BINARY = {"add": "+", "sub": "-", "mul": "*", "mul.lo": "*", "and": "&", "or": "|", "xor": "^"}
_BINARY |= {"shl": "<<", "shr": ">>", "div": "/", "rem": "%"}
_SEMANTICS = r"(?:\.(?:relaxed|release|acquire|acq_rel))?(?:\.(?:cta|cluster|gpu|sys))?"
_SHARED = r"(?:\.shared(?:::cta|::cluster)?)?"
_CACHE = r"(?:\.L1::\w+|\.L2::(?:64|128|256)B|\.nc|\.volatile|\.relaxed|\.acquire|\.release|\.cta|\.gpu|\.sys|\.weak)*"


def statement(opcode: str, operands: Operands) -> str:
    """An instruction as a C++ statement.

    Args:
        operands: as C++; `[a]` is an address, `{a, b}` a vector, `_` a result that is not wanted.

    Raises:
        ValueError: the emulated device does not know it; the text is its name.
    """
    for pattern, made in _FORMS:
        if found := pattern.fullmatch(opcode):
            try:
                return made(found, operands)
            except (IndexError, KeyError) as error:
                raise ValueError(f"the emulated device does not know {opcode} with {len(operands)} operands") from error
    raise ValueError(f"the emulated device does not know the instruction {opcode}")


def _inner(bracketed: str) -> list[str]:
    """What stands in `[...]` or `{...}`, by commas outside of brackets."""
    parts, depth, current = [], 0, ""
    for character in bracketed[1:-1]:
        depth += (character in "[{(") - (character in "]})")
        if character == "," and depth == 0:
            parts.append(current.strip())
            current = ""
        else:
            current += character
    return [*parts, current.strip()] if current.strip() else parts


def _address(operand: str) -> str:
    return _inner(operand)[0] if operand.startswith("[") else operand


def _vector(operand: str) -> list[str]:
    return _inner(operand) if operand.startswith("{") else [operand]


def _call(name: str, *arguments: str | int) -> str:
    return f"emu::ptx::{name}({', '.join(map(str, arguments))});"


def _with_line(name: str, *arguments: str | int) -> str:
    return _call(name, *arguments, "__LINE__")


def _bits(kind: str, value: str) -> str:
    return f"emu::ptx::bits<{_TYPES[kind]}>({value})"


def _assign(target: str, kind: str, value: str) -> str:
    return "" if target == "_" else f"emu::ptx::set({target}, static_cast<{_TYPES[kind]}>({value}));"


def _move(found: re.Match[str], operands: Operands) -> str:
    target, value = operands
    if target.startswith("{") or value.startswith("{"):
        parts = _vector(target) if target.startswith("{") else _vector(value)
        whole, name = (value, "unpack") if target.startswith("{") else (target, "pack")
        return _call(name, whole, *parts)
    return f"emu::ptx::set({target}, {value});"


def _compare(found: re.Match[str], operands: Operands) -> str:
    target, a, b = operands[:3]
    kind = found["type"]
    test = f"{_bits(kind, a)} {_COMPARE[found['compare']]} {_bits(kind, b)}"
    first, _, second = target.partition("|")
    code = f"{{ bool t_ = {test}; {first} = t_; "
    return code + (f"{second} = !t_; }}" if second else "}")


def _binary(found: re.Match[str], operands: Operands) -> str:
    target, a, b = operands
    kind = found["type"]
    if found["name"] in ("shl", "shr"):
        return _assign(target, kind, f"emu::ptx::{found['name']}({_bits(kind, a)}, static_cast<uint32_t>({b}))")
    if kind == "pred":
        return f"{target} = {a} {_BINARY[found['name']]} {b};"
    return _assign(target, kind, f"{_bits(kind, a)} {_BINARY[found['name']]} {_bits(kind, b)}")


def _unary_float(function: str) -> Made:
    return lambda found, o: f"emu::ptx::set({o[0]}, {function}({_bits(found['type'], o[1])}));"


def _load(found: re.Match[str], operands: Operands) -> str:
    kind = _TYPES[found["type"]]
    targets, address = _vector(operands[0]), _address(operands[1])
    space = "shared" if "shared" in (found["space"] or "") else "generic"
    count = len(targets)
    code = f"{{ const auto* v_ = emu::ptx::{space}_place<const {kind}>({address}, {count}, __LINE__); "
    return code + " ".join(f"emu::ptx::set({t}, v_[{i}]);" for i, t in enumerate(targets) if t != "_") + " }"


def _store(found: re.Match[str], operands: Operands) -> str:
    kind = _TYPES[found["type"]]
    address, values = _address(operands[0]), _vector(operands[1])
    space = "shared" if "shared" in (found["space"] or "") else "generic"
    code = f"{{ auto* v_ = emu::ptx::{space}_place<{kind}>({address}, {len(values)}, __LINE__); "
    return code + " ".join(f"v_[{i}] = {_bits(found['type'], v)};" for i, v in enumerate(values)) + " }"


def _atomic(found: re.Match[str], operands: Operands) -> str:
    has_result = found["name"] == "atom"
    target, address, value = operands if has_result else ("_", *operands)
    space = "shared" if "shared" in (found["space"] or "") else "generic"
    kind, name = found["type"], found["do"].capitalize()
    place = f"emu::ptx::{space}_place<{_TYPES[kind]}>({_address(address)}, 1, __LINE__)"
    call = f"atomic{name}({place}, {_bits(kind, value)})"
    return f"{call};" if target == "_" else f"emu::ptx::set({target}, {call});"


def _matrices(found: re.Match[str], operands: Operands) -> str:
    loads = found["name"] == "ldmatrix"
    registers, address = (operands[0], operands[1]) if loads else (operands[1], operands[0])
    turned = "true" if found["trans"] else "false"
    values = ", ".join(_vector(registers))
    if len(_vector(registers)) != int(found["count"]):
        raise IndexError
    if loads:
        pointers = ", ".join(f"&{v}" for v in _vector(registers))
        return f"{{ uint32_t* r_[] = {{{pointers}}}; {_with_line('ldmatrix', 'r_', found['count'], turned, _address(address))} }}"
    return f"{{ uint32_t r_[] = {{{values}}}; {_with_line('stmatrix', 'r_', found['count'], turned, _address(address))} }}"


def _product(found: re.Match[str], operands: Operands) -> str:
    d, a, b, c = map(_vector, operands)
    shape = f"emu::ptx::Shape{{{found['m']}, {found['n']}, {found['k']}}}"
    kinds = [f"emu::ptx::Kind::k{found[name].capitalize()}" for name in ("d", "a", "b", "c")]
    code = f"void* d_[] = {{{', '.join(f'&{x}' for x in d)}}}; "
    for name, values in (("a", a), ("b", b), ("c", c)):
        words = ", ".join(f"emu::ptx::word({v})" for v in values)
        code += f"uint64_t {name}_[] = {{{words}}}; "
    counts = f"{len(d)}, {len(a)}, {len(b)}, {len(c)}"
    return f"{{ {code}emu::ptx::mma({shape}, {', '.join(kinds)}, d_, a_, b_, c_, {counts}, __LINE__); }}"


def _warpgroup_product(found: re.Match[str], operands: Operands) -> str:
    d = _vector(operands[0])
    pointers = ", ".join(f"&{x}" for x in d)
    kinds = [f"emu::ptx::Kind::k{found[name].capitalize()}" for name in ("d", "a", "b")]
    a = _vector(operands[1])
    from_registers = operands[1].startswith("{")
    immediates = list(operands[3:])
    scale_d, scale_a, scale_b = immediates[:3]
    turned = immediates[3:]
    turned_a, turned_b = ("0", turned[-1]) if from_registers and turned else (turned or ["0", "0"])
    words = ", ".join(f"emu::ptx::word({v})" for v in a)
    arguments = f"{found['n']}, {found['k']}, {', '.join(kinds)}, d_, {len(d)}, a_, {len(a)}, {operands[2]}"
    flags = f"emu::ptx::Scales{{static_cast<bool>({scale_d}), {scale_a}, {scale_b}, {turned_a}, {turned_b}}}"
    return (
        f"{{ void* d_[] = {{{pointers}}}; uint64_t a_[] = {{{words}}}; "
        f"emu::ptx::wgmma({arguments}, {flags}, {str(from_registers).lower()}, __LINE__); }}"
    )


def _copy_async(found: re.Match[str], operands: Operands) -> str:
    size = operands[2]
    rest = operands[3] if len(operands) > 3 and not found["hint"] else size
    return _with_line("copy_async", _address(operands[0]), _address(operands[1]), size, rest)


def _bulk_load(found: re.Match[str], operands: Operands) -> str:
    tensor, coordinates = _inner(operands[1])
    numbers = ", ".join(f"static_cast<int32_t>({c})" for c in _vector(coordinates))
    return (
        f"{{ const int32_t c_[] = {{{numbers}}}; "
        f"{_with_line('load_tile', _address(operands[0]), tensor, 'c_', found['rank'], _address(operands[2]))} }}"
    )


def _bulk_store(found: re.Match[str], operands: Operands) -> str:
    tensor, coordinates = _inner(operands[0])
    numbers = ", ".join(f"static_cast<int32_t>({c})" for c in _vector(coordinates))
    return (
        f"{{ const int32_t c_[] = {{{numbers}}}; "
        f"{_with_line('store_tile', tensor, 'c_', found['rank'], _address(operands[1]))} }}"
    )


def _arrive(found: re.Match[str], operands: Operands) -> str:
    state, address = operands[0], _address(operands[1])
    extra = operands[2] if len(operands) > 2 else ("0" if found["expect"] else "1")
    count, expected = ("1", extra) if found["expect"] else (extra, "0")
    drop = str(bool(found["drop"])).lower()
    call = f"emu::ptx::mbarrier_arrive({address}, {count}, {expected}, {drop}, __LINE__)"
    return f"{call};" if state == "_" else f"emu::ptx::set({state}, {call});"


def _wait(found: re.Match[str], operands: Operands) -> str:
    target, address, state = operands[0], _address(operands[1]), operands[2]
    parity, blocks = (str(bool(found[n])).lower() for n in ("parity", "try"))
    return f"{target} = emu::ptx::mbarrier_wait({address}, {state}, {parity}, {blocks}, __LINE__);"


def _shuffle(found: re.Match[str], operands: Operands) -> str:
    target, _, inside = operands[0].partition("|")
    code = f"emu::ptx::shuffle(emu::Shuffle::k{_SHUFFLES[found['kind']]}, {', '.join(operands[1:])}, __LINE__)"
    if not inside:
        return f"emu::ptx::set({target}, {code}.value);"
    return f"{{ auto s_ = {code}; emu::ptx::set({target}, s_.value); {inside} = s_.inside; }}"


def _elect(found: re.Match[str], operands: Operands) -> str:
    target, _, chosen = operands[0].partition("|")
    set_lane = "" if target == "_" else f"{target} = __builtin_ctz({operands[1]});"
    vote = f"emu::vote({operands[1]}, true, __LINE__)"
    return f"{{ auto v_ = {vote}; {set_lane} {chosen} = emu::now->lane == unsigned(__builtin_ctz(v_.members)); }}"


def _nothing(_found: re.Match[str], _operands: Operands) -> str:
    return ";"


_SHUFFLES = {"idx": "Index", "up": "Up", "down": "Down", "bfly": "Xor"}
_SPACE = r"(?P<space>\.(?:shared(?:::cta|::cluster)?|global))?"
_ROUND = r"(?:\.(?:rn|rz|rm|rp))?(?:\.ftz)?(?:\.sat)?"
_KINDS = "f16|bf16|tf32|f32|f64|s8|u8|s32"

_TABLE: tuple[tuple[str, Made], ...] = (
    (r"mov\.(?:pred|[busf]\d+)", _move),
    (rf"setp\.(?P<compare>\w\w){_TYPE}", _compare),
    (rf"selp{_TYPE}", lambda f, o: _assign(o[0], f["type"], f"{o[3]} ? {_bits(f['type'], o[1])} : {_bits(f['type'], o[2])}")),
    (rf"(?P<name>add|sub|mul\.lo|mul|and|or|xor|shl|shr|div|rem){_ROUND}(?:\.full|\.approx)?{_TYPE}", _binary),
    (rf"(?:mad\.lo|fma){_ROUND}{_TYPE}", lambda f, o: _assign(o[0], f["type"], f"emu::ptx::fused({_bits(f['type'], o[1])}, {_bits(f['type'], o[2])}, {_bits(f['type'], o[3])})")),
    (rf"not{_TYPE}", lambda f, o: f"emu::ptx::set({o[0]}, {'!' if f['type'] == 'pred' else '~'}{o[1]});"),
    (rf"neg{_TYPE}", lambda f, o: _assign(o[0], f["type"], f"-{_bits(f['type'], o[1])}")),
    (rf"(?P<name>min|max){_TYPE}", lambda f, o: _assign(o[0], f["type"], f"{f['name']}({_bits(f['type'], o[1])}, {_bits(f['type'], o[2])})")),
    (rf"ex2\.approx(?:\.ftz)?{_TYPE}", _unary_float("::exp2f")),
    (rf"lg2\.approx(?:\.ftz)?{_TYPE}", _unary_float("::log2f")),
    (rf"tanh\.approx{_TYPE}", _unary_float("::tanhf")),
    (rf"rcp{_ROUND}(?:\.approx)?(?:\.ftz)?{_TYPE}", _unary_float("1.0f /")),
    (rf"sqrt{_ROUND}(?:\.approx)?(?:\.ftz)?{_TYPE}", _unary_float("::sqrtf")),
    (rf"rsqrt\.approx(?:\.ftz)?{_TYPE}", _unary_float("rsqrtf")),
    (r"dp4a\.(?P<a>[us])32\.(?P<b>[us])32", lambda f, o: f"emu::ptx::set({o[0]}, emu::ptx::dp4a<{str(f['a'] == 's').lower()}, {str(f['b'] == 's').lower()}>({o[1]}, {o[2]}, {o[3]}));"),
    (r"cvta\.to\.shared\.u64", lambda f, o: f"emu::ptx::set({o[0]}, uint64_t(emu::to_shared(reinterpret_cast<const void*>({o[1]}))));"),
    (r"cvta\.shared\.u64", lambda f, o: f"emu::ptx::set({o[0]}, reinterpret_cast<uint64_t>(emu::from_shared(uint32_t({o[1]}), 0)));"),
    (r"cvta(?:\.to)?\.global\.u64", lambda f, o: f"emu::ptx::set({o[0]}, {o[1]});"),
    (r"cvt\.(?P<to>[us](?:16|32|64))\.(?P<type>[us](?:16|32|64))", lambda f, o: f"emu::ptx::set({o[0]}, static_cast<{_TYPES[f['to']]}>({_bits(f['type'], o[1])}));"),
    (r"cvt\.rna\.tf32\.f32", lambda f, o: f"emu::ptx::set({o[0]}, emu::ptx::tf32({o[1]}));"),
    (r"bra(?:\.uni)?", lambda f, o: f"goto {o[0]};"),
    (rf"ld{_SPACE}{_CACHE}{_SPACE.replace('space', 'space2')}{_CACHE}(?:\.v[248])?{_TYPE}", _load),
    (rf"st{_CACHE}{_SPACE}{_CACHE}(?:\.v[248])?{_TYPE}", _store),
    (rf"(?P<name>atom|red){_SEMANTICS}{_SPACE}{_SEMANTICS}\.(?P<do>add|min|max|and|or|xor|exch){_TYPE}", _atomic),
    (r"(?:bar|barrier(?:\.cta)?)\.sync(?:\.aligned)?", lambda f, o: _with_line("barrier", o[0], o[1] if len(o) > 1 else 0, "true")),
    (r"(?:bar|barrier(?:\.cta)?)\.arrive(?:\.aligned)?", lambda f, o: _with_line("barrier", o[0], o[1], "false")),
    (r"bar\.warp\.sync", lambda f, o: f"emu_sync_warp(__LINE__, {o[0]});"),
    (rf"barrier\.cluster\.arrive{_SEMANTICS}(?:\.aligned)?", lambda f, o: _with_line("cluster_arrive")),
    (rf"barrier\.cluster\.wait{_SEMANTICS}(?:\.aligned)?", lambda f, o: _with_line("cluster_wait")),
    (r"shfl\.sync\.(?P<kind>idx|up|down|bfly)\.b32", _shuffle),
    (r"vote\.sync\.ballot\.b32", lambda f, o: f"emu::ptx::set({o[0]}, emu::vote({o[2]}, {o[1]}, __LINE__).ballot);"),
    (r"activemask\.b32", lambda f, o: f"emu::ptx::set({o[0]}, emu::active_mask(__LINE__));"),
    (r"elect\.sync", _elect),
    (r"(?P<name>ldmatrix|stmatrix)\.sync\.aligned\.(?:m8n8\.x(?P<count>[124])|x(?P<unused>[124])\.m8n8)(?P<trans>\.trans)?\.shared(?:::cta)?\.b16", _matrices),
    (rf"mma\.sync\.aligned\.m(?P<m>\d+)n(?P<n>\d+)k(?P<k>\d+)\.row\.col(?:\.satfinite)?\.(?P<d>{_KINDS})\.(?P<a>{_KINDS})\.(?P<b>{_KINDS})\.(?P<c>{_KINDS})", _product),
    (rf"wgmma\.mma_async\.sync\.aligned\.m64n(?P<n>\d+)k(?P<k>\d+)\.(?P<d>f16|f32)\.(?P<a>f16|bf16|tf32)\.(?P<b>f16|bf16|tf32)", _warpgroup_product),
    (r"wgmma\.fence\.sync\.aligned", lambda f, o: _with_line("wgmma_fence")),
    (r"wgmma\.commit_group\.sync\.aligned", lambda f, o: _with_line("wgmma_commit")),
    (r"wgmma\.wait_group\.sync\.aligned", lambda f, o: _with_line("wgmma_wait", o[0])),
    (r"setmaxnreg\.(?P<way>inc|dec)\.sync\.aligned\.u32", lambda f, o: _with_line("set_registers", o[0], str(f["way"] == "inc").lower())),
    (r"cp\.async\.(?:ca|cg)\.shared(?:::cta)?\.global(?P<hint>\.L2::cache_hint)?(?:\.L2::(?:64|128|256)B)?", _copy_async),
    (r"cp\.async\.commit_group", lambda f, o: _call("commit_copies")),
    (r"cp\.async\.wait_group", lambda f, o: _call("wait_copies", o[0])),
    (r"cp\.async\.wait_all", lambda f, o: "emu::ptx::commit_copies(); emu::ptx::wait_copies(0);"),
    (rf"cp\.async\.mbarrier\.arrive(?P<noinc>\.noinc)?{_SHARED}\.b64", lambda f, o: _with_line("arrive_after_copies", _address(o[0]), str(not f["noinc"]).lower())),
    (r"cp\.async\.bulk\.tensor\.(?P<rank>[1-5])d\.shared::(?:cluster|cta)\.global(?:\.tile)?\.mbarrier::complete_tx::bytes(?:\.L2::cache_hint)?", _bulk_load),
    (r"cp\.async\.bulk\.tensor\.(?P<rank>[1-5])d\.global\.shared::cta(?:\.tile)?\.bulk_group(?:\.L2::cache_hint)?", _bulk_store),
    (r"cp\.async\.bulk\.shared::(?:cluster|cta)\.global\.mbarrier::complete_tx::bytes(?:\.L2::cache_hint)?", lambda f, o: _with_line("load_bulk", _address(o[0]), _address(o[1]), o[2], _address(o[3]))),
    (r"cp\.async\.bulk\.global\.shared::cta\.bulk_group(?:\.L2::cache_hint)?", lambda f, o: _with_line("store_bulk", _address(o[0]), _address(o[1]), o[2])),
    (r"cp\.async\.bulk\.commit_group", lambda f, o: _call("commit_bulk")),
    (r"cp\.async\.bulk\.wait_group(?:\.read)?", lambda f, o: _call("wait_bulk", o[0])),
    (rf"mbarrier\.init{_SHARED}\.b64", lambda f, o: _with_line("mbarrier_init", _address(o[0]), o[1])),
    (rf"mbarrier\.inval{_SHARED}\.b64", lambda f, o: _with_line("mbarrier_inval", _address(o[0]))),
    (rf"mbarrier\.arrive(?P<drop>_drop)?(?P<expect>\.expect_tx)?{_SEMANTICS}{_SHARED}\.b64", _arrive),
    (rf"mbarrier\.expect_tx{_SEMANTICS}{_SHARED}\.b64", lambda f, o: _with_line("mbarrier_expect", _address(o[0]), o[1])),
    (rf"mbarrier\.complete_tx{_SEMANTICS}{_SHARED}\.b64", lambda f, o: _with_line("mbarrier_complete", _address(o[0]), o[1])),
    (rf"mbarrier\.(?:test|(?P<try>try))_wait(?P<parity>\.parity)?{_SEMANTICS}{_SHARED}\.b64", _wait),
    (r"fence\.proxy\.async(?:\.(?:global|shared::(?:cta|cluster)))?", lambda f, o: _call("proxy_fence")),
    (r"fence\.mbarrier_init\.release\.cluster", lambda f, o: _call("mbarrier_init_fence")),
    (r"fence(?:\.(?:sc|acq_rel|acquire|release))?(?:\.(?:cta|cluster|gpu|sys))?|membar\.(?:cta|gl|sys)", _nothing),
    (r"prefetch\.\S+|prefetchu\.\S+|griddepcontrol\.(?:wait|launch_dependents)", _nothing),
    (r"nanosleep\.u32", lambda f, o: "__nanosleep(0);"),
    (r"trap", lambda f, o: "__builtin_trap();"),
)  # fmt: skip
_FORMS = [(re.compile(pattern), made) for pattern, made in _TABLE]
