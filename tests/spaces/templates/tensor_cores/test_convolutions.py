"""Convolutions in halves and in bytes as products: which ones are, and what the compiler makes of
them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from spaces.codegen.cuda.compile import compile_cuda
from spaces.design_space.knob_space import KnobSpace
from spaces.ir.schedules import task_module
from spaces.lowering.extract_tasks import task_of
from spaces.targets.gpu import gpu_of
from spaces.templates.registry import templates_of
from tests.needed import needs_nvcc
from tests.spaces.templates.open_programs import names
from tests.spaces.templates.tensor_cores.convolutions import (
    BYTE_PROGRAMS,
    LAYER,
    OPEN,
    PROGRAMS,
    STEM,
    Convolution,
    task_for,
    task_of_convolution,
)
from tests.spaces.templates.tensor_cores.products import AMPERE, HOPPER
from tests.spaces.templates.tensor_cores.test_hopper_template import compile_setting, disassemble
from tuner.candidate import of_knobs
from tuner.task import Task

pytestmark = pytest.mark.tvm


def space_of(task: Task) -> KnobSpace:
    template, *_ = templates_of(task)
    return KnobSpace(task, template)


@pytest.mark.parametrize("name", PROGRAMS)
def test_convolutions_in_halves_in_any_layout_are_products(name: str) -> None:
    assert names(task_for(name, HOPPER))[0].startswith("kernel:hopper-product-")
    assert names(task_for(name, AMPERE))[0].startswith("kernel:ampere-product-")


def test_a_convolution_with_a_filter_for_each_channel_is_none() -> None:
    depthwise = Convolution(2, (9, 9), 48, 48, (3, 3), padding=1, groups=48)
    assert not any("product" in name for name in names(task_of_convolution(depthwise, AMPERE)))


@pytest.mark.parametrize("name", BYTE_PROGRAMS)
def test_convolutions_of_bytes_are_of_warpgroups_where_the_terms_of_both_are_dense(
    name: str,
) -> None:
    program, warps = BYTE_PROGRAMS[name], ["kernel:ampere-int8-product-1"]
    warpgroups = ["kernel:hopper-int8-product-3"]
    assert names(task_of_convolution(program, AMPERE)) == warps
    found = names(task_of_convolution(program, HOPPER))
    assert found == (warpgroups if program.terms_last else warps)


def test_what_is_padded_with_another_number_than_zero_is_left_to_the_rules() -> None:
    edited(task_for("3x3"), {"T.float16(0.0))": "T.float16(1.0))"})
    bytes_padded = task_of_convolution(BYTE_PROGRAMS["7x7 of colours"], AMPERE)
    edited(bytes_padded, {"T.uint8(0))": "T.uint8(3))"})


def test_what_is_zero_elsewhere_than_beyond_the_tensor_is_left_to_the_rules() -> None:
    edited(task_for("3x3"), {"T.int64(1) <= v_i1 and": "T.int64(2) <= v_i1 and"})


def edited(task: Task, edits: Mapping[str, str]) -> None:
    """Nothing of ours takes an edited program, of which only the edit is another."""
    from tvm.script import from_source

    text = task_module(task.module)["main"].script()
    for old, new in edits.items():
        assert old in text
        text = text.replace(old, new)
    assert not any("product" in n for n in names(task_of(from_source(text), AMPERE, name="edited")))


@pytest.mark.each_value
@pytest.mark.parametrize("target", [AMPERE, HOPPER], ids=["ampere", "hopper"])
@pytest.mark.parametrize("name", ["3x3", "open images", "channels first"])
def test_no_padded_copy_of_the_images_is_made(name: str, target: str) -> None:
    """Nothing but parameters is in the device's memory."""
    space = space_of(task_for(name, target))
    text = space.write(of_knobs(space.ranked[0], space.name)).mod["main"].script()
    scopes = {*re.findall(r"alloc_\w+\([^\n]*?scope=\"([\w.]+)\"", text)}
    assert scopes <= {"local", "shared.dyn"}
    assert "pad_temp" not in text


def test_estimates_know_that_taps_share_elements_and_what_it_takes_to_find_them() -> None:
    """Of one layer: threads that copy element by element take longer, and so do more taps of the
    same images; none is quicker than tensor cores and the memory."""
    gpu = gpu_of(AMPERE)
    least = {
        "layer": space_of(task_of_convolution(LAYER, AMPERE)).least_s,
        "first": space_of(task_of_convolution(replace(LAYER, first=True), AMPERE)).least_s,
        "5x5": space_of(
            task_of_convolution(replace(LAYER, kernel=(5, 5), padding=2), AMPERE)
        ).least_s,
    }
    assert least["layer"] < least["5x5"]
    assert least["layer"] < least["first"]
    operations = 2 * 8 * 56 * 56 * 64 * 64 * 9
    images = 8 * 56 * 56 * 64 * 2
    memory_s = 3 * images / (gpu.numbers.gigabytes_per_s * 1e9)
    assert least["layer"] > operations / (gpu.tensor_operations * gpu.multiprocessors * gpu.hertz)
    # Nine copies of the images from the device's memory would take longer than this.
    assert memory_s < least["layer"] < 9 * images / (gpu.numbers.gigabytes_per_s * 1e9)


@pytest.mark.parametrize("target", [AMPERE, HOPPER], ids=["ampere", "hopper"])
def test_a_setting_is_estimated_on_all_shapes_as_on_each(target: str) -> None:
    task = task_of_convolution(OPEN, target)
    template, *_ = templates_of(task)
    knobs = KnobSpace(task, template).ranked[0]
    together = template.shape_costs_s(knobs)  # type: ignore[attr-defined]
    columns = {name: np.array([value]) for name, value in knobs.items()}
    alone = [template.at(i).costs_s(columns)[0] for i, _ in task.shapes]  # type: ignore[attr-defined]
    np.testing.assert_allclose(together, alone)


@needs_nvcc
@pytest.mark.each_value
@pytest.mark.parametrize("layer", [LAYER, OPEN, STEM], ids=["layer", "open", "stem"])
@pytest.mark.parametrize(("target", "arch"), [(AMPERE, "sm_80"), (HOPPER, "sm_90a")])
def test_the_best_predicted_multiply_on_tensor_cores_what_was_copied_ahead(
    layer: Convolution, target: str, arch: str, tmp_path: Path
) -> None:
    space = space_of(task_of_convolution(layer, target))
    source = compile_setting(space, space.ranked[0], target).imports[0].inspect_source("cuda")
    code = compile_cuda(source, arch)
    (use,) = code.uses.values()
    assert use.stack_bytes == use.spill_store_bytes == 0
    assembly = disassemble(code.binary, tmp_path)
    products = {*re.findall(r"HMMA\.\w+|HGMMA\.64x\d+x16\.F32", assembly)}
    assert products == {"HMMA.16816"} if arch == "sm_80" else all("HGMMA" in p for p in products)
    assert products
    assert ("LDGSTS.E.BYPASS.128" in assembly) == (layer is not STEM or arch == "sm_80")


@needs_nvcc
@pytest.mark.parametrize(
    ("target", "arch", "terms_last", "multiplied"),
    [
        (AMPERE, "sm_80", True, r"IMMA\.16832\.U8\.S8"),
        (AMPERE, "sm_80", False, r"IMMA\.16832\.U8\.S8"),
        (HOPPER, "sm_90a", True, r"IGMMA\.64x\d+x32\.U8\.S8"),
    ],
)
def test_the_best_predicted_multiply_bytes_that_were_copied_ahead(
    target: str, arch: str, terms_last: bool, multiplied: str, tmp_path: Path
) -> None:
    layer = replace(LAYER, kind="uint8", kernels="int8", terms_last=terms_last)
    space = space_of(task_of_convolution(layer, target))
    knobs = next(s for s in space.ranked if not s["swap"])
    source = compile_setting(space, knobs, target).imports[0].inspect_source("cuda")
    code = compile_cuda(source, arch)
    (use,) = code.uses.values()
    assert use.stack_bytes == use.spill_store_bytes == 0
    assembly = disassemble(code.binary, tmp_path)
    products = re.findall(r"IG?MMA\.[\w.]+", assembly)
    assert products
    assert all(re.match(multiplied, product) for product in products)
    assert "LDGSTS.E.BYPASS.128" in assembly
    assert ("LDSM.16.MT88" in assembly) == (not terms_last)
    assert "LDG.E.U8" not in assembly


@needs_nvcc
def test_products_of_copied_windows_are_in_flight_together(tmp_path: Path) -> None:
    """A fence between a stage's arrival and its products makes none of them wait for the last."""
    space = space_of(task_of_convolution(LAYER, HOPPER))
    source = compile_setting(space, space.ranked[0]).imports[0].inspect_source("cuda")
    assembly = disassemble(compile_cuda(source, "sm_90a").binary, tmp_path)
    order = re.findall(r"FENCE\.VIEW\.ASYNC|HGMMA|DEPBAR\.LE gsb0, 0x[01]|F2FP", assembly)
    products = [place for place, word in enumerate(order) if word == "HGMMA"]
    waits = [place for place, word in enumerate(order) if word.endswith("0x0")]
    reads = [place for place, word in enumerate(order) if word == "F2FP"]
    assert len(waits) == 1
    assert products[-1] < waits[0] < reads[0]
    assert "FENCE.VIEW.ASYNC" in order[: products[0]]
