"""Kernels of symbolic programs: settings that suit one, and runs that catch what they do wrong."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from spaces.check.draws import arguments
from spaces.codegen.artifact import build_artifact, load_kernel
from spaces.design_space.knob_space import KnobSpace
from spaces.ir.schedules import task_module
from spaces.ir.symbolic import specialise
from spaces.templates.base import Template
from tuner.task import Task

Array = np.ndarray[Any, Any]
GUARD = np.float32(-7.25)
_RED_ZONE = 64
"""Elements on each side of an output that nobody may write."""


class Zoned:
    """Tensors of a call whose last, the output, is NaN between red zones."""

    def __init__(self, task: Task, values: dict[str, int], seed: int) -> None:
        import tvm

        args = arguments(specialise(task_module(task.module), values)["main"])
        rng = np.random.default_rng(seed)
        self.inputs = [rng.standard_normal(a.shape).astype("float32") for a in args[:-1]]
        size = math.prod(args[-1].shape)
        # TVM wants tensors aligned to 64 bytes: the zones are whole multiples of that.
        raw = np.empty(size + 3 * _RED_ZONE, "float32")
        start = (-raw.ctypes.data // 4) % 16
        self._whole = raw[start : start + size + 2 * _RED_ZONE]
        self._whole[:] = GUARD
        self._inside = slice(_RED_ZONE, _RED_ZONE + size)
        self._whole[self._inside] = np.nan
        self._shape = args[-1].shape
        view = self._whole[self._inside].reshape(self._shape)
        self.tensors = [*map(tvm.runtime.tensor, self.inputs), tvm.runtime.from_dlpack(view)]

    @property
    def output(self) -> Array:
        return self._whole[self._inside].reshape(self._shape)

    @property
    def zones_are_whole(self) -> bool:
        start, stop = self._inside.start, self._inside.stop
        zones = np.concatenate([self._whole[:start], self._whole[stop:]])
        return bool((zones == GUARD).all())


def check_shapes(
    task: Task,
    module: Any,
    shapes: Sequence[dict[str, int]],
    expected: Callable[..., Array],
) -> None:
    """Build a scheduled module once, run it for some shapes, compare with numpy."""
    import tvm

    kernel = load_kernel(build_artifact(module, task.target))
    for values in shapes:
        zoned = Zoned(task, values, seed=sum(values.values()))
        kernel.module["main"](*kernel.arguments(zoned.tensors, tvm.cpu()))
        want = expected(*zoned.inputs)
        np.testing.assert_allclose(zoned.output, want, rtol=1e-4, atol=1e-4, err_msg=str(values))
        assert zoned.zones_are_whole, values


@lru_cache
def _space(task: Task, template: Template) -> KnobSpace:
    """One for all tests of a template: it ranks thousands of settings for each shape."""
    return KnobSpace(task, template)


def feasible(task: Task, template: Template, number: int, seed: int) -> list[dict[str, int]]:
    """Settings that are feasible for one of the task's shapes, any one equally likely."""
    space = _space(task, template)
    rng = np.random.default_rng(seed)
    found = []
    for place in rng.choice(len(task.shapes), size=number):
        ranked = space.at(task.shapes[int(place)][0]).ranked
        assert ranked, "a shape without a feasible setting"
        found.append(ranked[int(rng.integers(len(ranked)))])
    return found
