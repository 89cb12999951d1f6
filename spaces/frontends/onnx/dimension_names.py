"""Dimensions as ONNX files call them: a name, or an expression of others."""

from __future__ import annotations

import re
from collections.abc import Iterable

from tuner.dynamic.derived_names import PLUS, bases_of
from tuner.dynamic.dimension_text import name_expression

_ODD = re.compile(r"\W+")


def name_dimensions(texts: Iterable[str]) -> dict[str, str]:
    """What the dimensions of a model are called here: `4*h` is `h_x4`, see
    `tuner.dynamic.derived_names`.

    A text that is no expression of names and numbers is a name by itself, made of what is in it. No
    two of these get the same name, and none the name of an expression.
    """
    listed = list(dict.fromkeys(texts))
    names = {text: name for text in listed if (name := name_expression(text)) is not None}
    taken = {*names.values(), *(base for name in names.values() for base in bases_of(name))}
    for text in listed:
        if text in names:
            continue
        plain = _ODD.sub("_", text.strip()).replace(PLUS, "_and_")
        name, number = plain, 1
        while name in taken or bases_of(name) != (name,):
            number += 1
            name = f"{plain}_{number}"
        names[text] = name
        taken.add(name)
    return names
