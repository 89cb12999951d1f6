"""Dimensions as ONNX files call them: a name, or an expression of one."""

from __future__ import annotations

import ast
import re

_ODD = re.compile(r"\W+")
_STEPS: dict[type[ast.operator], str] = {
    ast.Add: "p",
    ast.Sub: "m",
    ast.FloorDiv: "d",
    ast.Div: "d",
}


def declared_name(text: str) -> str:
    """What a dimension is called here: `4*h` is `h_x4`, see `spaces.ir.derived_dims`.

    A text that is no expression of one name and numbers is a name by itself, made of what is in it.
    """
    try:
        found = _steps(ast.parse(text.strip(), mode="eval").body)
    except (SyntaxError, ValueError):
        found = None
    if found is None:
        return _ODD.sub("_", text.strip())
    name, steps = found
    if not steps:
        return name
    times = steps[0][1:] if steps[0][0] == "x" else "1"
    rest = steps[1:] if steps[0][0] == "x" else steps
    return "_".join([name, f"x{times}", *rest])


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
