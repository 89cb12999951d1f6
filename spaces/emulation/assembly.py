"""Assembly statements in CUDA C, replaced by what their instructions do.

A statement becomes a C++ function that is called where it stands, its operands bound to names by
their constraints, and its text translated by `spaces.emulation.ptx.translate`. It keeps its number
of lines.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from spaces.emulation.ptx.translate import translate

_START = re.compile(r"\b(?:asm|__asm__)\s*(?:volatile|__volatile__)?\s*\(")
_DIRECTIVE = re.compile(r"^[ \t]*#[^\n]*$", re.MULTILINE)
_OTHERWISE = re.compile(r"^[ \t]*#else.*?^[ \t]*#endif[^\n]*$", re.MULTILINE | re.DOTALL)
_PAIRS = {"(": ")", "[": "]", "{": "}"}
_ESCAPES = {"n": "\n", "t": "\t", '"': '"', "\\": "\\"}
_TYPES = {
    "r": "uint32_t",
    "l": "uint64_t",
    "h": "uint16_t",
    "f": "float",
    "d": "double",
    "n": "int64_t",
}
_OUTPUTS, _INPUTS = 1, 2


@dataclass(frozen=True, slots=True)
class _Operand:
    constraint: str
    expression: str


def without_assembly(source: str) -> str:
    """CUDA C without assembly.

    Raises:
        ValueError: an instruction, or a form of one, that the emulated device does not know; the
            text is its name.
    """
    parts, place = [], 0
    for found in _START.finditer(source):
        if found.start() < place:
            continue
        end = _closing(source, found.end() - 1)
        whole = source[found.start() : end + 1]
        code = _replace(source[found.end() : end])
        parts += [source[place : found.start()], code, "\n" * whole.count("\n")]
        place = end + 1
    return "".join([*parts, source[place:]])


def _replace(inside: str) -> str:
    """The call that stands for a statement, of which this is what its parentheses hold."""
    # Where the preprocessor chooses, both forms do the same: take the first.
    inside = _DIRECTIVE.sub("", _OTHERWISE.sub("", inside))
    sections = _split(inside, ":")
    operands = [
        _operand(text, is_output=number == _OUTPUTS)
        for number, section in enumerate(sections[: _INPUTS + 1])
        if number
        for text in _split(section, ",")
        if text.strip()
    ]
    bound = " ".join(_bind(number, operand) for number, operand in enumerate(operands))
    code = translate(_text(sections[0]), len(operands))
    return f"[&]() {{ {bound} {code} }}()"


def _bind(number: int, operand: _Operand) -> str:
    letter = operand.constraint.lstrip("=+&")
    if letter not in _TYPES:
        raise ValueError(f'an operand of assembly with the constraint "{operand.constraint}"')
    kind, name = _TYPES[letter], f"o{number}"
    if operand.constraint[0] in "=+":
        return f"{kind}& {name} = emu::ptx::output<{kind}>({operand.expression});"
    return f"const {kind} {name} = emu::ptx::input<{kind}>({operand.expression});"


def _operand(text: str, *, is_output: bool) -> _Operand:
    found = re.fullmatch(r'\s*(?:\[\w+\]\s*)?"([^"]*)"\s*\((.*)\)\s*', text, re.DOTALL)
    if found is None or is_output != (found[1][:1] in ("=", "+")):
        raise ValueError(f"an operand of assembly written as {text.strip()}")
    return _Operand(found[1].strip(), found[2].replace("\n", " ").strip())


def _text(section: str) -> str:
    """The text of adjacent string literals."""
    found = re.findall(r'"((?:[^"\\]|\\.)*)"', section, re.DOTALL)
    joined = "".join(found)
    return re.sub(r"\\(.)", lambda m: _ESCAPES.get(m[1], m[1]), joined)


def _split(text: str, mark: str) -> list[str]:
    """Parts between marks that stand outside of strings and brackets; `::` is two marks."""
    parts, depth, start, place = [], 0, 0, 0
    while place < len(text):
        character = text[place]
        if character == '"':
            place = _end_of_string(text, place)
        elif character in _PAIRS:
            depth += 1
        elif character in _PAIRS.values():
            depth -= 1
        elif character == mark and depth == 0:
            parts.append(text[start:place])
            start = place + 1
        place += 1
    return [*parts, text[start:]]


def _closing(text: str, opening: int) -> int:
    """The place of the bracket that closes one."""
    depth, place = 0, opening
    while place < len(text):
        if text[place] == '"':
            place = _end_of_string(text, place)
        elif text[place] == "(":
            depth += 1
        elif text[place] == ")":
            depth -= 1
            if depth == 0:
                return place
        place += 1
    raise ValueError("a statement of assembly has no end")


def _end_of_string(text: str, start: int) -> int:
    place = start + 1
    while text[place] != '"':
        place += 2 if text[place] == "\\" else 1
    return place
