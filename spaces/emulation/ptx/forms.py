"""Forms of instructions, and what they are written with.

A form is a pattern of an instruction's whole name, and the C++ for it: a template, or a function
for what a template cannot say. In a template `{0}` is the first operand, `{a[0]}` the address in
it, `{t}` the C++ type of the instruction's, and other names are groups of the pattern.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

Operands = Sequence[str]
Maker = Callable[[re.Match[str], Operands], str]

TYPES = {
    **{f"{letter}{bits}": f"uint{bits}_t" for letter in "bu" for bits in (8, 16, 32, 64)},
    **{f"s{bits}": f"int{bits}_t" for bits in (8, 16, 32, 64)},
    "f32": "float",
    "f64": "double",
    "pred": "bool",
}
"""C++'s types of PTX's, a word of bits being a number without a sign."""

TYPE = r"\.(?P<type>[busf]\d+|pred)"
ROUND = r"(?:\.(?:rn|rz|rm|rp|rna))?(?:\.ftz)?(?:\.sat)?"
ORDER = r"(?:\.(?:relaxed|release|acquire|acq_rel))?(?:\.(?:cta|cluster|gpu|sys))?"
SHARED = r"(?:\.shared(?:::cta|::cluster)?)?"
SPACE = r"(?P<space>\.(?:shared(?:::cta|::cluster)?|global))?"
HINT = r"(?:\.L2::cache_hint)?"


@dataclass(frozen=True, slots=True)
class Form:
    """A form of instructions.

    Attributes:
        pattern: of the whole name, with its modifiers.
        code: a template, or what gives the C++.
        operands: the least and the most of them.
    """

    pattern: re.Pattern[str]
    code: str | Maker
    operands: tuple[int, int]

    def made(self, found: re.Match[str], operands: Operands) -> str:
        """The C++ of an instruction of this form."""
        if not isinstance(self.code, str):
            return self.code(found, operands)
        groups = {name: value or "" for name, value in found.groupdict().items()}
        addresses = [address(operand) for operand in operands]
        kind = TYPES.get(groups.get("type", ""), "")
        return self.code.format(*operands, a=addresses, t=kind, **groups)


def form(pattern: str, code: str | Maker, least: int = 0, most: int | None = None) -> Form:
    """A form that takes `least` to `most` operands, or exactly `least`."""
    return Form(re.compile(pattern), code, (least, least if most is None else most))


def parts(text: str) -> list[str]:
    """Texts between commas that stand outside of brackets."""
    found, depth, current = [], 0, ""
    for character in text:
        depth += (character in "[{(") - (character in "]})")
        if character == "," and depth == 0:
            found.append(current)
            current = ""
        else:
            current += character
    return [part.strip() for part in (*found, current) if part.strip()]


def address(operand: str) -> str:
    """What stands first between the brackets of an address; another operand as it is."""
    return parts(operand[1:-1])[0] if operand.startswith("[") else operand


def vector(operand: str) -> list[str]:
    """The elements of a vector; of another operand, the one."""
    return parts(operand[1:-1]) if operand.startswith("{") else [operand]


def bits(kind: str, value: str) -> str:
    """A register read as a number of a PTX type."""
    return f"emu::ptx::bits<{TYPES[kind]}>({value})"


def set_to(target: str, value: str) -> str:
    """A register given a value; nothing where the result is not wanted."""
    return f"{value};" if target == "_" else f"emu::ptx::set({target}, {value});"


def flag(value: object) -> str:
    """A truth as C++ writes it."""
    return "true" if value else "false"


def pair(operand: str) -> tuple[str, str]:
    """The two targets of `a|b`; the second is empty where there is one."""
    first, _, second = operand.partition("|")
    return first, second


NOTHING = ";"
"""The C++ of what has no effect that a program could see here."""
