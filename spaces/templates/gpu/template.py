"""The micro-kernel template for matrix products with symbolic dimensions on a GPU."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from spaces.ir.guard import refusals
from spaces.ir.unchecked_schedule import Unchecked
from spaces.targets.gpu import Gpu, gpu_of
from spaces.templates.base import Columns, Costs, Knobs, Template
from spaces.templates.contraction.match import Match, describe, extents_of_shapes
from spaces.templates.contraction.shape import Contraction, over_shapes
from spaces.templates.gpu import knob_model
from spaces.templates.gpu.knob_model import Roles
from spaces.templates.gpu.schedule import write_gpu_contraction
from tuner.task import Instance, Shapes, Task

_VERSION = 1
_DTYPE = "float32"


class GpuContractionTemplate:
    """Tiles of a product, each computed by a block of threads.

    Args:
        contraction: the computation, for a typical shape.
        roles: the roles of its axes, as rows and columns.
        extents: extents of the axes for each shape that it is tuned for.
    """

    def __init__(
        self,
        contraction: Contraction,
        roles: Roles,
        gpu: Gpu,
        extents: Mapping[Instance, Sequence[int]],
    ) -> None:
        self._contraction = contraction
        self._roles = roles
        self._gpu = gpu
        self._extents = extents
        self._choices = knob_model.choices_of()

    def at(self, instance: Instance) -> GpuContractionTemplate:
        """See `spaces.templates.base.ShapedTemplate`."""
        shaped = copy.copy(self)
        shaped._contraction = self._contraction.of_extents(self._extents[instance])
        return shaped

    def shape_costs_s(self, knobs: Knobs) -> Costs:
        """See `spaces.templates.base.ShapedTemplate`."""
        shapes, columns = over_shapes(self._contraction, self._extents, knobs)
        cycles = knob_model.estimate(shapes, self._roles, self._gpu, columns).cycles
        return np.asarray(cycles / self._gpu.hertz)

    def layout(self, knobs: Knobs) -> str:
        """See `spaces.templates.base.ShapedTemplate`: these kernels take operands as they are."""
        return ""

    def on(self, gpu: Gpu) -> GpuContractionTemplate:
        """The same template on another device."""
        return GpuContractionTemplate(self._contraction, self._roles, gpu, self._extents)

    def shared_bytes(self, knobs: Mapping[str, Any]) -> Any:
        """Shared memory of a block; of one setting, or of many as arrays."""
        return knob_model.shared_bytes(self._contraction, self._roles, knob_model.block_of(knobs))

    @property
    def name(self) -> str:
        return f"kernel:gpu-contraction-{_VERSION}"

    @property
    def choices(self) -> Mapping[str, tuple[int, ...]]:
        return self._choices

    def costs_s(self, columns: Columns) -> Costs:
        return knob_model.costs_s(self._contraction, self._roles, self._gpu, columns)

    def traits(self, columns: Columns) -> npt.NDArray[np.float32]:
        """See `spaces.templates.gpu.knob_model.traits`."""
        return knob_model.traits(self._contraction, self._roles, self._gpu, columns)

    def shape_traits(self, knobs: Knobs) -> npt.NDArray[np.float32]:
        """See `spaces.features.knob_features.HasShapeTraits`."""
        shapes, columns = over_shapes(self._contraction, self._extents, knobs)
        return knob_model.traits(shapes, self._roles, self._gpu, columns)

    def apply(self, schedule: Any, knobs: Knobs) -> Any:
        write_gpu_contraction(Unchecked(schedule), self._contraction, self._roles, knobs)
        return schedule


def gpu_contraction_templates(task: Task, match: Match | None) -> list[Template]:
    """The template of a task with symbolic dimensions; empty where it is no product in float32."""
    if match is None or not _all_floats(match.main):
        return []
    found = None
    with refusals(f"the template for products on GPUs, {task.name}"):
        found = _find(match, task.shapes)
    if found is None:
        return []
    contraction, roles, extents = found
    return [GpuContractionTemplate(contraction, roles, gpu_of(task.target), extents)]


def _find(
    match: Match, shapes: Shapes
) -> tuple[Contraction, Roles, Mapping[Instance, Sequence[int]]] | None:
    """A program as rows and columns, described for the largest of its shapes."""
    extents, largest = extents_of_shapes(match, shapes)
    for way in describe(match, largest):
        roles = knob_model.roles_of(way)
        if roles is not None:
            return way, roles, extents
    return None


def _all_floats(block: Any) -> bool:
    regions = [*block.reads, *block.writes]
    return all(str(region.source.dtype) == _DTYPE for region in regions)
