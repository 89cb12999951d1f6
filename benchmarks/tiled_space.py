"""One template, declared as a trace and as an opaque function, for `benchmarks.opaque`."""

from __future__ import annotations

from typing import Any

from examples.mixed_space import in_tiles
from tuner import space


def tiles(sch: Any) -> None:
    """The product and its ReLU in tiles that are drawn."""
    rows, columns = sch.get_loops(sch.get_sblock("compute"))
    in_tiles(sch, sch.sample_perfect_tile(rows, 2, 16), sch.sample_perfect_tile(columns, 2, 64))


AS_TRACE = space.template(tiles)
AS_OPAQUE = space.template(tiles, opaque=True)
