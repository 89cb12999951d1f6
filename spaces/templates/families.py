"""What differs between the ways to write programs that compute the same kind of thing,
such as products."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import numpy as np
import numpy.typing as npt

from spaces.templates.base import Columns, Knobs
from spaces.templates.program_template import Sizes

W = TypeVar("W")
"""Of what it computes, of some sizes."""
Write = TypeVar("Write")
"""Of what writes a setting."""
Device = TypeVar("Device")
"""Of what a machine's limits are described by: `Gpu` or `Cpu`."""


@dataclass(frozen=True, slots=True)
class Family(Generic[W, Write, Device]):
    """One way to write. A tile is what follows from a setting, or from many as arrays.

    Attributes:
        name: of the space; it changes when `write` does.
        choices_of: gives the values of each knob.
        tile_of: gives the sizes of a setting, or of many.
        feasible: tells which keep to the limits of the hardware.
        write: writes a setting.
        cycles: estimates what it takes.
        traits: gives features of settings for a cost model; the same columns for all of a kind.
    """

    name: str
    choices_of: Callable[[W], Mapping[str, tuple[int, ...]]]
    tile_of: Callable[[Mapping[str, Any]], Any]
    feasible: Callable[[W, Device, Any], Any]
    write: Write
    cycles: Callable[[W, Device, Any], Any]
    traits: Callable[[W, Device, Any], npt.NDArray[np.float32]]


@dataclass(frozen=True, slots=True)
class FamilyKernels(Generic[W, Write, Device]):
    """See `spaces.templates.program_template.Kernels`.

    Attributes:
        largest: what they compute, of the largest sizes.
        at: gives the same of other sizes.
        stack: gives the sizes of many shapes as arrays.
        write_tile: gives the PrimFunc of a setting, of a fresh schedule and a tile.
    """

    family: Family[W, Write, Device]
    largest: W
    device: Device
    at: Callable[[Sizes], W]
    stack: Callable[[Sequence[Sizes]], Sizes]
    write_tile: Callable[[Any, Any], Any]

    @property
    def name(self) -> str:
        return self.family.name

    @property
    def choices(self) -> Mapping[str, tuple[int, ...]]:
        return self.family.choices_of(self.largest)

    def feasible(self, columns: Columns) -> npt.NDArray[np.bool_]:
        """See `Kernels`."""
        found = self.family.feasible(self.largest, self.device, self.family.tile_of(columns))
        return np.asarray(found, dtype=np.bool_)

    def cycles(self, sizes: Sizes, columns: Columns) -> Any:
        """See `Kernels`."""
        return self.family.cycles(self.at(sizes), self.device, self.family.tile_of(columns))

    def traits(self, sizes: Sizes, columns: Columns) -> npt.NDArray[np.float32]:
        """See `Kernels`."""
        return self.family.traits(self.at(sizes), self.device, self.family.tile_of(columns))

    def write(self, schedule: Any, knobs: Knobs) -> Any:
        """See `Kernels`."""
        return self.write_tile(schedule, self.family.tile_of(knobs))
