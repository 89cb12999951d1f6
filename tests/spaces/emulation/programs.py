"""Right programs for the emulated device, and faults planted in them."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from spaces.design_space.knob_space import KnobSpace
from spaces.design_space.trace_space import TraceSpace
from spaces.emulation.buffers import call_zoned
from spaces.emulation.compile import compile_kernels
from spaces.emulation.host_code import emulated_pipeline
from spaces.emulation.library import architecture, load_kernels
from spaces.ir.schedules import InvalidCandidate
from spaces.lowering.extract_tasks import task_of
from spaces.passes.pipeline import tir_pipeline
from spaces.targets.target import parse_target, resolve_target
from spaces.templates.registry import templates_of
from tests.contracts.programs import write_down
from tests.spaces.emulation import hopper
from tests.spaces.emulation.planted_faults import Program
from tuner.candidate import Draft
from tuner.task import Task

Array = npt.NDArray[Any]
Edit = Callable[[str], str]

CUDA = resolve_target('{"kind":"cuda","arch":"sm_80"}')
_TOLERANCE = {"float32": 1e-4, "float16": 4e-3}


@dataclass(frozen=True, slots=True)
class Made:
    """A program compiled for the emulated device, up to the C++ compiler.

    Attributes:
        host: its host code, to be called with the module of its kernels imported.
        source: CUDA C of its kernels.
        arguments: what to call it with; the last is the output.
        expected: that output.
    """

    host: Any
    source: str
    target: Any
    arguments: tuple[Array, ...]
    expected: Array

    def outputs(self, edit: Edit | None = None, *, seed: int = 0, deadline_s: float = 20) -> Array:
        """The output of a run, with the source of the kernels edited.

        Raises:
            RuntimeError, TimeoutError, ValueError: the emulated device refuses it.
        """
        source = self.source if edit is None else edit(self.source)
        code = _compiled(source, architecture(str(self.target.attrs["arch"])))
        self.host.clear_imports()
        self.host.import_module(load_kernels(code, seed=seed, deadline_s=deadline_s))
        return call_zoned(_fresh(self.host)["main"], self.arguments)[-1]

    def is_right(self, output: Array) -> bool:
        """Whether an output is the expected one, up to rounding."""
        scale = float(np.abs(self.expected).max()) * _TOLERANCE[str(output.dtype)]
        return bool(np.allclose(output.astype("float64"), self.expected, rtol=0, atol=scale))
