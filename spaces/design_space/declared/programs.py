"""The space of the programs that a user's function makes from knobs."""

from __future__ import annotations

import inspect
import math
from collections.abc import Mapping
from functools import cached_property
from typing import Any

import numpy as np

from spaces.design_space.point import Point
from spaces.ir import tvm_compat
from spaces.ir.schedules import InvalidCandidate, code_hash, new_schedule, task_module
from spaces.targets.target import parse_target
from spaces.templates.base import draw, every, nudge, setting
from tuner.candidate import Candidate, Draft, knobs_of, of_knobs
from tuner.errors import UsageError, describe_error
from tuner.space.parts import Program
from tuner.task import Task

_FEW = 64
"""Settings of a space of which all points are counted, and then drafted."""
_DRAWN = 1024
"""Settings that are drawn at once, of which the first that is a point is taken."""


class ProgramSpace:
    """All programs that a function makes of one task's program.

    Args:
        name: of the space, which its candidates carry.
    """

    def __init__(self, task: Task, part: Program, name: str) -> None:
        self._task, self._part, self._name = task, part, name

    @property
    def name(self) -> str:
        """See `spaces.design_space.base.Space`."""
        return self._name

    @property
    def choices(self) -> Mapping[str, tuple[int, ...]]:
        """See `spaces.templates.base.HasChoices`."""
        return self._part.knobs

    @cached_property
    def points(self) -> int | None:
        """See `DeclaredSpace`: the number of few settings; one of them is tried.

        Raises:
            Exception: whatever the user's code raises, or it takes other knobs.
        """
        takes = [*inspect.signature(self._part.function).parameters][1:]
        if sorted(takes) != sorted(self.choices):
            has = ", ".join(self.choices)
            raise UsageError(f"{self._part.name} takes {', '.join(takes)}; its knobs are {has}")
        knobs = self._draw(None, np.random.default_rng(0))
        if knobs is None:
            return 0
        self._make(knobs)
        size = math.prod(map(len, self.choices.values()))
        if size > _FEW:
            return None
        columns = every(self)
        return sum(self._holds(setting(columns, row)) for row in range(size))

    def realize_draft(self, draft: Draft) -> Point:
        """See `spaces.design_space.base.Space`."""
        rng = np.random.default_rng(draft.seed)
        known = None
        if draft.parent is not None and draft.parent.space == self.name:
            known = knobs_of(draft.parent)
        knobs = self._draw(known, rng)
        if knobs is None:
            raise InvalidCandidate(f"{self.name}: none of {_DRAWN} settings is another point")
        candidate = of_knobs(knobs, self.name)
        schedule = self.write(candidate)
        return Point(candidate, schedule, code_hash(schedule.mod))

    def write(self, candidate: Candidate) -> Any:
        """See `spaces.design_space.base.Space`: the schedule is untouched."""
        try:
            return new_schedule(self._make(knobs_of(candidate) or {}))
        except Exception as error:  # a user's code may raise anything, and so may TVM
            raise InvalidCandidate(f"{self.name}: {describe_error(error)}") from error

    def _draw(
        self, known: Mapping[str, int] | None, rng: np.random.Generator
    ) -> dict[str, int] | None:
        """A setting that is a point, near a known one if there is one; None if none was drawn."""
        columns = draw(self, _DRAWN, rng) if known is None else nudge(self, known, _DRAWN, rng)
        for row in range(_DRAWN):
            knobs = setting(columns, row)
            if knobs != known and self._holds(knobs):
                return knobs
        return None

    def _holds(self, knobs: Mapping[str, int]) -> bool:
        where = self._part.where
        return where is None or bool(where(**knobs))

    def _make(self, knobs: Mapping[str, int]) -> Any:
        """The module that a setting stands for.

        Raises:
            UsageError: what the function returns is no program of the task's parameters.
        """
        program = task_module(self._task.module)["main"]
        with parse_target(self._task.target):
            made = self._part(program, **knobs)
        if not tvm_compat.is_prim_func(made):
            raise UsageError(f"{self._part.name} returns a {type(made).__name__}, and no PrimFunc")
        wanted, found = _tell_parameters(program), _tell_parameters(made)
        if wanted != found:
            raise UsageError(f"{self._part.name} takes {found}, and the program {wanted}")
        return tvm_compat.normalize(made)


def _tell_parameters(function: Any) -> str:
    return ", ".join(
        f"{tvm_compat.param_dtype(p)}{tvm_compat.param_shape(p)}" for p in function.params
    )
