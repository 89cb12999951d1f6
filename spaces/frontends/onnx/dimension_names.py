"""Dimensions as ONNX files call them: a name, or an expression of one."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable

from tuner.dynamic.derived_names import base_of

_ODD = re.compile(r"\W+")
_STEPS: dict[type[ast.operator], str] = {
    ast.Add: "p",
    ast.Sub: "m",
    ast.FloorDiv: "d",
    ast.Div: "d",
}


def name_dimensions(texts: Iterable[str]) -> dict[str, str]:
    """What the dimensions of a model are called here: `4*h` is `h_x4`, see
    `spaces.ir.derived_dims`.

    A text that is no expression of one name and numbers is a name by itself, made of what is in it.
    No two of these get the same name, and none the name of an expression.
    """
    listed = list(dict.fromkeys(texts))
    known = {text: found for text in listed if (found := _expression(text)) is not None}
    names = {text: "_".join(found) for text, found in known.items()}
    taken = {*names.values(), *(found[0] for found in known.values())}
    for text in listed:
        if text in names:
            continue
        plain = _ODD.sub("_", text.strip())
        name, number = plain, 1
        while name in taken or base_of(name) != name:
            number += 1
            name = f"{plain}_{number}"
        names[text] = name
        taken.add(name)
    return names


def _expression(text: str) -> tuple[str, ...] | None:
    """A name, and what is done to it, each step as it is named; None of any other text."""
    try:
        found = _steps(ast.parse(text.strip(), mode="eval").body)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    # Python takes some letters for others; and a name may look like one of a derived dimension.
    if found is None or found[0] not in text or base_of(found[0]) != found[0]:
        return None
    name, steps = found
    if not steps or steps[0][0] == "x":
        return name, *steps
    return name, "x1", *steps


def _steps(node: ast.expr) -> tuple[str, tuple[str, ...]] | None:
    """A name, and what is done to it in order; None where it is no chain of these."""
    if isinstance(node, ast.Name):
        return node.id, ()
    if not isinstance(node, ast.BinOp):
        return None
    left, right = node.left, node.right
    if isinstance(left, ast.Constant) and isinstance(node.op, ast.Mult | ast.Add):
        left, right = right, left
    if not isinstance(right, ast.Constant) or type(right.value) is not int or right.value < 0:
        return None
    inner = _steps(left)
    kind = "x" if isinstance(node.op, ast.Mult) else _STEPS.get(type(node.op), "")
    if inner is None or not kind:
        return None
    return inner[0], (*inner[1], f"{kind}{right.value}")
