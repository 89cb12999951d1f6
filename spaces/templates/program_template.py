"""The template of kernels that are written as programs: its settings make no schedule."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from spaces.ir import tvm_compat
from spaces.ir.schedules import new_schedule
from spaces.templates.base import Columns, Costs, Knobs
from tuner.task import Instance

Sizes = Any
"""The sizes of a program in one shape, or in many as arrays, in a form of the kernels' own."""


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

    def cycles(self, sizes: Sizes, columns: Columns) -> Any:
        """What settings are estimated to take in a shape, or one in many shapes."""

    def traits(self, sizes: Sizes, columns: Columns) -> npt.NDArray[np.float32]:
        """Features of settings for a cost model, in a shape or of one in many: one row each."""

    def stack(self, each: Sequence[Sizes]) -> Sizes:
        """The sizes of many shapes as arrays."""

    def write(self, schedule: Any, knobs: Knobs) -> Any:
        """The PrimFunc of a setting.

        Args:
            schedule: a fresh one of the program.
        """


class ProgramTemplate:
    """Kernels, estimated for the shapes of a task.

    Args:
        hertz: of the device, in whose cycles kernels are estimated.
        sizes: those of a typical shape, mostly the largest; `shapes` those of each that it is tuned
            for.
        hedged: see `spaces.templates.base.KnowsRules`.
    """

    def __init__(
        self,
        kernels: Kernels,
        hertz: float,
        sizes: Sizes,
        shapes: Mapping[Instance, Sizes],
        *,
        hedged: bool = True,
    ) -> None:
        self.hedged = hedged
        self._kernels, self._hertz, self._sizes, self._shapes = kernels, hertz, sizes, shapes
        self._choices = kernels.choices

    @property
    def name(self) -> str:
        return self._kernels.name

    @property
    def choices(self) -> Mapping[str, tuple[int, ...]]:
        return self._choices

    def at(self, instance: Instance) -> ProgramTemplate:
        """See `spaces.templates.base.ShapedTemplate`."""
        shaped = copy.copy(self)
        shaped._sizes = self._shapes[instance]
        return shaped

    def costs_s(self, columns: Columns) -> Costs:
        seconds = self._kernels.cycles(self._sizes, columns) / self._hertz
        return np.where(self._kernels.feasible(columns), seconds, np.inf)

    def shape_costs_s(self, knobs: Knobs) -> Costs:
        """See `spaces.templates.base.ShapedTemplate`."""
        cycles = self._kernels.cycles(*self._over_shapes(knobs))
        return np.asarray(cycles / self._hertz, dtype=np.float64)

    def layout(self, knobs: Knobs) -> str:
        """See `spaces.templates.base.ShapedTemplate`: these kernels take operands as they are."""
        return ""

    def traits(self, columns: Columns) -> npt.NDArray[np.float32]:
        """See `spaces.features.knob_features.HasTraits`."""
        return self._kernels.traits(self._sizes, columns)

    def shape_traits(self, knobs: Knobs) -> npt.NDArray[np.float32]:
        """See `spaces.features.knob_features.HasShapeTraits`."""
        return self._kernels.traits(*self._over_shapes(knobs))

    def apply(self, schedule: Any, knobs: Knobs) -> Any:
        program = self._kernels.write(schedule, knobs)
        return new_schedule(tvm_compat.normalize(program))

    def _over_shapes(self, knobs: Knobs) -> tuple[Sizes, Columns]:
        """The sizes of all shapes, and a setting once for each of them."""
        every = [*self._shapes.values()]
        columns = {name: np.full(len(every), value, np.int64) for name, value in knobs.items()}
        return self._kernels.stack(every), columns
