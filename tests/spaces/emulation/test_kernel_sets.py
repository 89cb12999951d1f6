"""Kernel sets for CUDA with their dispatch trees, executed on the emulated device: every size of a
range, zero, and sizes beyond it."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from spaces.codegen.executable import LoadedModel, compile_module
from spaces.deploy.apply import apply_best
from spaces.design_space.knob_space import KnobSpace
from spaces.emulation.buffers import call_zoned
from spaces.frontends.model import load_model
from spaces.lowering.extract_tasks import extract
from spaces.lowering.lower import lower
from spaces.templates.base import Knobs, draw, setting
from spaces.templates.registry import templates_of
from tests.spaces.emulation.samples import AMPERE
from tests.spaces.templates.tensor_cores.products import HOPPER, Sizes, task_for
from tuner.candidate import Candidate, of_knobs, specialise_for
from tuner.dynamic.dispatch_tree import Leaf, Split, Tree, pick
from tuner.dynamic.kernel_set import KernelSet, ShapeTimes
from tuner.request.model_spec import ModelSpec
from tuner.task import Task

pytestmark = pytest.mark.tvm
EXAMPLES = Path(__file__).parents[3] / "examples"
_LAST = 40
BEYOND = (41, 64, 65, 129, 331)


def kernels(task: Task) -> list[Candidate]:
    """Three kernels whose settings have little in common."""
    space = KnobSpace(task, templates_of(task)[0])
    columns = draw(space.template, 5_000, np.random.default_rng(0))
    feasible = np.flatnonzero(np.isfinite(space.template.costs_s(columns)))[:300]
    left = [setting(columns, int(row)) for row in feasible]
    found: list[Knobs] = []
    for _ in range(3):
        seen = Counter(item for knobs in found for item in knobs.items())
        found.append(min(left[:50], key=lambda knobs: sum(seen[item] for item in knobs.items())))
        left.remove(found[-1])
    return [of_knobs(knobs, space.name) for knobs in found]


def applied(source: str, dims: Any, copies: tuple[int, ...] = (), **arguments: int) -> Any:
    """An example, compiled with three kernels, and copies of them for some sizes."""
    spec = ModelSpec(f"{EXAMPLES}/{source}", args=tuple(arguments.items()), dims=dims)
    model = load_model(spec)
    lowered = lower(model.module, AMPERE)
    (task,) = extract(lowered, AMPERE, shapes=model.shapes)
    ((dim, _),) = task.shapes[0][0]
    tree: Tree = Split(dim, 7, Leaf(0), Split(dim, 24, Leaf(1), Leaf(2)))
    three, times = kernels(task), []
    for size in copies:
        shape, number = ((dim, size),), pick(tree, {dim: size})
        copy = specialise_for(three[number], shape)
        times.append(ShapeTimes(shape, 1.0, number, 1e-6, 1e-6, True, copy=copy))
    chosen = KernelSet(tuple(three), tree, (1.0,), 1.0, tuple(times), None, 0)
    return compile_module(apply_best({}, AMPERE, {task.key: (task, chosen)})(lowered), AMPERE)


@pytest.mark.parametrize(
    "copies", [(), pytest.param((1, 8, 40), marks=pytest.mark.long)], ids=["kernels", "copies"]
)
def test_a_product_is_right_for_every_number_of_rows(copies: tuple[int, ...]) -> None:
    library = applied("gemm.py:gemm", (("M", (4, 24, _LAST)),), copies, n=72, k=40).library
    rng = np.random.default_rng(0)
    b = rng.standard_normal((40, 72)).astype("float32")
    for rows in (0, *range(1, _LAST + 1), *BEYOND):
        a = rng.standard_normal((rows, 40)).astype("float32")
        *_, got = call_zoned(library["gemm"], [a, b, np.full((rows, 72), np.nan, np.float32)])
        np.testing.assert_allclose(got, a @ b, rtol=1e-4, atol=1e-4, err_msg=str(rows))


@pytest.mark.parametrize("first", ["tensor cores", "few rows", "split terms"])
def test_a_product_in_halves_on_hopper_is_right_for_any_number_of_rows(first: str) -> None:
    import tvm

    task = task_for("open rows", Sizes("m", 72, 40))
    spaces = [KnobSpace(task, template) for template in templates_of(task)]
    cores, few = (space.ranked for space in spaces)
    split = next(knobs for knobs in few if knobs["splits"] == 2)
    number, small = {"tensor cores": (0, cores[0]), "few rows": (1, few[0])}.get(first, (1, split))
    two = [of_knobs(small, spaces[number].name), of_knobs(cores[-1], spaces[0].name)]
    times = (ShapeTimes(instance, 1.0, 0, 1e-6, 1e-6, True) for instance, _ in task.shapes)
    tree: Tree = Split("m", 7, Leaf(0), Leaf(1))
    chosen = KernelSet(tuple(two), tree, (1.0,), 1.0, tuple(times), None, 0)
    lowered = tvm.ir.load_json(task.module)
    apply = apply_best({}, HOPPER, {task.key: (task, chosen)})
    library = compile_module(apply(lowered), HOPPER).library
    rng = np.random.default_rng(0)
    b = rng.standard_normal((40, 72)).astype("float16")
    for rows in (0, 1, 6, 7, 8, 64, 65, *BEYOND):
        a = rng.standard_normal((rows, 40)).astype("float16")
        *_, got = call_zoned(library["main"], [a, b, np.full((rows, 72), np.nan, np.float16)])
        wanted = a.astype("float32") @ b.astype("float32")
        np.testing.assert_allclose(got, wanted, rtol=2e-3, atol=2e-2, err_msg=str(rows))


@pytest.mark.long
def test_a_network_is_right_for_every_number_of_rows() -> None:
    executable = applied("dense.py:dense", (("T", (1, 3, 8)),), features=40, layers=1)
    rng = np.random.default_rng(0)
    weight = (rng.standard_normal((40, 40)) * np.sqrt(2 / 40)).astype("float32")
    bias = rng.standard_normal(40).astype("float32")
    for rows in (0, *range(1, 140), 257, 400):
        x = np.random.default_rng(rows).standard_normal((rows, 40)).astype("float32")
        (got,) = LoadedModel(executable, [x]).outputs()
        wanted = np.maximum(x @ weight + bias, 0)
        np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-4, err_msg=str(rows))
