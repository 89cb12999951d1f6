"""The kinds of kernels for a program bound by memory: rows, and tiles that are transposed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from spaces.targets.gpu import Gpu
from spaces.templates.base import Columns, Costs, Knobs
from spaces.templates.gpu_memory.facts import Extents, Facts
from spaces.templates.gpu_memory.program import Program, Walk
from spaces.templates.gpu_memory.rows import knob_model
from spaces.templates.gpu_memory.rows.setting import setting_of
from spaces.templates.gpu_memory.rows.writer import write_program
from spaces.templates.gpu_memory.tiles import knob_model as tile_model
from spaces.templates.gpu_memory.tiles.writer import TileWriter
from spaces.templates.gpu_memory.versions import Writer, write_versions


class Kernels(Protocol):
    """The kernels of a program, by the settings of some knobs."""

    @property
    def name(self) -> str:
        """Of the space that they span; the number changes with the programs that are written."""

    @property
    def choices(self) -> Mapping[str, tuple[int, ...]]:
        """Values of each knob."""

    def feasible(self, columns: Columns) -> npt.NDArray[np.bool_]:
        """Whether each setting keeps to the limits of the hardware, whatever the shape."""

    def cycles(self, extents: Extents, columns: Columns) -> Costs:
        """What settings are estimated to take in a shape, or one in many shapes."""

    def traits(self, extents: Extents, columns: Columns) -> npt.NDArray[np.float32]:
        """Features of settings for a cost model, in a shape or of one in many."""

    def write(self, program: Program, parameters: Sequence[Any], knobs: Knobs) -> Any:
        """The PrimFunc of a setting."""


@dataclass(frozen=True, slots=True)
class RowKernels:
    """See `spaces.templates.gpu_memory.rows.writer`.

    Attributes:
        largest: the sizes of the largest shape.
    """

    facts: Facts
    largest: Extents
    gpu: Gpu

    @property
    def name(self) -> str:
        return "kernel:gpu-memory-1"

    @property
    def choices(self) -> Mapping[str, tuple[int, ...]]:
        return knob_model.choices_of(self.facts)

    def feasible(self, columns: Columns) -> npt.NDArray[np.bool_]:
        """See `Kernels`."""
        return knob_model.feasible(self.facts, self.largest, self.gpu, setting_of(columns))

    def cycles(self, extents: Extents, columns: Columns) -> Costs:
        """See `Kernels`."""
        setting = setting_of(columns)
        found = knob_model.estimate(self.facts, extents, self.largest, self.gpu, setting)
        return np.asarray(found.cycles, dtype=np.float64)

    def traits(self, extents: Extents, columns: Columns) -> npt.NDArray[np.float32]:
        """See `Kernels`."""
        setting = setting_of(columns)
        return knob_model.traits(self.facts, extents, self.largest, self.gpu, setting)

    def write(self, program: Program, parameters: Sequence[Any], knobs: Knobs) -> Any:
        """See `Kernels`."""
        setting = setting_of(knobs)
        held = int(knob_model.count_held(self.facts, self.largest, setting))
        return write_program(program, parameters, setting, held)


@dataclass(frozen=True, slots=True)
class TileKernels:
    """See `spaces.templates.gpu_memory.tiles.writer`."""

    facts: Facts
    gpu: Gpu

    @property
    def name(self) -> str:
        return "kernel:gpu-transpose-1"

    @property
    def choices(self) -> Mapping[str, tuple[int, ...]]:
        return tile_model.choices_of(self.facts)

    def feasible(self, columns: Columns) -> npt.NDArray[np.bool_]:
        """See `Kernels`."""
        return tile_model.feasible(self.facts, self.gpu, tile_model.tile_of(columns))

    def cycles(self, extents: Extents, columns: Columns) -> Costs:
        """See `Kernels`."""
        tile = tile_model.tile_of(columns)
        found = tile_model.estimate(self.facts, extents, self.gpu, tile)
        return np.asarray(found.cycles, dtype=np.float64)

    def traits(self, extents: Extents, columns: Columns) -> npt.NDArray[np.float32]:
        """See `Kernels`."""
        return tile_model.traits(self.facts, extents, self.gpu, tile_model.tile_of(columns))

    def write(self, program: Program, parameters: Sequence[Any], knobs: Knobs) -> Any:
        """See `Kernels`."""
        tile = tile_model.tile_of(knobs)

        def writer(T: Any, vector: int, symbols: Sequence[Any]) -> Writer:
            return TileWriter(T, program, tile, vector, symbols)

        return write_versions(program, parameters, writer, int(tile.vector), int(tile.threads))


def kernels_of(program: Program, facts: Facts, largest: Extents, gpu: Gpu) -> Kernels:
    """The kind of kernels for a program.

    Args:
        largest: the sizes of the largest shape.
    """
    if program.walk is Walk.TILES:
        return TileKernels(facts, gpu)
    return RowKernels(facts, largest, gpu)
