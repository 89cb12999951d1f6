"""The template for symbolic programs that no other one knows: loops in parallel and in vectors.

TVM's rules do nothing with symbolic dimensions, so without this template such a program would run
as it was written, on one core. Each stage keeps its loops: those of its result that are not
contiguous come first and are shared out to the cores, then reductions, then vectors of the result.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import numpy as np

from spaces.ir import tvm_compat
from spaces.ir.guard import Unsuitable, refusals
from spaces.ir.schedules import new_schedule, task_module
from spaces.ir.symbolic import is_symbolic, value_of
from spaces.targets.cpu import Cpu, cpu_of
from spaces.templates.base import Columns, Costs, Knobs, Template, one_by_one
from spaces.templates.contraction.match import sums
from tuner.task import Instance, Task

_VERSION = 1
_CHOICES: Mapping[str, tuple[int, ...]] = MappingProxyType(
    {"fused": (0, 1, 2, 3), "vectors": (0, 1, 2, 4)}
)
"""Loops fused into the parallel one (0: serial), and registers that a vector spans (0: none)."""
_STEP_S, _LAUNCH_S = 1e-9, 4e-6


class PlainLoops:
    """A template that schedules a program stage by stage.

    Args:
        lanes: elements of a vector register.
        points: for each shape how often the bodies of all stages run.
    """

    def __init__(self, cpu: Cpu, lanes: int, points: Mapping[Instance, float]) -> None:
        self._cpu = cpu
        self._lanes = lanes
        self._points = points
        self._looked_at = max(points.values())

    @property
    def name(self) -> str:
        return f"kernel:loops-{_VERSION}"

    @property
    def choices(self) -> Mapping[str, tuple[int, ...]]:
        return _CHOICES

    def at(self, instance: Instance) -> PlainLoops:
        """See `spaces.templates.base.ShapedTemplate`."""
        shaped = copy.copy(self)
        shaped._looked_at = self._points[instance]
        return shaped

    def costs_s(self, columns: Columns) -> Costs:
        return one_by_one(columns, lambda knobs: self._cost_s(knobs, self._looked_at))

    def shape_costs_s(self, knobs: Knobs) -> Costs:
        """See `spaces.templates.base.ShapedTemplate`."""
        return np.array([self._cost_s(knobs, points) for points in self._points.values()])

    def layout(self, knobs: Knobs) -> str:
        """See `spaces.templates.base.ShapedTemplate`; nothing is packed."""
        return ""

    def _cost_s(self, knobs: Knobs, points: float) -> float:
        cores = self._cpu.cores if knobs["fused"] else 1
        seconds = points * _STEP_S / (self._lanes if knobs["vectors"] else 1)
        return seconds / cores + _LAUNCH_S * (knobs["fused"] > 0)

    def apply(self, schedule: Any, knobs: Knobs) -> Any:
        for block in tvm_compat.stage_blocks(schedule):
            readers = [schedule.get(reader) for reader in schedule.get_consumers(block)]
            if readers and not any(map(sums, [schedule.get(block), *readers])):
                _inline(schedule, block)
        for block in tvm_compat.stage_blocks(schedule):
            _write(schedule, block, knobs, self._lanes)
        return schedule


def plain_loops(task: Task) -> Template | None:
    """The template for a task with symbolic dimensions; None where its loops are not plain."""
    if not task.shapes:
        return None
    module = task_module(task.module)
    cpu = cpu_of(task.target)
    with refusals(f"the template for plain loops, {task.name}"):
        schedule = new_schedule(module)
        blocks = [schedule.get(block) for block in tvm_compat.stage_blocks(schedule)]
        bits = min(tvm_compat.element_bits(w.source.dtype) for b in blocks for w in b.writes)
        points = {i: _points(blocks, dict(i)) for i, _ in task.shapes}
        found = PlainLoops(cpu, cpu.lanes(max(8, bits)), points)
        found.apply(schedule, {"fused": 2, "vectors": 1})
        return found
    return None


def _points(blocks: list[Any], values: Mapping[str, int]) -> float:
    extents = ([value_of(v.dom.extent, values) or 0 for v in b.iter_vars] for b in blocks)
    return float(sum(math.prod(each) for each in extents))


def _inline(schedule: Any, block: Any) -> None:
    """Inline a stage into its consumers, where TVM can."""
    with refusals("a stage of plain loops that stays one"):
        schedule.compute_inline(block)


def _write(schedule: Any, block: Any, knobs: Knobs, lanes: int) -> None:
    loops = list(schedule.get_loops(block))
    kinds = [int(axis.iter_type) for axis in schedule.get(block).iter_vars]
    if len(loops) != len(kinds) or set(kinds) - {tvm_compat.SPATIAL, tvm_compat.REDUCED}:
        raise Unsuitable("a stage is no plain loop nest")
    spatial = [x for x, kind in zip(loops, kinds, strict=True) if kind == tvm_compat.SPATIAL]
    summed = [x for x, kind in zip(loops, kinds, strict=True) if kind == tvm_compat.REDUCED]
    if not spatial:
        return
    *outer, lane = spatial
    width = _width(schedule, lane, lanes * knobs["vectors"])
    near = [lane]
    if width:
        far, last = schedule.split(lane, [None, width])
        outer, near = [*outer, far], [last]
    schedule.reorder(*outer, *summed, *near)
    outside = len(outer)
    if knobs["fused"] and outer:
        fused = min(knobs["fused"], len(outer))
        first = schedule.fuse(*outer[:fused]) if fused > 1 else outer[0]
        schedule.parallel(first)
        outside -= fused - 1
    if width:
        schedule.vectorize(near[0])
    if summed:
        schedule.decompose_reduction(block, list(schedule.get_loops(block))[outside])


def _width(schedule: Any, lane: Any, most: int) -> int:
    """The largest power of two from 2 to `most` that divides a loop's extent; 0 if none does."""
    extent = schedule.get(lane).extent
    if is_symbolic(extent) or most < 1:
        return 0
    steps = tvm_compat.as_int(extent) or 1
    widths = (1 << n for n in range(1, most.bit_length()))
    return max((w for w in widths if w <= most and steps % w == 0), default=0)
