"""The kinds of kernels for a program bound by memory: rows, and tiles that are transposed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from spaces.passes.cuda.thread_programs import in_block
from spaces.targets.gpu import Gpu
from spaces.templates.base import Columns, Costs, Knobs
from spaces.templates.gpu_memory.facts import Extents, Facts, stack
from spaces.templates.gpu_memory.program import Program, Walk
from spaces.templates.gpu_memory.reader import read_program
from spaces.templates.gpu_memory.rows import knob_model
from spaces.templates.gpu_memory.rows.setting import setting_of
from spaces.templates.gpu_memory.rows.writer import write_program
from spaces.templates.gpu_memory.tiles import knob_model as tile_model
from spaces.templates.gpu_memory.tiles.writer import TileWriter
from spaces.templates.gpu_memory.versions import Writer, write_versions
from spaces.templates.program_template import Kernels


@dataclass(frozen=True, slots=True)
class RowKernels:
    """See `spaces.templates.gpu_memory.rows.writer`.

    Attributes:
        largest: the sizes of the largest shape.
        values: sizes of the symbolic dimensions for which the structure is decided.
    """

    facts: Facts
    largest: Extents
    gpu: Gpu
    values: Mapping[str, int]

    @property
    def name(self) -> str:
        return "kernel:gpu-memory-2"

    @property
    def choices(self) -> Mapping[str, tuple[int, ...]]:
        return knob_model.choices_of(self.facts)

    def feasible(self, columns: Columns) -> npt.NDArray[np.bool_]:
        """See `Kernels`."""
        return knob_model.feasible(self.facts, self.largest, self.gpu, setting_of(columns))

    def cycles(self, sizes: Extents, columns: Columns) -> Costs:
        """See `Kernels`."""
        setting = setting_of(columns)
        found = knob_model.estimate(self.facts, sizes, self.largest, self.gpu, setting)
        return np.asarray(found.cycles, dtype=np.float64)

    def traits(self, sizes: Extents, columns: Columns) -> npt.NDArray[np.float32]:
        """See `Kernels`."""
        setting = setting_of(columns)
        return knob_model.traits(self.facts, sizes, self.largest, self.gpu, setting)

    def stack(self, each: Sequence[Extents]) -> Extents:
        """See `Kernels`."""
        return stack(each)

    def write(self, schedule: Any, knobs: Knobs) -> Any:
        """See `Kernels`."""
        parameters, program = _read(schedule, self.values)
        setting = setting_of(knobs)
        held = int(knob_model.count_held(self.facts, self.largest, setting))
        return in_block(write_program(program, parameters, setting, held))


@dataclass(frozen=True, slots=True)
class TileKernels:
    """See `spaces.templates.gpu_memory.tiles.writer`.

    Attributes:
        values: sizes of the symbolic dimensions for which the structure is decided.
    """

    facts: Facts
    gpu: Gpu
    values: Mapping[str, int]

    @property
    def name(self) -> str:
        return "kernel:gpu-transpose-1"

    @property
    def choices(self) -> Mapping[str, tuple[int, ...]]:
        return tile_model.choices_of(self.facts)

    def feasible(self, columns: Columns) -> npt.NDArray[np.bool_]:
        """See `Kernels`."""
        return tile_model.feasible(self.facts, self.gpu, tile_model.tile_of(columns))

    def cycles(self, sizes: Extents, columns: Columns) -> Costs:
        """See `Kernels`."""
        tile = tile_model.tile_of(columns)
        found = tile_model.estimate(self.facts, sizes, self.gpu, tile)
        return np.asarray(found.cycles, dtype=np.float64)

    def traits(self, sizes: Extents, columns: Columns) -> npt.NDArray[np.float32]:
        """See `Kernels`."""
        return tile_model.traits(self.facts, sizes, self.gpu, tile_model.tile_of(columns))

    def stack(self, each: Sequence[Extents]) -> Extents:
        """See `Kernels`."""
        return stack(each)

    def write(self, schedule: Any, knobs: Knobs) -> Any:
        """See `Kernels`."""
        parameters, program = _read(schedule, self.values)
        tile = tile_model.tile_of(knobs)

        def writer(T: Any, vector: int, symbols: Sequence[Any]) -> Writer:
            return TileWriter(T, program, tile, vector, symbols)

        vector, threads = int(tile.vector), int(tile.threads)
        return in_block(write_versions(program, parameters, writer, vector, threads))


def kernels_of(
    program: Program, facts: Facts, largest: Extents, gpu: Gpu, values: Mapping[str, int]
) -> Kernels:
    """The kind of kernels for a program.

    Args:
        largest: the sizes of the largest shape.
        values: sizes of the symbolic dimensions for which the structure is decided.
    """
    if program.walk is Walk.TILES:
        return TileKernels(facts, gpu, values)
    return RowKernels(facts, largest, gpu, values)


def _read(schedule: Any, values: Mapping[str, int]) -> tuple[list[Any], Program]:
    """The parameters of a program, and the program after inlining, which changes its schedule."""
    parameters = [*schedule.mod["main"].params]
    return parameters, read_program(schedule, values)
