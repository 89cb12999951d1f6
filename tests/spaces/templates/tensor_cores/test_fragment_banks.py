"""What the threads of a warp read at once lies in different banks of shared memory."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import pytest

from spaces.templates.products.source import Source
from spaces.templates.tensor_cores.elements.byte_fragments import ByteFragments
from spaces.templates.tensor_cores.elements.single_fragments import SingleFragments
from spaces.templates.tensor_cores.fragments import Fragments
from spaces.templates.tensor_cores.operand import Operand
from spaces.templates.tensor_cores.tile import element_of

WARP, BANKS, BANK_BYTES, MATRIX_ROWS = 32, 32, 4, 8
ROWS = 128


class Stages:
    """Shared memory that notes which elements are read."""

    def __init__(self) -> None:
        self.read: list[int] = []

    def ptr_to(self, at: list[int]) -> None:
        self.read.append(at[1])

    def __getitem__(self, at: tuple[int, int]) -> MagicMock:
        self.read.append(at[1])
        return MagicMock()


def fragments_of(kind: str, lane: int) -> Fragments:
    if kind == "float32":
        return SingleFragments(MagicMock(), lane, MagicMock())
    return (ByteFragments if kind == "int8" else Fragments)(MagicMock(), kind, lane)


def read_by_warp(kind: str, rows: int, *, turned: bool) -> list[list[int]]:
    """The bytes that each lane's reads of a tile begin at, one read of all lanes after the other,
    for each place of an instruction, as rows and as columns."""
    element = element_of(kind)
    source = Source(SimpleNamespace(dtype=kind), turned, True, rows, element.line, MagicMock())
    told: dict[str, Any] = {"rows": rows, "lines": rows, "depth": element.line, "threads": WARP}
    lanes = []
    for lane in range(WARP):
        side, fragments = Operand(MagicMock(), source, **told), fragments_of(kind, lane)
        side.stages = Stages()
        for term in range(0, element.line, element.terms):
            for row in range(0, rows, 16):
                fragments.load_rows(side, MagicMock(), 0, 0, row, term)
                fragments.load_columns(side, MagicMock(), 0, row, term)
        lanes.append([offset * element.bytes for offset in side.stages.read])
    return [list(each) for each in zip(*lanes, strict=True)]


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("kind", ["float16", "int8", "float32"])
@pytest.mark.parametrize("rows", [ROWS, ROWS // 2])
def test_what_a_warp_reads_at_once_lies_in_different_banks(
    kind: str, rows: int, turned: bool
) -> None:
    by_words = kind == "float32" and turned
    width, together = (BANK_BYTES, WARP) if by_words else (16, MATRIX_ROWS)
    for places in read_by_warp(kind, rows, turned=turned):
        for first in range(0, WARP, together):
            banks = [place // width % (BANKS * BANK_BYTES // width) for place in places[first:]]
            assert len({*banks[:together]}) == together


@pytest.mark.parametrize("kind", ["float16", "int8", "float32"])
@pytest.mark.parametrize("rows", [ROWS, ROWS // 2])
@pytest.mark.parametrize("turned", [False, True])
def test_each_element_of_a_tile_has_a_place_of_its_own(kind: str, rows: int, turned: bool) -> None:
    depth = element_of(kind).line
    source = Source(SimpleNamespace(dtype=kind), turned, True, rows, depth, MagicMock())
    side = Operand(MagicMock(), source, rows=rows, lines=rows, depth=depth, threads=WARP)
    places = {side.offset(row, term) for row in range(rows) for term in range(depth)}
    assert places == {*range(rows * depth)}
