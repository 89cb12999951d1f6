"""Functions of integers: dot products of bytes, permutations of bytes, bits counted and moved."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tests.spaces.emulation.instructions.program import Array, Arrays, Program, kernel
from tests.spaces.emulation.instructions.rounding import map_bits

_SECTION = "CUDA Math API 13.0, Integer Intrinsics"
_PRMT = "PTX ISA 9.1, 9.7.9.7 prmt"
_DP4A = "PTX ISA 9.1, 9.7.1.23 dp4a"
_COUNT = 256


def _bytes_of(word: int, signed: bool) -> list[int]:
    parts = [(word >> 8 * i) & 0xFF for i in range(4)]
    return [p - 256 if signed and p > 127 else p for p in parts]


def _dot(signed: bool) -> Callable[..., int]:
    def apply(a: int, b: int, c: int) -> int:
        pairs = zip(_bytes_of(a, signed), _bytes_of(b, signed), strict=True)
        return (c + sum(x * y for x, y in pairs)) & 0xFFFFFFFF

    return apply


def _permute(a: int, b: int, c: int) -> int:
    """Byte i is the one of the eight of {b, a} that nibble i names; bit 3 spreads its sign."""
    pool = [*_bytes_of(a, False), *_bytes_of(b, False)]
    word = 0
    for i in range(4):
        nibble = (c >> 4 * i) & 0xF
        byte = pool[nibble & 7]
        if nibble & 8:
            byte = 0xFF if byte & 0x80 else 0
        word |= byte << 8 * i
    return word


def _byte_permute(a: int, b: int, c: int) -> int:
    """Only three bits of each nibble are looked at."""
    return _permute(a, b, c & 0x7777)


def _funnel(a: int, b: int, c: int) -> int:
    return ((b << 32 | a) << (c & 31) >> 32) & 0xFFFFFFFF


def _leading_zeros(a: int, _b: int, c: int) -> int:
    return 32 - (a >> (c & 31)).bit_length()


def _signed(word: int) -> int:
    return word - (1 << 32) if word >> 31 else word


_FORMS: list[tuple[str, str, str, Callable[..., int]]] = [
    ("__dp4a.int", _SECTION, "__dp4a((int)a, (int)b, (int)c)", _dot(True)),
    ("__dp4a.uint32_t", _SECTION, "__dp4a(a, b, c)", _dot(False)),
    ("__byte_perm", _SECTION, "__byte_perm(a, b, c)", _byte_permute),
    ("__popc", _SECTION, "__popc(a)", lambda a, b, c: a.bit_count()),
    ("__clz", _SECTION, "__clz((int)(a >> (c & 31)))", _leading_zeros),
    ("__ffs", _SECTION, "__ffs((int)a)", lambda a, b, c: (a & -a).bit_length()),
    ("__brev", _SECTION, "__brev(a)", lambda a, b, c: int(f"{a:032b}"[::-1], 2)),
    ("__umulhi", _SECTION, "__umulhi(a, b)", lambda a, b, c: a * b >> 32),
    (
        "__mulhi",
        _SECTION,
        "__mulhi((int)a, (int)b)",
        lambda a, b, c: (_signed(a) * _signed(b) >> 32) & 0xFFFFFFFF,
    ),
    ("__funnelshift_l", _SECTION, "__funnelshift_l(a, b, c)", _funnel),
]

_ASM: list[tuple[str, str, Callable[..., int]]] = [
    ("prmt.b32", _PRMT, _permute),
    ("dp4a.s32.s32", _DP4A, _dot(True)),
    ("dp4a.u32.u32", _DP4A, _dot(False)),
]


def _program(name: str, section: str, statement: str, function: Callable[..., int]) -> Program:
    body = f"""
  int i = blockIdx.x * 128 + threadIdx.x;
  uint32_t a = as[i], b = bs[i], c = cs[i];
  {statement}"""

    def make(rng: np.random.Generator) -> Arrays:
        words = rng.integers(0, 1 << 32, (3, _COUNT), np.uint32)
        words[:, :2] = np.array([[0, 0xFFFFFFFF]], np.uint32)
        return list(words)

    def expect(*given: Array) -> Arrays:
        return [np.array(map_bits(function, *given), np.uint32)]

    return Program(
        name=name,
        section=section,
        source=kernel(
            "const uint32_t* as, const uint32_t* bs, const uint32_t* cs, uint32_t* out",
            body,
            threads=128,
        ),
        make=make,
        expect=expect,
        grid=(_COUNT // 128, 1, 1),
        block=(128, 1, 1),
    )


def programs() -> list[Program]:
    """All of them."""
    return [
        *(
            _program(name, section, f"out[i] = (uint32_t)({call});", function)
            for name, section, call, function in _FORMS
        ),
        *(
            _program(
                name,
                section,
                f'asm volatile("{name} %0, %1, %2, %3;"\n'
                '    : "=r"(out[i]) : "r"(a), "r"(b), "r"(c));',
                function,
            )
            for name, section, function in _ASM
        ),
    ]
