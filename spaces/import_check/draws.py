"""Inputs that a model is compared on: usual ones, then ones with the edges of their types."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from spaces.frontends.inputs import InputSpec, make_inputs
from spaces.ir.element_types import limits_of, numpy_dtype
from tuner.request.model_spec import InputValue

Array = npt.NDArray[Any]
_SPREAD = 4.0
_FLOATS = (0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 1e-3, -255.0, 256.0)
_INTEGERS = (0, 1, -1, 2, 7)
_SMALL_BITS = 8
_EDGE_SHARE = 8
"""One element in so many is an edge."""


def draw(
    specs: Sequence[InputSpec],
    given: Sequence[tuple[str, InputValue]],
    number: int,
    *,
    wide_integers: bool = True,
) -> list[Array]:
    """The arrays of a draw; the same for the same number.

    Args:
        specs: with all sizes known.
        given: values by the user, which are taken as they are, and ranges.
        number: 0 is as `make_inputs` draws. Others are wider: floats with zeros of both signs and
            values beyond usual thresholds, integers of 8 bits of their whole range, others with
          some that count from the end.
        wide_integers: whether integers are wider, too.
    """
    arrays = make_inputs(specs, given, seed=number)
    said = {name for name, _ in given} | {spec.name for spec in specs if spec.drawn}
    if number == 0:
        return arrays
    return [
        array if spec.name in said else _widen(array, spec, number, wide_integers)
        for array, spec in zip(arrays, specs, strict=True)
    ]


def _widen(array: Array, spec: InputSpec, number: int, wide_integers: bool) -> Array:
    random = np.random.default_rng([number, zlib.crc32(spec.name.encode()), 1])
    dtype = numpy_dtype(spec.dtype)
    if dtype.kind == "b" or not array.size or (dtype.kind in "iu" and not wide_integers):
        return array
    if dtype.kind in "iu":
        limits = np.iinfo(dtype)
        if limits.bits <= _SMALL_BITS:
            return random.integers(limits.min, limits.max, spec.shape, dtype, endpoint=True)
        fit = [edge for edge in _INTEGERS if edge >= limits.min]
        return random.choice(np.array(fit, dtype), spec.shape)
    most = float(limits_of(spec.dtype).max)
    edges = np.array([edge for edge in _FLOATS if abs(edge) <= most])
    wide = array.astype("float64") * _SPREAD
    chosen = random.integers(_EDGE_SHARE, size=spec.shape) == 0
    return np.where(chosen, random.choice(edges, spec.shape), wide).astype(dtype)
