"""Programs in TVMScript that nobody wrote: one to three stages, each as people write such loops.

Each line has two forms: TVMScript, and Python on arrays of NumPy, which says what it means.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
from hypothesis import strategies as st

Array = npt.NDArray[Any]
_SIZES = st.sampled_from([1, 2, 3, 4, 5, 7, 8, 13, 16, 17])
_DTYPES = st.sampled_from(["float32", "float32", "float64", "int32"])
_LEAST = -10_000
"""Less than whatever is drawn."""
_TILE = 4


@dataclass(frozen=True)
class Drawn:
    """A program.

    Attributes:
        script: in TVMScript.
        python: the same on arrays, by name.
        shapes: of its parameters, in order; the last one is the output.
    """

    script: str
    python: str
    shapes: Mapping[str, tuple[int, ...]]
    dtype: str

    def __repr__(self) -> str:
        return f"\n{self.script}"

    def feeds(self, seed: int) -> list[Array]:
        """Contents of its inputs."""
        random = np.random.default_rng(seed)
        return [
            random.integers(-4, 5, shape).astype(self.dtype)
            for shape in [*self.shapes.values()][:-1]
        ]

    def meaning(self, feeds: Sequence[Array]) -> Array:
        """What Python makes of them."""
        *inputs, output = self.shapes
        known: dict[str, Any] = dict(zip(inputs, (feed.copy() for feed in feeds), strict=True))
        known |= {"np": np, "empty": lambda *shape: np.full(shape, 99).astype(self.dtype)}
        exec(self.python, known)
        found: Array = known[output]
        return found


@dataclass
class _Text:
    """A program as it is written.

    Attributes:
        params: shapes of the inputs; `made`: of what stages have written.
    """

    draw: st.DrawFn
    dtype: str
    params: dict[str, tuple[int, ...]] = field(default_factory=dict)
    made: dict[str, tuple[int, ...]] = field(default_factory=dict)
    script: list[str] = field(default_factory=list)
    python: list[str] = field(default_factory=list)

    def both(self, depth: int, line: str) -> None:
        self.one(depth, line, line)

    def one(self, depth: int, script: str, python: str) -> None:
        self.script += ["    " * depth + script] if script else []
        self.python += ["    " * (depth - 1) + python] if python else []


def _constant(text: _Text, number: int) -> str:
    return f"T.{text.dtype}({number})"


def _read(text: _Text, variables: Mapping[str, int]) -> str:
    """An element of a tensor that is there, or of a new input, at places by variables."""
    draw = text.draw
    known = {**text.params, **text.made}
    name = draw(st.sampled_from([*known, "new"]))
    if text.made and not draw(st.integers(0, 2)):
        name = draw(st.sampled_from([*text.made]))
    if name == "new":
        name = f"A{len(text.params)}"
        used = draw(st.permutations([*variables]))[: draw(st.integers(1, len(variables)))]
        steps = [draw(st.sampled_from([(1, 0), (1, 0), (1, 1), (2, 0), (2, 1)])) for _ in used]
        text.params[name] = tuple(
            (variables[v] - 1) * step + first + 1
            for v, (step, first) in zip(used, steps, strict=True)
        )
        places = [_moved(v, step, first) for v, (step, first) in zip(used, steps, strict=True)]
        return f"{name}[{', '.join(places)}]"
    places = []
    for size in known[name]:
        fit = [v for v, extent in variables.items() if extent <= size]
        variable = draw(st.sampled_from([*fit, ""]))
        if not variable:
            places.append(str(draw(st.integers(0, size - 1))))
        elif draw(st.integers(0, 3)) == 0:
            places.append(f"{size - 1} - {variable}")
        else:
            places.append(_moved(variable, 1, draw(st.integers(0, size - variables[variable]))))
    return f"{name}[{', '.join(places)}]"


def _moved(variable: str, step: int, first: int) -> str:
    scaled = variable if step == 1 else f"{variable} * {step}"
    return f"{scaled} + {first}" if first else scaled


def _value(text: _Text, variables: Mapping[str, int]) -> tuple[str, str]:
    """An expression of one to three elements, in both forms."""
    draw = text.draw
    script = python = _read(text, variables)
    for _ in range(draw(st.integers(0, 2))):
        other = _read(text, variables)
        kind = draw(st.sampled_from(["+", "-", "*", "max", "where", "scale"]))
        if kind == "max":
            script, python = f"T.max({script}, {other})", f"max({python}, {other})"
        elif kind == "where":
            at = draw(st.sampled_from([*variables]))
            below = draw(st.integers(0, variables[at]))
            script = f"T.if_then_else({at} < {below}, {script}, {other})"
            python = f"({python} if {at} < {below} else {other})"
        elif kind == "scale":
            factor = draw(st.integers(-2, 3))
            script, python = f"({script}) * {_constant(text, factor)}", f"({python}) * {factor}"
        else:
            script, python = f"({script}) {kind} {other}", f"({python}) {kind} {other}"
    return script, python


def _stage(text: _Text) -> None:
    """Write one more tensor."""
    draw = text.draw
    shape = tuple(draw(st.lists(_SIZES, min_size=1, max_size=3)))
    shape = shape if math.prod(shape) <= 600 else shape[:2]
    name = f"B{len(text.made)}"
    text.one(2, f"{name} = T.alloc_buffer({shape}, {text.dtype!r})", "")
    text.one(2, "", f"{name} = empty{shape}" if len(shape) > 1 else f"{name} = empty({shape[0]})")
    kinds = ["map", "map", "sum", "sum", "max", "parts"] + ["scan"] * (len(shape) > 1)
    kind = draw(st.sampled_from(kinds))
    write = {"map": _map, "parts": _parts, "scan": _scan}.get(kind)
    if write is not None:
        write(text, name, shape)
    else:
        _reduce(text, name, shape, kind)
    text.made[name] = shape


def _map(text: _Text, name: str, shape: tuple[int, ...]) -> None:
    variables = {f"i{axis}": size for axis, size in enumerate(shape)}
    style = text.draw(st.sampled_from(["loops", "block", "fused", "tiled"]))
    if style == "loops":
        script, python = _value(text, variables)
        _loops(text, variables)
        depth = 2 + len(shape)
        text.one(depth, *(f"{name}[{', '.join(variables)}] = {said}" for said in (script, python)))
        return
    inner = {f"v{v}": size for v, size in variables.items()}
    depth = _block(text, variables, style, name)
    script, python = _value(text, inner)
    text.one(depth, *(f"{name}[{', '.join(inner)}] = {said}" for said in (script, python)))


def _loops(text: _Text, variables: Mapping[str, int]) -> None:
    for depth, (variable, size) in enumerate(variables.items(), start=2):
        text.both(depth, f"for {variable} in range({size}):")


def _block(text: _Text, variables: Mapping[str, int], style: str, name: str) -> int:
    """Loops and a block that binds a variable for each; returns the depth of its body."""
    first, *rest = variables
    if style == "fused":
        whole = math.prod(variables.values())
        text.both(2, f"for f in range({whole}):")
        text.one(3, f'with T.sblock("{name}"):', "if True:")
        behind = whole
        for variable, size in variables.items():
            behind //= size
            place = f"f // {behind} % {size}"
            text.one(4, f"v{variable} = T.axis.spatial({size}, {place})", f"v{variable} = {place}")
        return 4
    if style == "tiled":
        size = variables[first]
        text.both(2, f"for o in range({-(-size // _TILE)}):")
        text.both(3, f"for t in range({_TILE}):")
        for depth, variable in enumerate(rest, start=4):
            text.both(depth, f"for {variable} in range({variables[variable]}):")
        depth = 4 + len(rest)
        place, inside = f"o * {_TILE} + t", f"o * {_TILE} + t < {size}"
        text.one(depth, f'with T.sblock("{name}"):', f"if {inside}:")
        text.one(depth + 1, f"T.where({inside})", "")
        text.one(depth + 1, f"v{first} = T.axis.spatial({size}, {place})", f"v{first} = {place}")
        for one in rest:
            bound = f"v{one} = T.axis.spatial({variables[one]}, {one})"
            text.one(depth + 1, bound, f"v{one} = {one}")
        return depth + 1
    _loops(text, variables)
    depth = 2 + len(variables)
    text.one(depth, f'with T.sblock("{name}"):', "if True:")
    for one, size in variables.items():
        text.one(depth + 1, f"v{one} = T.axis.spatial({size}, {one})", f"v{one} = {one}")
    return depth + 1


def _reduce(text: _Text, name: str, shape: tuple[int, ...], kind: str) -> None:
    variables = {f"i{axis}": size for axis, size in enumerate(shape)}
    size, none = text.draw(_SIZES), 0 if kind == "sum" else _LEAST
    in_block = text.draw(st.booleans())
    if in_block:
        inner = {f"v{v}": extent for v, extent in variables.items()}
        place = f"{name}[{', '.join(inner)}]"
        _loops(text, {**variables, "k": size})
        depth = 3 + len(shape)
        text.one(depth, f'with T.sblock("{name}"):', "if True:")
        for one, extent in variables.items():
            bound = f"v{one} = T.axis.spatial({extent}, {one})"
            text.one(depth + 1, bound, f"v{one} = {one}")
        text.one(depth + 1, f"vk = T.axis.reduce({size}, k)", "vk = k")
        text.one(depth + 1, "with T.init():", "if k == 0:")
        text.one(depth + 2, f"{place} = {_constant(text, none)}", f"{place} = {none}")
        script, python = _value(text, {**inner, "vk": size})
        _accumulate(text, depth + 1, place, kind, script, python)
        return
    place = f"{name}[{', '.join(variables)}]"
    script, python = _value(text, {**variables, "k": size})
    _loops(text, variables)
    depth = 2 + len(shape)
    text.one(depth, f"{place} = {_constant(text, none)}", f"{place} = {none}")
    text.both(depth, f"for k in range({size}):")
    _accumulate(text, depth + 1, place, kind, script, python)


def _accumulate(text: _Text, depth: int, place: str, kind: str, script: str, python: str) -> None:
    if kind == "sum":
        text.one(depth, f"{place} = {place} + {script}", f"{place} = {place} + {python}")
    else:
        text.one(depth, f"{place} = T.max({place}, {script})", f"{place} = max({place}, {python})")


def _parts(text: _Text, name: str, shape: tuple[int, ...]) -> None:
    """The rows up to one, then the others."""
    cut = text.draw(st.integers(0, shape[0]))
    for first, last in ((0, cut), (cut, shape[0])):
        if first == last:
            continue
        variables = {f"i{axis}": size for axis, size in enumerate(shape)}
        script, python = _value(text, variables)
        text.both(2, f"for i0 in range({first}, {last}):")
        for depth, axis in enumerate(range(1, len(shape)), start=3):
            text.both(depth, f"for i{axis} in range({shape[axis]}):")
        where = f"{name}[{', '.join(variables)}]"
        text.one(2 + len(shape), f"{where} = {script}", f"{where} = {python}")


def _scan(text: _Text, name: str, shape: tuple[int, ...]) -> None:
    """A sum that runs along the last axis."""
    rows = {f"i{axis}": size for axis, size in enumerate(shape[:-1])}
    first, later = _value(text, rows), _value(text, {**rows, "j": shape[-1]})
    _loops(text, rows)
    depth, at = 1 + len(shape), ", ".join(rows)
    text.one(depth, f"{name}[{at}, 0] = {first[0]}", f"{name}[{at}, 0] = {first[1]}")
    if shape[-1] > 1:
        text.both(depth, f"for j in range({shape[-1] - 1}):")
        sums = (f"{name}[{at}, j + 1] = {name}[{at}, j] + {said}" for said in later)
        text.one(depth + 1, *sums)


@st.composite
def programs(draw: st.DrawFn) -> Drawn:
    """A program of one to three stages, each of which may read what those before it wrote."""
    text = _Text(draw, draw(_DTYPES))
    text.params["A0"] = tuple(draw(st.lists(_SIZES, min_size=1, max_size=2)))
    for _ in range(draw(st.integers(1, 3))):
        _stage(text)
    output = [*text.made][-1]
    shapes = {**text.params, output: text.made[output]}
    head = [f"def main({', '.join(f'{name.lower()}: T.handle' for name in shapes)}):"]
    head += [
        f"    {name} = T.match_buffer({name.lower()}, {shape}, {text.dtype!r})"
        for name, shape in shapes.items()
    ]
    body = [line[4:] for line in text.script if not line.strip().startswith(f"{output} = T.alloc")]
    lines = ["@T.prim_func(s_tir=True)", *head, *body]
    python = [line[4:] for line in text.python]
    return Drawn("\n".join(lines), "\n".join(python), shapes, text.dtype)
