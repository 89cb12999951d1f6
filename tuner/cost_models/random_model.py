"""A cost model that learns nothing: the baseline for others, and a stand-in for tests."""

from __future__ import annotations

import hashlib

import numpy as np

from tuner.arrays import Flags, Floats32, Ints32


class RandomModel:
    """Gives scores that depend on the row and the seed alone, once it was fitted.

    Implements `CostModel`.
    """

    def __init__(self, seed: int = 0) -> None:
        self._seed = seed
        self._fitted = False

    def fit(
        self,
        features: Floats32,
        latencies_s: Floats32,
        groups: Ints32,
        censored: Flags | None = None,
    ) -> None:
        """Learn nothing."""
        self._fitted = True

    def predict(self, features: Floats32) -> Floats32:
        """A number in [0, 1) for each row, the same for equal rows; zeros before `fit`."""
        if not self._fitted:
            return np.zeros(len(features), dtype=np.float32)
        return np.array([self._score(row) for row in features], dtype=np.float32)

    def _score(self, row: Floats32) -> float:
        data = row.astype(np.float32).tobytes()
        digest = hashlib.blake2b(data, digest_size=4, key=str(self._seed).encode()).digest()
        return int.from_bytes(digest, "big") / 2**32

    def dump(self) -> bytes:
        """The seed, or nothing before `fit`."""
        return str(self._seed).encode() if self._fitted else b""

    def load(self, data: bytes) -> None:
        """Become the model that `dump` wrote.

        Raises:
            ValueError: the bytes are not from `dump`.
        """
        if data and not data.isdigit():
            raise ValueError("not a cost model")
        if data:
            self._seed = int(data)
        self._fitted = bool(data)
