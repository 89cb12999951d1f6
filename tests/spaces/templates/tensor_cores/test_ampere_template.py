"""The template for products on tensor cores from Ampere on: its settings, and what the compiler
makes of them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from spaces.codegen.cuda.compile import compile_cuda
from spaces.design_space.knob_space import KnobSpace
from spaces.targets.gpu import gpu_of
from spaces.templates.registry import templates_of
from spaces.templates.tensor_cores import ampere_knobs
from spaces.templates.tensor_cores.tile import HALVES
from tests.needed import needs_nvcc
from tests.spaces.templates.open_programs import all_values, list_feasible
from tests.spaces.templates.tensor_cores.products import AMPERE, HOPPER, PROGRAMS, Sizes, task_for
from tests.spaces.templates.tensor_cores.test_hopper_template import (
    LARGE,
    compile_setting,
    disassemble,
    find_left,
)

pytestmark = pytest.mark.tvm
SHARED_AND_NOT = [(256, 1024, 8192), (4096, 4096, 4096)]
"""Rows, columns and terms of products with few tiles and with many."""


def space_of(name: str, sizes: Sizes) -> KnobSpace:
    task = task_for(name, sizes, AMPERE)
    template, *_ = templates_of(task)
    return KnobSpace(task, template)


@pytest.mark.parametrize("name", ["NT", "TT", "open rows"])
def test_each_value_of_a_knob_is_in_some_setting_within_the_limits(name: str) -> None:
    space = space_of(name, PROGRAMS[name][1][0])
    used, settings = list_feasible(space.template, step=50)
    assert used == all_values(space.template)
    gpu = gpu_of(AMPERE)
    for knobs in settings:
        tile = ampere_knobs.tile_of(HALVES, knobs)
        assert tile.block_bytes(16) <= gpu.dynamic_shared_bytes
        assert tile.threads * tile.registers(gpu) <= gpu.registers


@pytest.mark.parametrize("target", [AMPERE, HOPPER], ids=["sm_80", "sm_90a"])
def test_blocks_share_the_terms_of_sums_where_results_are_few(target: str) -> None:
    few, many = (
        KnobSpace(task, templates_of(task)[0]).ranked[0]
        for task in (task_for("NT", Sizes(*sizes), target) for sizes in SHARED_AND_NOT)
    )
    assert few["splits"] > 1 == many["splits"]


def test_what_blocks_leave_of_open_sizes_is_counted_in_64_bits() -> None:
    left = find_left(space_of("open rows", Sizes("m", 4096, 4096)))
    assert {str(number.ty.dtype) for number in left} == {"int64"}


@needs_nvcc
@pytest.mark.each_value
@pytest.mark.parametrize("sizes", LARGE, ids=str)
@pytest.mark.parametrize("name", ["NT", "NN"])
def test_the_best_predicted_multiply_what_was_copied_ahead(
    name: str, sizes: Sizes, tmp_path: Path
) -> None:
    space = space_of(name, sizes)
    best = space.ranked[0]
    source = compile_setting(space, best, AMPERE).imports[0].inspect_source("cuda")
    code = compile_cuda(source, "sm_80")
    (use,) = code.uses.values()
    assert use.stack_bytes == use.spill_store_bytes == 0
    assert use.registers <= gpu_of(AMPERE).registers // use.threads
    assembly = disassemble(code.binary, tmp_path)
    assert {*re.findall(r"HMMA\.\w+", assembly)} == {"HMMA.16816"}
    assert "LDSM.16" in assembly
    copied = (sizes.k, sizes.k if name == "NT" else sizes.n)
    assert ("LDGSTS.E.BYPASS.128" in assembly) == any(size % 8 == 0 for size in copied)
    assert best["stages"] >= 3
