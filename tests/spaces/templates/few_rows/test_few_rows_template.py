"""The template for products with few rows: what it takes, what it is estimated to take, and what
the compiler makes of it."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from spaces.codegen.cuda.compile import compile_cuda
from spaces.features.knob_features import TRAITS
from spaces.lowering.extract_tasks import task_of
from spaces.targets.gpu import STATIC_SHARED_BYTES, gpu_of, register_limit
from spaces.targets.target import emulate_target
from spaces.templates.base import Template, every
from spaces.templates.few_rows.family import NAME
from spaces.templates.few_rows.knobs import FewTile, tile_of
from spaces.templates.few_rows.roles import Roles
from spaces.templates.registry import templates_of
from spaces.templates.thread_products.family import NAME as THREADS
from tests.needed import needs_nvcc
from tests.spaces.templates.few_rows.few_row_programs import PROGRAMS, matmul, space_for, task_for
from tests.spaces.templates.open_programs import all_values, list_feasible, names
from tests.spaces.templates.tensor_cores.products import AMPERE, HOPPER
from tests.spaces.templates.tensor_cores.test_hopper_template import compile_setting, disassemble
from tuner.task import Task

pytestmark = pytest.mark.tvm

DECODE = [(4096, 4096), (11008, 4096), (4096, 11008)]
"""Columns and terms of products with a row of a token."""
NT, NN = (
    Roles(0, 1, turned, 8, 8, item=2, few_item=2, packed=False, most_rows=1)
    for turned in (False, True)
)
"""Of products in halves, whose rows lie as operands mostly do."""


def product(target: str, *sizes: Any, **layout: Any) -> Task:
    return task_of(matmul(*sizes, **layout), target, name="product")


def open_product(target: str, rows: list[int], **layout: Any) -> Task:
    shapes = tuple(((("m", size),), 1.0) for size in rows)
    return replace(product(target, "m", 4096, 4096, **layout), shapes=shapes)


# ---- what it takes


@pytest.mark.parametrize("name", PROGRAMS)
def test_products_with_few_rows_have_it_in_any_layout_and_type(name: str) -> None:
    assert names(task_for(name, AMPERE))[-1] == NAME


def test_it_comes_after_templates_for_any_number_of_rows() -> None:
    few, many = (open_product(HOPPER, rows, nt=True) for rows in ([1, 64], [64, 4096]))
    assert names(few) == [*names(many), NAME]
    assert NAME not in names(many)
    single = open_product(HOPPER, [1, 64], kind="float32")
    assert names(single) == [THREADS, "kernel:ampere-tf32x3-product-1", NAME]


def test_many_rows_and_other_types_are_left_to_others() -> None:
    assert names(product(AMPERE, 32, 200, 64, kind="float32"))[-1] == NAME
    assert NAME not in names(product(AMPERE, 33, 200, 64, kind="float32"))
    assert NAME not in names(product(AMPERE, 1, 200, 64, kind="float64"))


def test_devices_without_copies_ahead_have_it_too() -> None:
    old = emulate_target('{"kind":"cuda","arch":"sm_70"}')
    assert names(product(old, 1, 200, 64, nt=True)) == [THREADS, NAME]


# ---- settings


@pytest.mark.parametrize("name", ["sixteen rows", "one row NN float32", "TN", "open rows"])
def test_each_value_of_a_knob_is_in_some_setting_within_the_limits(name: str) -> None:
    space = space_for(task_for(name, AMPERE))
    used, settings = list_feasible(space.template, step=500)
    assert used == all_values(space.template)
    gpu = gpu_of(AMPERE)
    for knobs in settings:
        tile = tile_of(NT, knobs)
        assert 32 <= tile.threads <= 512
        assert tile.registers <= register_limit(gpu, tile.threads)
        assert tile.shared_bytes <= STATIC_SHARED_BYTES


def test_loads_are_as_wide_as_each_row_s_beginning_allows() -> None:
    def widest(*sizes: Any, **layout: Any) -> int:
        return max(space_for(product(AMPERE, *sizes, **layout)).template.choices["vector"])

    assert widest(1, 77, 64, nt=True) == widest(1, 64, 77) == 8
    assert widest(1, 64, 77, nt=True) == widest(1, 77, 64) == 1
    assert widest(1, 64, 12, nt=True) == widest(1, 64, 64, kind="float32") == 4


def test_traits_are_finite_numbers_of_each_setting_and_of_each_shape() -> None:
    space = space_for(open_product(AMPERE, [1, 7, 40], nt=True))
    template: Any = space.template
    columns = {name: np.array([s[name] for s in space.ranked[:50]]) for name in template.choices}
    traits, on_shapes = template.traits(columns), template.shape_traits(space.ranked[0])
    assert traits.shape[1] == on_shapes.shape[1] <= TRAITS
    assert (len(traits), len(on_shapes)) == (50, 3)
    assert np.isfinite(traits).all()
    assert np.isfinite(on_shapes).all()
    assert len(np.unique(traits, axis=0)) > 40


# ---- estimates


def tile_of_best(task: Task, roles: Roles) -> FewTile:
    return tile_of(roles, space_for(task).ranked[0])


@pytest.mark.each_value
@pytest.mark.parametrize("target", [AMPERE, HOPPER], ids=["ampere", "hopper"])
@pytest.mark.parametrize(("columns", "terms"), DECODE)
def test_the_best_predicted_keep_all_multiprocessors_busy_with_wide_loads(
    target: str, columns: int, terms: int
) -> None:
    gpu = gpu_of(target)
    for roles in (NT, NN):
        task = product(target, 1, columns, terms, nt=not roles.turned)
        tile = tile_of_best(task, roles)
        assert -(-columns // tile.block_columns) * tile.splits > 0.95 * gpu.multiprocessors
        assert tile.vector * roles.item == 16
        assert tile.loads >= 4


def test_few_columns_of_many_terms_are_split_between_blocks() -> None:
    task = product(HOPPER, 1, 64, 65536)
    best = space_for(task).ranked[0]
    assert best["splits"] > 1
    assert best["term_threads"] > 1


def test_no_estimate_is_below_what_memory_takes() -> None:
    gpu = gpu_of(HOPPER)
    for columns, terms in DECODE:
        moved = 2 * (columns * terms + columns + terms)
        least_s = moved / (gpu.numbers.gigabytes_per_s * 1e9)
        found = space_for(product(HOPPER, 1, columns, terms, nt=True)).least_s
        assert least_s < found < 2 * least_s


def test_of_open_rows_the_few_are_estimated_to_be_faster_here_and_the_many_elsewhere() -> None:
    rows = [1, 16, 1024]
    task = open_product(HOPPER, rows, nt=True)
    by_cores, by_few = templates_of(task)
    cores, few = least_s_of(by_cores, task), least_s_of(by_few, task)
    alone = least_s_of(by_cores, task, a_blocks=1, b_blocks=1)
    assert few[0] <= alone[0]
    assert few[0] <= 1.02 * cores[0]  # clusters share what they copy of a row, at a guessed price
    assert few[2] > 3 * cores[2]
    single = open_product(HOPPER, rows, kind="float32")
    *others, few = (least_s_of(template, single) for template in templates_of(single))
    for other in others:
        assert few[0] < other[0]
        assert few[2] > other[2]


def least_s_of(template: Template, task: Task, **fixed: int) -> list[float]:
    """The least estimate on each of a task's shapes, of settings with some values fixed."""
    shaped: Any = template
    columns = every(template)
    columns = {**columns, **{k: np.full_like(columns[k], value) for k, value in fixed.items()}}
    return [float(shaped.at(shape).costs_s(columns).min()) for shape, _ in task.shapes]


# ---- what the compiler makes of it


@needs_nvcc
@pytest.mark.each_value
@pytest.mark.parametrize(("target", "arch"), [(AMPERE, "sm_80"), (HOPPER, "sm_90a")])
@pytest.mark.parametrize("terms", [4096, 11008])
def test_the_best_predicted_have_many_wide_loads_under_way_and_no_spills(
    target: str, arch: str, terms: int, tmp_path: Path
) -> None:
    space = space_for(product(target, 1, 4096, terms, nt=True))
    source = compile_setting(space, space.ranked[0], target).imports[0].inspect_source("cuda")
    code = compile_cuda(source, arch)
    assert all(use.stack_bytes == use.spill_store_bytes == 0 for use in code.uses.values())
    order = re.findall(r"LDG\.\S+|FFMA", disassemble(code.binary, tmp_path))
    loads = [word for word in order if word != "FFMA"]
    assert {re.sub(r"\.CONSTANT", "", word) for word in loads} == {"LDG.E.128"}
    assert order.index("FFMA") >= 4
    assert order.count("FFMA") > len(loads)


@needs_nvcc
def test_blocks_that_share_terms_leave_their_sums_to_a_second_kernel() -> None:
    space = space_for(product(AMPERE, 1, 64, 65536))
    known = [next(s for s in space.ranked if s["splits"] == n) for n in (1, 4)]
    kernels = [
        compile_cuda(
            compile_setting(space, knobs, AMPERE).imports[0].inspect_source("cuda"), "sm_80"
        ).uses
        for knobs in known
    ]
    assert [len(uses) for uses in kernels] == [1, 2]
