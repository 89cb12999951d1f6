"""Convolutions as products that threads multiply: which ones are, what they are estimated to take,
and what the compiler makes of them."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from spaces.codegen.cuda.compile import compile_cuda
from spaces.design_space.knob_space import KnobSpace
from spaces.targets.gpu import gpu_of
from spaces.templates.registry import templates_of
from spaces.templates.thread_products.family import NAME
from tests.needed import needs_nvcc
from tests.spaces.emulation.samples import AMPERE, OLD
from tests.spaces.templates.tensor_cores import convolutions
from tests.spaces.templates.tensor_cores.convolutions import (
    SINGLE_PROGRAMS,
    Convolution,
    task_for,
    task_of_convolution,
)
from tests.spaces.templates.tensor_cores.products import HOPPER
from tests.spaces.templates.tensor_cores.test_hopper_template import compile_setting, disassemble
from tests.spaces.templates.thread_products.test_thread_products import (
    count_instructions,
    find_loop,
)
from tests.spaces.templates.thread_products.thread_product_programs import space_for
from tuner.candidate import of_knobs

pytestmark = pytest.mark.tvm
LAYER, OPEN, STEM = (
    replace(c, kind="float32") for c in (convolutions.LAYER, convolutions.OPEN, convolutions.STEM)
)
FIRST = replace(LAYER, first=True)


def space_of(layer: Convolution, target: str) -> KnobSpace:
    return space_for(task_of_convolution(layer, target))


@pytest.mark.parametrize("name", SINGLE_PROGRAMS)
def test_convolutions_in_singles_in_any_layout_are_products(name: str) -> None:
    for target in (AMPERE, OLD):
        task = task_of_convolution(SINGLE_PROGRAMS[name], target)
        assert [t.name for t in templates_of(task)] == [NAME]


def test_threads_of_older_devices_multiply_windows_in_halves_too() -> None:
    assert [t.name for t in templates_of(task_for("3x3", OLD))] == [NAME]
    assert NAME not in [t.name for t in templates_of(task_for("3x3", AMPERE))]


@pytest.mark.each_value
@pytest.mark.parametrize("target", [AMPERE, OLD], ids=["ampere", "old"])
@pytest.mark.parametrize("name", ["3x3", "open images", "channels first"])
def test_no_padded_copy_of_the_images_is_made(name: str, target: str) -> None:
    """Nothing but parameters is in the device's memory."""
    space = space_of(SINGLE_PROGRAMS[name], target)
    text = space.write(of_knobs(space.ranked[0], space.name)).mod["main"].script()
    scopes = {*re.findall(r"alloc_\w+\([^\n]*?scope=\"([\w.]+)\"", text)}
    assert scopes <= {"local", "shared.dyn"}
    assert "pad_temp" not in text


@pytest.mark.parametrize("target", [AMPERE, HOPPER], ids=["ampere", "hopper"])
def test_estimates_are_near_what_the_products_take_and_know_what_it_takes_to_find_windows(
    target: str,
) -> None:
    gpu = gpu_of(target)
    products = 8 * 56 * 56 * 64 * 64 * 9
    multiplying_s = products / (gpu.madds * gpu.multiprocessors * gpu.hertz)
    last, first = (space_of(layer, target).least_s for layer in (LAYER, FIRST))
    assert multiplying_s < last < first < 2 * multiplying_s


def test_a_setting_is_estimated_on_all_shapes_as_on_each() -> None:
    task = task_of_convolution(OPEN, AMPERE)
    template: Any = space_for(task).template
    knobs = space_for(task).ranked[0]
    columns = {name: np.array([value]) for name, value in knobs.items()}
    alone = [template.at(shape).costs_s(columns)[0] for shape, _ in task.shapes]
    np.testing.assert_allclose(template.shape_costs_s(knobs), alone)


@needs_nvcc
@pytest.mark.each_value
@pytest.mark.parametrize("layer", [LAYER, FIRST, OPEN], ids=["last", "first", "open"])
@pytest.mark.parametrize(
    ("target", "arch"),
    [(HOPPER, "sm_90a"), pytest.param(AMPERE, "sm_80", marks=pytest.mark.long)],
)
def test_the_best_predicted_multiply_most_of_the_time_windows_that_were_copied_ahead(
    layer: Convolution, target: str, arch: str, tmp_path: Path
) -> None:
    """Of channels that come first, each element is copied by itself; no other loop finds them."""
    space = space_of(layer, target)
    source = compile_setting(space, space.ranked[0], target).imports[0].inspect_source("cuda")
    code = compile_cuda(source, arch)
    (use,) = code.uses.values()
    assert use.stack_bytes == use.spill_store_bytes == 0
    found = count_instructions(find_loop(disassemble(code.binary, tmp_path)))
    # A device whose multiprocessors start half as many products as instructions has more time.
    is_hard = layer.first or gpu_of(target).madds < 128
    assert found["FFMA"] / found.total() > (0.65 if is_hard else 0.75)
    assert ("LDGSTS.E" in found) == layer.first
    assert "LDGSTS.E.BYPASS.128" in found
    assert found["BRA"] == 1
    assert not any(word.startswith(("LDG.", "STS", "LDL", "STL")) for word in found)


@needs_nvcc
def test_a_first_layer_of_colours_is_copied_ahead_element_by_element(tmp_path: Path) -> None:
    space = space_of(STEM, HOPPER)
    source = compile_setting(space, space.ranked[0], HOPPER).imports[0].inspect_source("cuda")
    code = compile_cuda(source, "sm_90a")
    (use,) = code.uses.values()
    assert use.stack_bytes == use.spill_store_bytes == 0
    found = count_instructions(find_loop(disassemble(code.binary, tmp_path)))
    assert found["LDGSTS.E"] > 0
    assert found["FFMA"] / found.total() > 0.6
