"""Where each element of a resized axis comes from, and with which weights.

All of it is calculated in float32, as onnxruntime does: which of two elements is the nearest may
depend on the last bit. Sizes that are numbers give arrays of NumPy; others give tensors that a
program computes when the model runs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from spaces.frontends.onnx.sizes import Size

Number: TypeAlias = Any
"""An array of NumPy or an expression of TVM: both know these operators."""
_F = np.float32


@dataclass(frozen=True, slots=True)
class Axis:
    """An axis that is resized.

    Attributes:
        scale: how many times as long it becomes, as it is said; None where the sizes say it.
        begin: where the part of it begins that `tf_crop_and_resize` takes, 1 for the last element;
            `end` is where that part ends. Numbers, or scalars that a program knows.
    """

    axis: int
    size: Size
    wanted: Size
    scale: float | None
    begin: Any = 0.0
    end: Any = 1.0

    @property
    def known(self) -> bool:
        """Whether all of it is numbers."""
        return all(isinstance(v, int | float) for v in (self.size, self.wanted, self.begin))

    @property
    def ratio(self) -> float:
        """How many times as long it becomes, of known sizes."""
        return float(_F(self.wanted) / _F(self.size)) if self.scale is None else self.scale


@dataclass(frozen=True, slots=True)
class Method:
    """How elements between others are found.

    Attributes:
        mode: `nearest`, `linear` or `cubic`.
        transformation: of coordinates.
        rounding: of coordinates, for the nearest; `simple` is that of version 10.
        a: the coefficient of a cubic.
        exclude: whether elements beyond the end count nothing, rather than what the last one does.
        antialias: whether an axis that becomes shorter is smoothed.
    """

    mode: str
    transformation: str
    rounding: str
    a: float
    exclude: bool
    antialias: bool


@dataclass(frozen=True, slots=True)
class Table:
    """For each element of the result which elements are summed.

    Attributes:
        places: their indices, of shape (elements, terms).
        weights: of each; None where there is one term and it is the result.
        outside: whether an element is the extrapolation value instead; None where none is.
    """

    places: Any
    weights: Any
    outside: Any


@dataclass(frozen=True, slots=True)
class _Calculus:
    """What arrays and expressions have under other names."""

    floor: Callable[[Number], Number]
    where: Callable[[Number, Number, Number], Number]
    absolute: Callable[[Number], Number]
    float32: Callable[[Number], Number]


def make_known_table(axis: Axis, method: Method) -> Table:
    """The table of an axis whose sizes are numbers."""
    calculus = _Calculus(np.floor, np.where, np.abs, lambda number: np.asarray(number, _F))
    at = _coordinates(
        np.arange(axis.wanted, dtype=_F), axis, _F(axis.ratio), method.transformation, calculus
    )
    outside = None
    if method.transformation == "tf_crop_and_resize":
        outside = (at < 0) | (at > _F(axis.size - 1))
    with np.errstate(all="ignore"):
        places, weights = _terms(at, axis, method, calculus, axis.ratio)
    stacked = np.stack([np.clip(p, 0, axis.size - 1).astype("int32") for p in places], axis=-1)
    factors = None if weights is None else np.stack(weights, axis=-1).astype(_F)
    return Table(stacked, factors, outside if outside is not None and outside.any() else None)


def run_time_table(builder: Any, axis: Axis, method: Method) -> Table:
    """The table of an axis whose sizes a run knows, as tensors."""
    from tvm import relax, te, tirx

    calculus = _Calculus(tirx.floor, tirx.Select, tirx.abs, _as_float32)
    # A constant that programs see as such is divided by as a product with its reciprocal.
    said = relax.const(np.array([axis.scale or 1.0], _F), "float32")
    ends = [_vector(builder, end) for end in (axis.begin, axis.end)]

    def coordinates(i: Any, size: Size, wanted: Size, scale: Any, begin: Any, end: Any) -> Any:
        ratio = scale[0] if axis.scale is not None else _as_float32(wanted) / _as_float32(size)
        inside = Axis(axis.axis, size, wanted, axis.scale, begin[0], end[0])
        at = _coordinates(i.astype("float32"), inside, ratio, method.transformation, calculus)
        return at, inside

    def places(*given: Any) -> Any:
        def one(i: Any, k: Any) -> Any:
            at, inside = coordinates(i, *given)
            found, _ = _terms(at, inside, method, calculus, axis.scale or 1.0)
            last = _as_int32(inside.size) - 1
            return _pick(k, [tirx.max(0, tirx.min(p.astype("int32"), last)) for p in found])

        return te.compute((given[1], terms), one, name="places")

    def weights(*given: Any) -> Any:
        def one(i: Any, k: Any) -> Any:
            at, inside = coordinates(i, *given)
            return _pick(k, _terms(at, inside, method, calculus, axis.scale or 1.0)[1] or ())

        return te.compute((given[1], terms), one, name="weights")

    def outside(*given: Any) -> Any:
        def one(i: Any) -> Any:
            at, inside = coordinates(i, *given)
            return tirx.any(at < 0, at > _as_float32(inside.size) - 1)

        return te.compute((given[1],), one, name="outside")

    terms = {"nearest": 1, "linear": 2, "cubic": 4}[method.mode]
    given = (_int64(axis.size), _int64(axis.wanted), said, *ends)
    crops = method.transformation == "tf_crop_and_resize"
    return Table(
        builder.emit_te(places, *given),
        None if method.mode == "nearest" else builder.emit_te(weights, *given),
        builder.emit_te(outside, *given) if crops else None,
    )


def _coordinates(
    i: Number, axis: Axis, ratio: Number, transformation: str, calculus: _Calculus
) -> Number:
    """Where in the original the elements of the result lie."""
    half = _F(0.5) if isinstance(i, np.ndarray) else 0.5
    size, wanted = calculus.float32(axis.size), calculus.float32(axis.wanted)
    many = wanted > 1
    last, most = size - 1, calculus.where(many, wanted - 1, calculus.float32(1))
    match transformation:
        case "asymmetric":
            return i / ratio
        case "tf_half_pixel_for_nn":
            return (i + half) / ratio
        case "align_corners":
            return calculus.where(many, i * last / most, calculus.float32(0))
        case "pytorch_half_pixel":
            return calculus.where(many, (i + half) / ratio - half, calculus.float32(0))
        case "half_pixel_symmetric":
            adjusted = wanted / (ratio * size)
            return size / 2 * (1 - adjusted) + (i + half) / ratio - half
        case "tf_crop_and_resize":
            begin, end = calculus.float32(axis.begin), calculus.float32(axis.end)
            middle = half * (begin + end) * last
            spread = begin * last + i * (end - begin) * last / most
            return calculus.where(many, spread, middle)
    return (i + half) / ratio - half


def _terms(
    at: Number, axis: Axis, method: Method, calculus: _Calculus, ratio: float
) -> tuple[list[Number], list[Number] | None]:
    """Indices of the terms, which may lie outside, and their weights."""
    low = calculus.floor(at)
    apart = at - low
    if method.mode == "nearest":
        up = {
            "floor": apart < 0,
            "ceil": apart > 0,
            "round_prefer_floor": apart > 0.5,
            "round_prefer_ceil": apart >= 0.5,
            "simple": apart > 0 if ratio < 1 else apart < 0,
        }[method.rounding]
        return [calculus.where(up, low + 1, low)], None
    smooth = min(ratio, 1.0) if method.antialias else 1.0
    reach = {"linear": 1, "cubic": 2}[method.mode]
    first = math.floor(-reach / smooth) + 1
    kernel = _hat if method.mode == "linear" else _cubic
    weights, places = [], []
    for step in range(first, 2 - first):
        weight = kernel(calculus.absolute(step - apart) * smooth, method.a, calculus)
        place = low + step
        if method.exclude:
            inside = (place >= 0) * (place < axis.size) if isinstance(at, np.ndarray) else None
            inside = _within(place, axis.size) if inside is None else inside
            weight = calculus.where(inside, weight, calculus.float32(0))
        weights.append(weight)
        places.append(place)
    if method.exclude or smooth < 1:
        whole = sum(weights)
        weights = [weight / whole for weight in weights]
    return places, weights


def _hat(x: Number, _: float, calculus: _Calculus) -> Number:
    return calculus.where(x < 1, 1 - x, calculus.float32(0))


def _cubic(x: Number, a: float, calculus: _Calculus) -> Number:
    near = ((a + 2) * x - (a + 3)) * x * x + 1
    far = ((a * x - 5 * a) * x + 8 * a) * x - 4 * a
    return calculus.where(x <= 1, near, calculus.where(x < 2, far, calculus.float32(0)))


def _pick(k: Any, found: Sequence[Any]) -> Any:
    from tvm import tirx

    picked = found[0]
    for number, one in enumerate(found[1:], start=1):
        picked = tirx.Select(k == number, one, picked)
    return picked


def _within(place: Any, size: Size) -> Any:
    from tvm import tirx

    return tirx.all(place >= 0, place < _as_float32(size))


def _as_float32(number: Any) -> Any:
    from tvm import tirx

    return (
        tirx.const(number, "float32")
        if isinstance(number, int | float)
        else tirx.Cast("float32", number)
    )


def _as_int32(size: Size) -> Any:
    from tvm import tirx

    return tirx.const(size, "int32") if isinstance(size, int) else tirx.Cast("int32", size)


def _int64(size: Size) -> Any:
    from tvm import tirx

    return tirx.const(size, "int64") if isinstance(size, int) else size


def _vector(builder: Any, end: Any) -> Any:
    """An end of a part as a tensor of one element."""
    from tvm import relax

    if isinstance(end, int | float):
        return relax.const(np.array([end], _F), "float32")
    return builder.emit(relax.op.astype(end, "float32"))
