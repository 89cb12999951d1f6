"""Dimensions as people and files write them, `past + 2 * T`, under the names that they have here:
`past_plus_T_x2`, see `tuner.dynamic.derived_names`."""

from __future__ import annotations

import ast

from tuner.dynamic.derived_names import PLUS, bases_of

_Term = tuple[str, tuple[str, ...]]
"""A name, and what is done to it in order, each step as it is named."""
_STEPS: dict[type[ast.operator], str] = {
    ast.Add: "p",
    ast.Sub: "m",
    ast.FloorDiv: "d",
    ast.Div: "d",
}


def name_expression(text: str) -> str | None:
    """What a text is called that is a name, a chain of calculations of one name with numbers, or a
    sum of such; None for any other."""
    try:
        terms = _terms(ast.parse(text.strip(), mode="eval").body)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    # Python takes some letters for others; and a name may look like one of a derived dimension.
    if not terms or any(name not in text or bases_of(name) != (name,) for name, _ in terms):
        return None
    return PLUS.join(sorted(map(_name_of, terms)))


def _name_of(term: _Term) -> str:
    name, steps = term
    if not steps or steps[0][0] == "x":
        return "_".join((name, *steps))
    return "_".join((name, "x1", *steps))


def _terms(node: ast.expr) -> list[_Term]:
    """The terms of a sum; none where the expression is no such sum."""
    if isinstance(node, ast.Name):
        return [(node.id, ())]
    if not isinstance(node, ast.BinOp):
        return []
    left, right = node.left, node.right
    if isinstance(left, ast.Constant) and isinstance(node.op, ast.Mult | ast.Add):
        left, right = right, left
    terms = _terms(left)
    if isinstance(node.op, ast.Add) and not isinstance(right, ast.Constant):
        others = _terms(right)
        return [*terms, *others] if terms and others else []
    if not isinstance(right, ast.Constant) or type(right.value) is not int or right.value < 0:
        return []
    kind = "x" if isinstance(node.op, ast.Mult) else _STEPS.get(type(node.op), "")
    if not terms or not kind or (kind == "d" and len(terms) > 1):
        return []
    step = (f"{kind}{right.value}",)
    if kind == "x":
        return [(name, steps + step) for name, steps in terms]
    *front, (name, steps) = terms
    return [*front, (name, steps + step)]
