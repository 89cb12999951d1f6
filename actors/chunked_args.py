"""Large values as pieces that travel along with a call.

Ray sends arguments below 100 kB with the call itself. It keeps larger ones in object stores, with
copies on the machines that used them; a worker that picks a copy on a machine that is gone waits
for ten seconds before it asks another. Values that every worker needs to start should not wait.
"""

from __future__ import annotations

import pickle
import zlib
from typing import Any

_PIECE_BYTES = 64 << 10


def in_pieces(value: Any) -> tuple[bytes, ...]:
    """A value, packed, each piece small enough to be an argument that travels with its call."""
    data = zlib.compress(pickle.dumps(value), 6)
    return tuple(data[i : i + _PIECE_BYTES] for i in range(0, len(data), _PIECE_BYTES))


def join_pieces(pieces: tuple[bytes, ...]) -> Any:
    """The value that `in_pieces` packed. Only for pieces from this cluster, since it unpickles."""
    return pickle.loads(zlib.decompress(b"".join(pieces)))
