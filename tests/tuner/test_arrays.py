"""Feature vectors as bytes: all stores keep the same ones, on any machine."""

from __future__ import annotations

import numpy as np
import pytest

from tuner.arrays import vector_bytes, vector_of


def test_a_vector_is_little_endian_float32() -> None:
    assert vector_bytes(np.array([1.0, -2.5], np.float32)) == bytes.fromhex("0000803f000020c0")
    assert vector_bytes(np.array([1.0], ">f4")) == bytes.fromhex("0000803f")


def test_it_comes_back_bit_for_bit_and_may_be_written_to() -> None:
    vector = np.array([0.1, np.nan, np.inf, -0.0], np.float32)
    back = vector_of(vector_bytes(vector))
    assert back.tobytes() == vector.tobytes()
    assert back.flags.writeable
    assert vector_of(b"").size == 0


def test_half_a_number_is_refused() -> None:
    with pytest.raises(ValueError, match="multiple of"):
        vector_of(b"\0\0\0")
