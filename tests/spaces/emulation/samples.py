"""Random samples of the spaces that there are for CUDA, run on the emulated device."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from itertools import count, product
from typing import Any

import numpy as np

from spaces.check.case import Case
from spaces.check.reference import reference
from spaces.codegen.artifact import build_artifact, load_kernel
from spaces.design_space.knob_space import KnobSpace
from spaces.design_space.trace_space import TraceSpace
from spaces.devices.emulated import ZonedChecker
from spaces.ir.schedules import InvalidCandidate, task_module
from spaces.ir.symbolic import specialised
from spaces.lowering.extract_tasks import task_of
from spaces.targets.target import emulated_target
from spaces.templates.base import Knobs, draw, setting
from spaces.templates.registry import templates_of
from tests.contracts.programs import write_down
from tests.spaces.templates.gpu import test_gpu_contraction as contraction
from tuner.candidate import Draft
from tuner.task import Instance, Task

_MISSES = 200
"""Draws that are infeasible, or known, one after the other, after which a space counts as small."""
_SIZES = {"M": (1, 331), "N": (203,), "T": (1, 211), "K": (75,), "B": (3,)}
"""Of symbolic dimensions: 1, and more than two and a half of the largest tiles."""
AMPERE = emulated_target('{"kind":"cuda","arch":"sm_80"}')


@dataclass(frozen=True, slots=True)
class Sample:
    """A schedule of a program.

    Attributes:
        settings: what tells it from other samples.
    """

    module: Any
    settings: str


def check(task: Task, sample: Sample, instances: tuple[Instance, ...] = ((),)) -> list[str]:
    """Build a sample and run it on each draw of the task's inputs; what is wrong, in words."""
    import tvm

    kernel = load_kernel(build_artifact(sample.module, task.target))
    found = []
    for instance in instances:
        for case in cases(task, instance):
            checker = ZonedChecker(None, task.target)
            tensors = checker.feed(case)
            kernel.module["main"](*kernel.arguments(tensors, tvm.cpu()))
            if error := checker.wrong(case, tensors):
                found.append(f"{dict(instance)}: {error}")
    return found


@cache
def cases(task: Task, instance: Instance) -> tuple[Case, ...]:
    """Inputs and right outputs of a task on one shape."""
    module = specialised(task_module(task.module), dict(instance))
    return reference(module, f"sample-{task.key}-{instance}").cases


def drawn(task: Task, number: int, seed: int = 0) -> Iterator[Sample]:
    """Samples of the space of TVM's rules, no two of them equal."""
    space, seen, missed = TraceSpace(task), set[str](), 0
    for each in count(seed):
        missed += 1
        if missed > _MISSES:
            return
        try:
            point = space.realize_draft(Draft(task.key, each, each))
        except InvalidCandidate:
            continue
        if point.candidate.payload in seen:
            continue
        seen.add(point.candidate.payload)
        missed = 0
        yield Sample(point.schedule.mod, point.candidate.payload)
        if len(seen) == number:
            return


def _product(m: int, n: int, k: int, dtype: str, sums: str) -> Any:
    from tvm import te

    a, b = te.placeholder((m, k), dtype, "a"), te.placeholder((k, n), dtype, "b")
    along = te.reduce_axis((0, k), "k")

    def element(i: Any, j: Any) -> Any:
        return te.sum(a[i, along].astype(sums) * b[along, j].astype(sums), along)

    return te.create_prim_func([a, b, te.compute((m, n), element, "c")])


def _batched(q: int, m: int, n: int, k: int) -> Any:
    from tvm import te, topi

    a, b = te.placeholder((q, m, k), name="a"), te.placeholder((q, n, k), name="b")
    return te.create_prim_func([a, b, topi.nn.batch_matmul(a, b)])


def _convolution() -> Any:
    from tvm import te, topi

    x = te.placeholder((1, 19, 23, 17), name="x")
    w = te.placeholder((37, 19, 3, 3), name="w")
    return te.create_prim_func([x, w, topi.nn.relu(topi.nn.conv2d_nchw(x, w, 1, 1, 1))])


def _softmax() -> Any:
    from tvm import te, topi

    x = te.placeholder((35, 333), name="x")
    return te.create_prim_func([x, topi.nn.softmax(x)])


def _activation() -> Any:
    from tvm import te, topi

    x = te.placeholder((77, 131), "float16", name="x")
    y = te.placeholder((77, 131), "float16", name="y")
    return te.create_prim_func([x, y, topi.nn.relu(topi.add(topi.tanh(x), y))])


PROGRAMS: Mapping[str, Callable[[], Any]] = {
    "float32": lambda: _product(203, 171, 195, "float32", "float32"),
    "float16 in float32": lambda: _product(176, 208, 240, "float16", "float32"),
    "float16": lambda: _product(176, 208, 240, "float16", "float16"),
    "batched": lambda: _batched(5, 67, 83, 75),
    "convolution": _convolution,
    "softmax": _softmax,
    "activation": _activation,
}
"""Programs of known shapes, whose spaces are those of TVM's rules. Sizes are no multiples of tiles
but where tensor cores want whole matrices of 16."""


@cache
def task(name: str) -> Task:
    """The task of a program of known shapes."""
    return task_of(PROGRAMS[name](), AMPERE, name=name.replace(" ", "_"))


SYMBOLIC = tuple(contraction.PROGRAMS)
"""Programs with symbolic sizes, whose space is the template's."""


@cache
def _space(name: str) -> tuple[Task, KnobSpace]:
    """The space of the template of a symbolic program of the template's own tests."""
    program, dims = contraction.PROGRAMS[name]
    values = product(*(_SIZES[dim] for dim in dims))
    shapes = tuple((tuple(zip(dims, value, strict=True)), 1.0) for value in values)
    known = replace(task_of(program(), AMPERE, name="symbolic"), shapes=shapes)
    (template,) = templates_of(known)
    return known, KnobSpace(known, template)


def symbolic_task(name: str) -> Task:
    """The task of a program with symbolic sizes, with the shapes that its samples run on."""
    return _space(name)[0]


def settings_of(name: str, number: int, seed: int = 0) -> Iterator[Sample]:
    """Samples of a template's space: first each value of each knob in turn, then any."""
    _, space = _space(name)
    columns = draw(space.template, 20_000, np.random.default_rng(seed))
    feasible = np.flatnonzero(np.isfinite(space.template.costs_s(columns)))
    settings = {tuple(setting(columns, int(row)).items()): None for row in feasible}
    for knobs in _spread([dict(items) for items in settings], number):
        yield Sample(write_down(space, knobs).schedule.mod, str(knobs))


def _spread(settings: list[Knobs], number: int) -> list[Knobs]:
    """Some settings, each next one with the values that are rarest so far."""
    counts: Counter[tuple[str, int]] = Counter()
    found: list[Knobs] = []
    left = list(settings)
    while left and len(found) < number:
        some = left[: 50 + len(found)]
        best = min(some, key=lambda knobs: sum(counts[item] for item in knobs.items()))
        left.remove(best)
        found.append(best)
        counts.update(best.items())
    return found
