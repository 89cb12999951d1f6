"""Text of PTX translated to C++.

Registers become variables, labels labels, predicates conditions; each instruction becomes a
statement (`spaces.emulation.ptx.table`), most of them calls of functions in `cpp/include/ptx.h` and
beside it, which say what the instruction does.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from spaces.emulation.ptx.forms import parts
from spaces.emulation.ptx.scalars import SPECIAL_REGISTERS
from spaces.emulation.ptx.table import statement

_REGISTER_TYPES = {
    "pred": "bool",
    **{f"{letter}8": "uint8_t" for letter in "bus"},
    **{f"{letter}16": "uint16_t" for letter in "bus"},
    **{f"{letter}32": "uint32_t" for letter in "bus"},
    **{f"{letter}64": "uint64_t" for letter in "bus"},
    "f16": "uint16_t",
    "f16x2": "uint32_t",
    "f32": "float",
    "f64": "double",
}
_OPCODE = re.compile(r"([^\s{\[]+)\s*(.*)", re.DOTALL)
_LABEL = re.compile(r"\s*([A-Za-z_$]\w*)\s*:(?!:)")
_GUARD = re.compile(r"@(!?)\s*(%?\w+)\s+(.*)", re.DOTALL)
_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_FLOAT = re.compile(r"0[fF]([0-9a-fA-F]{8})")
_DOUBLE = re.compile(r"0[dD]([0-9a-fA-F]{16})")
_INTEGER = re.compile(r"-?(?:0[xX][0-9a-fA-F]+|\d+)U?")


def translate(text: str, operands: int) -> str:
    """C++ of the text of an assembly statement, on one line.

    Args:
        operands: how many it has; operand 2 is the variable `o2`.

    Raises:
        ValueError: see `spaces.emulation.assembly.without_assembly`.
    """
    scope = _Scope(operands)
    return " ".join(scope.code(piece) for piece in _pieces(_COMMENT.sub(" ", text)))


def _pieces(text: str) -> Iterator[str]:
    """Statements, labels, and the brackets of blocks, in order."""
    current = ""
    for character in text:
        if character in "{}" and not current.strip():
            yield character
            current = ""
        elif character == ";":
            if current.strip():
                yield current.strip()
            current = ""
        else:
            current += character
            if character == ":" and (label := _LABEL.fullmatch(current)):
                current = ""
                yield f"{label[1]}:"
    if current.strip():
        raise ValueError(f"assembly that ends within {current.strip()!r}")


@dataclass(frozen=True, slots=True)
class _Scope:
    operands: int

    def code(self, piece: str) -> str:
        if piece in ("{", "}"):
            # A block only bounds names, which a jump out of it or into it does not need.
            return ""
        if piece.endswith(":"):
            return f"{_name(piece[:-1])}: ;"
        if piece.startswith(".reg"):
            return self._registers(piece)
        guard = _GUARD.fullmatch(piece)
        if guard is not None:
            return f"if ({guard[1]}{self.value(guard[2])}) {{ {self.code(guard[3])} }}"
        found = _OPCODE.fullmatch(piece)
        if found is None:
            raise ValueError(piece)
        return statement(found[1], [self.value(part) for part in parts(found[2])])

    def _registers(self, piece: str) -> str:
        found = re.fullmatch(r"\.reg\s+\.(\w+)\s+(.*)", piece, re.DOTALL)
        if found is None or found[1] not in _REGISTER_TYPES:
            raise ValueError(piece)
        names = ", ".join(f"{_name(name.strip())}{{}}" for name in found[2].split(","))
        return f"{_REGISTER_TYPES[found[1]]} {names};"

    def value(self, text: str) -> str:
        """An operand as C++: an expression, or, for a vector, expressions between braces."""
        text = text.strip()
        if text.startswith("{"):
            return "{" + ", ".join(self.value(part) for part in parts(text[1:-1])) + "}"
        if text.startswith("["):
            return "[" + ", ".join(self._address(part) for part in parts(text[1:-1])) + "]"
        if "|" in text:
            return "|".join(self.value(part) for part in text.split("|"))
        return self._atom(text)

    def _address(self, text: str) -> str:
        if text.startswith("{"):
            return self.value(text)
        base, sign, offset = text.partition("+")
        place = self._atom(base.strip())
        return f"({place} + {self._atom(offset.strip())})" if sign else place

    def _atom(self, text: str) -> str:
        if text.startswith("!"):
            return f"!{self._atom(text[1:].strip())}"
        if re.fullmatch(r"%\d+", text):
            if int(text[1:]) >= self.operands:
                raise ValueError(f"assembly names an operand {text} that it does not have")
            return f"o{text[1:]}"
        if text == "_":
            return "_"
        if found := _FLOAT.fullmatch(text):
            return f"__builtin_bit_cast(float, 0x{found[1]}u)"
        if found := _DOUBLE.fullmatch(text):
            return f"__builtin_bit_cast(double, 0x{found[1]}ull)"
        if _INTEGER.fullmatch(text):
            return text.rstrip("U")
        special = text.lstrip("%")
        if text.startswith("%") and special in SPECIAL_REGISTERS:
            return SPECIAL_REGISTERS[special]
        if re.fullmatch(r"%?[A-Za-z_$][\w$]*", text):
            return _name(text)
        raise ValueError(f"an operand of assembly written as {text}")


def _name(register: str) -> str:
    return "p_" + register.lstrip("%").replace("$", "_")
