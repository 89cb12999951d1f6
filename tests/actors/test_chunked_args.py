"""Values in pieces come back as they were, and no piece is too large to travel with a call."""

from __future__ import annotations

import random

from actors.chunked_args import in_pieces, join_pieces

RAY_SENDS_ALONG_BYTES = 100 * 1024


def test_a_value_comes_back_as_it_was() -> None:
    value = {"a": [1, 2.5, None], "b": b"x" * 1000}
    assert join_pieces(in_pieces(value)) == value


def test_every_piece_of_a_large_value_is_small() -> None:
    value = random.Random(0).randbytes(1_000_000)
    pieces = in_pieces(value)
    assert len(pieces) > 10
    assert max(map(len, pieces)) < RAY_SENDS_ALONG_BYTES
    assert join_pieces(pieces) == value
