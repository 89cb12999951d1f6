"""Names for arrays of numbers."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Floats32 = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int64]
Ints32 = npt.NDArray[np.int32]
Flags = npt.NDArray[np.bool_]
Rows = npt.NDArray[np.intp]
"""Numbers of rows of another array."""
Features = Floats32
"""Vectors for a cost model, a row for each candidate."""


def vector_bytes(vector: Features) -> bytes:
    """A feature vector as stores keep it: little-endian float32, four bytes for each number."""
    return vector.astype("<f4").tobytes()


def vector_of(data: bytes) -> Features:
    """The vector that `vector_bytes` wrote. Raises ValueError where bytes are missing."""
    return np.frombuffer(data, dtype="<f4").astype(np.float32)
