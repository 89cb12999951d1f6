"""Products and convolutions of float32 in TF32, for targets that allow it."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from spaces.codegen.cuda.compile import compile_cuda
from spaces.design_space.knob_space import KnobSpace
from spaces.design_space.realize import realize
from spaces.ir.schedules import InvalidCandidate
from spaces.targets.gpu import gpu_of
from spaces.targets.target import emulate_target
from spaces.templates.registry import templates_of
from spaces.templates.tensor_cores.tile import TF32
from spaces.templates.thread_products.family import NAME as THREADS
from tests.needed import needs_nvcc
from tests.spaces.emulation.convolution_samples import best
from tests.spaces.emulation.samples import wrong
from tests.spaces.templates.open_programs import names
from tests.spaces.templates.tensor_cores import convolutions, single_products
from tests.spaces.templates.tensor_cores.convolutions import (
    CHANNELS_LAST_PROGRAMS,
    SINGLE_PROGRAMS,
    task_of_convolution,
)
from tests.spaces.templates.tensor_cores.products import AMPERE, HOPPER, Sizes, task_with
from tests.spaces.templates.tensor_cores.test_hopper_template import (
    LARGE,
    compile_setting,
    disassemble,
)
from tuner.candidate import of_knobs
from tuner.request.target_text import tf32
from tuner.task import Task

pytestmark = pytest.mark.tvm
Array = npt.NDArray[np.float32]
WARPS, WARPGROUPS = "kernel:ampere-tf32-product-1", "kernel:hopper-tf32-product-1"
WITH_TF32 = {
    arch: emulate_target(tf32(f'{{"kind":"cuda","arch":"{arch}"}}'))
    for arch in ("sm_75", "sm_80", "sm_90a")
}
LAYOUTS: dict[str, dict[str, bool]] = {"NT": {"nt": True}, "NN": {}, "TN": {"tn": True}}
LAYER = replace(convolutions.LAYER, kind="float32", terms_last=True, added=False)


def product_task(sizes: Sizes, target: str, **how: bool) -> Task:
    return task_with(lambda s: single_products.matmul(s, **how), sizes, target)


def space_of(task: Task) -> KnobSpace:
    return KnobSpace(task, next(t for t in templates_of(task) if t.name in (WARPS, WARPGROUPS)))


def run_best(task: Task, a: Array, b: Array, place: int = 0) -> Array:
    """What a product of rows by rows gives in the setting at a place of the best predicted."""
    import tvm

    from spaces.codegen.artifact import build_artifact, load_kernel

    space = space_of(task)
    module = space.write(of_knobs(space.ranked[place], space.name)).mod
    kernel = load_kernel(build_artifact(module, task.target))
    wanted = np.full((len(a), len(b)), 7, np.float32)
    tensors = [tvm.runtime.tensor(x) for x in (a, b, wanted)]
    kernel.module["main"](*tensors)
    got: Array = tensors[2].numpy()
    return got


@pytest.mark.parametrize("target", [WITH_TF32["sm_80"], WITH_TF32["sm_90a"]], ids=["80", "90"])
def test_products_of_a_target_that_allows_it_have_it(target: str) -> None:
    for sizes in (Sizes(64, 64, 64), Sizes(64, 64, 3), Sizes("m", 64, 64)):
        found = names(product_task(sizes, target))
        assert WARPS in found
        assert "kernel:ampere-tf32x3-product-1" not in found


def test_products_of_other_targets_have_it_not() -> None:
    assert WARPS not in names(product_task(Sizes(64, 64, 64), AMPERE))
    assert WARPS not in names(product_task(Sizes(64, 64, 64), WITH_TF32["sm_75"]))
    assert WARPGROUPS not in names(product_task(Sizes(64, 64, 64), HOPPER, nt=True))


def test_warpgroups_multiply_where_the_terms_of_both_lie_next_to_one_another() -> None:
    found = {
        name: names(task_with(program, sizes[0], WITH_TF32["sm_90a"]))
        for name, (program, sizes) in single_products.PROGRAMS.items()
    }
    of_warpgroups = {name for name, spaces in found.items() if WARPGROUPS in spaces}
    assert of_warpgroups == {*single_products.NT_PROGRAMS}
    assert all(WARPS in found[name] for name in {*found} - of_warpgroups)


def test_a_target_that_does_not_allow_it_refuses_its_settings() -> None:
    sizes = Sizes(64, 64, 64)
    space = space_of(product_task(sizes, WITH_TF32["sm_80"]))
    with pytest.raises(InvalidCandidate):
        realize(product_task(sizes, AMPERE), of_knobs(space.ranked[0], WARPS))


@pytest.mark.parametrize("name", SINGLE_PROGRAMS)
def test_convolutions_of_a_target_that_allows_it_are_such_products(name: str) -> None:
    """Threads multiply them, too."""
    for arch in ("sm_80", "sm_90a"):
        found = names(task_of_convolution(SINGLE_PROGRAMS[name], WITH_TF32[arch]))
        assert {*found} == {WARPS, THREADS}


@pytest.mark.parametrize("name", CHANNELS_LAST_PROGRAMS)
def test_warpgroups_multiply_windows_where_channels_come_last(name: str) -> None:
    found = names(task_of_convolution(CHANNELS_LAST_PROGRAMS[name], WITH_TF32["sm_90a"]))
    assert {*found} == {WARPGROUPS, THREADS}


@pytest.mark.parametrize("name", ["3x3 added", "groups", "open images", "channels first"])
def test_the_best_predicted_of_convolutions_are_right(name: str) -> None:
    assert wrong([best(WITH_TF32["sm_80"], name, SINGLE_PROGRAMS)]) == {}


@pytest.mark.parametrize("name", ["3x3 added", "odd groups", "open images"])
def test_the_best_predicted_of_convolutions_by_warpgroups_are_right(name: str) -> None:
    assert wrong([best(WITH_TF32["sm_90a"], name, CHANNELS_LAST_PROGRAMS)]) == {}


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
def test_one_product_is_estimated_to_take_less_than_three(arch: str) -> None:
    sizes = Sizes(4096, 4096, 4096)
    target, plain = WITH_TF32[arch], emulate_target(f'{{"kind":"cuda","arch":"{arch}"}}')
    one = space_of(product_task(sizes, target, nt=True)).least_s
    templates = templates_of(product_task(sizes, plain, nt=True))
    three = min(KnobSpace(product_task(sizes, plain, nt=True), t).least_s for t in templates)
    gpu = gpu_of(target)
    operations = 2 * 4096**3 / (gpu.tensor_operations / 2)
    assert operations / (gpu.multiprocessors * gpu.hertz) < one < 0.5 * three


@needs_nvcc
@pytest.mark.each_value
@pytest.mark.parametrize(
    ("arch", "layout"),
    [("sm_80", "NT"), ("sm_80", "NN"), ("sm_80", "TN"), ("sm_90a", "NN"), ("sm_90a", "TN")],
)
def test_the_best_predicted_multiply_once_and_spill_nothing(
    arch: str, layout: str, tmp_path: Path
) -> None:
    target = WITH_TF32[arch]
    space = space_of(product_task(Sizes(1000, 3000, 776), target, **LAYOUTS[layout]))
    source = compile_setting(space, space.ranked[0], target).imports[0].inspect_source("cuda")
    code = compile_cuda(source, arch)
    (use,) = code.uses.values()
    assert use.stack_bytes == use.spill_store_bytes == 0
    assembly = disassemble(code.binary, tmp_path)
    assert {*re.findall(r"HMMA\.[\w.]+", assembly)} == {"HMMA.1688.F32.TF32"}
    best = space.ranked[0]
    stage = 4 * best["row_parts"] * 2 * best["column_parts"]
    assert len(re.findall("HMMA", assembly)) % stage == 0
    assert "LDGSTS.E.BYPASS.128" in assembly


@needs_nvcc
@pytest.mark.each_value
@pytest.mark.parametrize("sizes", LARGE, ids=str)
def test_the_best_predicted_of_warpgroups_multiply_once_and_spill_nothing(
    sizes: Sizes, tmp_path: Path
) -> None:
    """Rows of 777 terms begin at no multiple of 16 bytes: threads copy these ahead by words."""
    target = WITH_TF32["sm_90a"]
    space = space_of(product_task(sizes, target, nt=True))
    best = space.ranked[0]
    source = compile_setting(space, best, target).imports[0].inspect_source("cuda")
    code = compile_cuda(source, "sm_90a")
    (use,) = code.uses.values()
    assert use.stack_bytes == use.spill_store_bytes == 0
    assembly = disassemble(code.binary, tmp_path)
    products = re.findall(r"H(?:G)?MMA\.[\w.]+", assembly)
    assert {*products} == {f"HGMMA.64x{best['columns']}x8.F32.TF32"}
    assert len(products) % (best["parts"] * best["depth"] // TF32.terms) == 0
    is_mapped = sizes.k % 4 == 0
    assert ("UTMALDG" in assembly) == is_mapped
    assert ("LDGSTS" in assembly) == (not is_mapped)


@needs_nvcc
@pytest.mark.parametrize(
    ("arch", "multiplied"), [("sm_80", "HMMA.1688.F32.TF32"), ("sm_90a", "HGMMA")]
)
def test_the_best_predicted_of_a_layer_copies_its_windows_ahead(
    arch: str, multiplied: str, tmp_path: Path
) -> None:
    target = WITH_TF32[arch]
    space = space_of(task_of_convolution(LAYER, target))
    source = compile_setting(space, space.ranked[0], target).imports[0].inspect_source("cuda")
    code = compile_cuda(source, arch)
    (use,) = code.uses.values()
    assert use.stack_bytes == use.spill_store_bytes == 0
    assembly = disassemble(code.binary, tmp_path)
    assert multiplied in assembly
    assert "LDGSTS.E.BYPASS.128" in assembly


@pytest.mark.parametrize(("k", "kept"), [(64, 1 + 2.0**-10), (65, 1.0)])
def test_what_tensor_maps_copy_for_warpgroups_is_rounded_and_other_factors_are_cut(
    k: int, kept: float
) -> None:
    """Rows of 65 terms begin at no multiple of 16 bytes, and have no map."""
    task = product_task(Sizes(24, 40, k), WITH_TF32["sm_90a"], nt=True)
    factor = np.nextafter(np.float32(1 + 2.0**-10), np.float32(0))
    a, b = (np.full((rows, k), value, np.float32) for rows, value in ((24, factor), (40, 1)))
    np.testing.assert_array_equal(run_best(task, a, b), np.full((24, 40), k * kept))


@pytest.mark.parametrize(("arch", "shift"), [("sm_80", 0), ("sm_80", 100), ("sm_90a", 0)])
def test_what_is_not_finite_stays_so(arch: str, shift: int) -> None:
    """Infinite factors and NaN come out as they do in float32."""
    sizes, rng = Sizes(24, 40, 77), np.random.default_rng(shift)
    a, b = (rng.standard_normal((rows, 77)).astype(np.float32) for rows in (24, 40))
    a[3, 5], a[17, 70], b[2, 60] = np.inf, -np.inf, np.nan
    with np.errstate(invalid="ignore"):
        exact = a.astype(np.float64) @ b.T.astype(np.float64)
    got = run_best(product_task(sizes, WITH_TF32[arch], nt=True), a, b, shift)
    assert np.array_equal(np.isnan(got), np.isnan(exact))
    assert np.array_equal(np.isinf(got), np.isinf(exact))
    finite = np.isfinite(exact)
    np.testing.assert_allclose(got[finite], exact[finite], rtol=0, atol=0.05)
