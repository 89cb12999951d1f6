"""Element types of tensors, as NumPy knows them."""

from __future__ import annotations

from typing import Any

import numpy as np

HALVES = ("float16", "bfloat16")
"""Floats of 16 bits, whose sums are accumulated in float32."""
WIDE = "float32"
"""The type that halves are accumulated in and then rounded from, as onnxruntime and PyTorch do."""
NUMPY_FLOATS = ("float16", "float32", "float64")
"""The floating point types that NumPy has of its own."""


def is_float(dtype: str) -> bool:
    """Whether a TVM element type is a floating point number."""
    return "float" in dtype


def numpy_dtype(dtype: str) -> np.dtype[Any]:
    """The NumPy type of a TVM element type; the small floats come from `ml_dtypes`."""
    try:
        return np.dtype("bool" if dtype in ("uint1", "boolean") else dtype)
    except TypeError:
        import ml_dtypes

        kind: np.dtype[Any] = np.dtype(getattr(ml_dtypes, dtype))
        return kind


def is_small_float(dtype: str) -> bool:
    """Whether it is a float type that NumPy itself lacks."""
    return numpy_dtype(dtype).isbuiltin != 1


def limits_of(dtype: str) -> Any:
    """The `numpy.finfo` of a float type, also of the small ones."""
    kind = numpy_dtype(dtype)
    if kind.isbuiltin == 1:
        return np.finfo(kind)
    import ml_dtypes

    return ml_dtypes.finfo(kind)  # type: ignore[no-untyped-call]


def eps_of(dtype: str) -> float:
    """Distance from 1 to the next larger number of a float type."""
    return float(limits_of(dtype).eps)


def smallest_of(dtype: str) -> float:
    """Smallest positive number of a float type that has all its digits."""
    return float(limits_of(dtype).smallest_normal)
