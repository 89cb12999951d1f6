"""The template for products on Hopper: what it takes, what it writes, and what it is estimated to
take."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from spaces.codegen.cuda.compile import compile_cuda
from spaces.design_space.knob_space import KnobSpace
from spaces.design_space.task_space import TaskSpace
from spaces.passes.cuda.pipeline import cuda_pipeline
from spaces.targets.gpu import count_in_clusters, gpu_of
from spaces.targets.target import emulate_target, parse_target
from spaces.templates.base import Knobs
from spaces.templates.registry import templates_of
from spaces.templates.tensor_cores import hopper_knobs
from spaces.templates.tensor_cores.tile import HALVES
from tests.needed import needs_nvcc
from tests.spaces.templates.open_programs import all_values, list_feasible
from tests.spaces.templates.tensor_cores.products import HOPPER, PROGRAMS, Sizes, matmul, task_for
from tuner.candidate import Draft, of_knobs
from tuner.task import Task

pytestmark = pytest.mark.tvm

LARGE = (Sizes(4096, 4096, 4096), Sizes(1000, 3000, 777), Sizes(4095, 4097, 512))


CLUSTERS = ((2, 1), (1, 2), (2, 2))
_SMALL = {
    "swap": 0,
    "consumers": 1,
    "parts": 1,
    "columns": 64,
    "depth": 64,
    "stages": 6,
    "group": 8,
    "splits": 1,
    "persistent": 1,
    "bulk_stores": 0,
    "a_blocks": 1,
    "b_blocks": 1,
}


def space_of(task: Task) -> KnobSpace:
    template, *_ = templates_of(task)
    return KnobSpace(task, template)


def best(space: KnobSpace, **wanted: int) -> Knobs:
    """The setting with the lowest estimate of those with some values."""
    return next(s for s in space.ranked if wanted.items() <= s.items())


def cost_s(space: KnobSpace, **other: int) -> float:
    """The estimate of `_SMALL` with some other values; infinite where it is beyond the limits."""
    knobs = {name: np.array([value]) for name, value in (_SMALL | other).items()}
    return float(space.template.costs_s(knobs)[0])


def compile_setting(space: KnobSpace, knobs: Knobs, target_json: str = HOPPER) -> Any:
    """The library of a setting, with its source."""
    import tvm

    module = space.write(of_knobs(knobs, space.name)).mod
    target = parse_target(target_json)
    with target:
        return tvm.compile(module, target=target, tir_pipeline=cuda_pipeline()).mod


def find_left(space: KnobSpace) -> list[Any]:
    """Sizes and places of what blocks leave for others in the device's memory, in a setting where
    they share sums."""
    import tvm_ffi
    from tvm import ir, tirx

    knobs = next(each for each in space.ranked if each["splits"] > 1)
    function = space.write(of_knobs(knobs, space.name)).mod["main"]
    found: list[tuple[Any, Any]] = []
    looks = [
        (ir.TensorLoad, lambda node: found.append((node.source, node.indices))),
        (tirx.BufferStore, lambda node: found.append((node.buffer, node.indices))),
    ]
    tvm_ffi.structural_walk(function.body, looks)
    passed = [parameter.name for parameter in function.params]
    left = [(b, at) for b, at in found if b.scope() == "global" and b.name not in passed]
    return [size for buffer, at in left for size in (*buffer.shape, *at)]


# ---- what it takes


@pytest.mark.parametrize("name", PROGRAMS)
def test_products_of_halves_in_any_layout_have_it(name: str) -> None:
    for sizes in PROGRAMS[name][1]:
        assert space_of(task_for(name, sizes)).name.startswith("kernel:hopper-product-")


def test_sums_that_begin_with_a_bias_are_left_to_the_rules() -> None:
    from tvm.script import from_source

    text = matmul(Sizes(64, 64, 64)).script()
    biased = text.replace("= T.float32(0.0)", "= T.float32(1.0)")
    assert biased != text
    assert templates_of(_task(from_source(biased))) == []


def test_devices_have_that_of_their_family() -> None:
    def names(arch: str) -> list[str]:
        target = emulate_target(f'{{"kind":"cuda","arch":"{arch}"}}')
        return [t.name for t in templates_of(task_for("NT", Sizes(64, 64, 64), target))]

    assert names("sm_75") == ["kernel:thread-product-4"]
    assert names("sm_80") == names("sm_89") == names("sm_120") == ["kernel:ampere-product-2"]
    assert names("sm_90a") == ["kernel:hopper-product-4"]


def _task(program: Any) -> Task:
    from spaces.lowering.extract_tasks import task_of

    return task_of(program, HOPPER, name="product")


# ---- settings


@pytest.mark.parametrize("name", ["NT", "TT", "open rows"])
def test_each_value_of_a_knob_is_in_some_setting_within_the_limits(name: str) -> None:
    space = space_of(task_for(name, PROGRAMS[name][1][0]))
    used, settings = list_feasible(space.template, step=50)
    assert used == all_values(space.template)
    gpu = gpu_of(HOPPER)
    for knobs in settings:
        tile = hopper_knobs.tile_of(HALVES, knobs)
        assert tile.block_bytes(32) <= gpu.dynamic_shared_bytes
        assert tile.sums < gpu.registers // tile.threads


def test_a_draft_is_a_setting_and_a_program_of_its_own() -> None:
    space = TaskSpace(task_for("NT", Sizes(200, 136, 72)))
    spaces = {space.realize_draft(Draft("t", seed, seed)).candidate.space for seed in range(20)}
    assert "kernel:hopper-product-4" in spaces


@needs_nvcc
@pytest.mark.parametrize(("consumers", "columns"), [(1, 128), (2, 96)])
def test_registers_of_blocks_with_few_sums_are_estimated(consumers: int, columns: int) -> None:
    space = space_of(task_for("NT", LARGE[0]))
    knobs = best(space, consumers=consumers, parts=1, columns=columns)
    source = compile_setting(space, knobs).imports[0].inspect_source("cuda")
    use = compile_cuda(source, "sm_90a").uses["main_kernel"]
    estimated = hopper_knobs.tile_of(HALVES, knobs).registers(gpu_of(HOPPER))
    assert use.registers <= estimated <= 1.5 * use.registers


def test_estimates_grow_with_the_shape_and_prefer_large_tiles_for_large_ones() -> None:
    least = {}
    for m in (64, 512, 4096):
        space = space_of(task_for("NT", Sizes(m, 4096, 4096)))
        least[m] = space.least_s
    assert least[64] < least[512] < least[4096]
    chosen = best(space_of(task_for("NT", LARGE[0])))
    tile = hopper_knobs.tile_of(HALVES, chosen)
    assert tile.rows * tile.columns >= 128 * 128
    few = hopper_knobs.tile_of(HALVES, best(space_of(task_for("NT", Sizes(8, 4096, 4096)))))
    assert few.swap
    assert few.columns <= 32


def test_what_blocks_of_a_cluster_share_is_fetched_once() -> None:
    """A tile whose operands come from the L2 cache in more time than their products take."""
    space = space_of(task_for("NT", LARGE[0]))
    alone, *shared = (cost_s(space, a_blocks=a, b_blocks=b) for a, b in ((1, 1), *CLUSTERS))
    assert all(each < alone for each in shared[:2])


def test_clusters_of_persistent_blocks_are_all_there_at_once() -> None:
    gpu = gpu_of(HOPPER)
    assert gpu.multiprocessors == 132
    # Of 18 multiprocessors of a GPC two are left over by clusters of four, of the last 6 too.
    assert [count_in_clusters(gpu, blocks) for blocks in (1, 2, 4)] == [132, 132, 7 * 16 + 4]


@pytest.mark.parametrize(("name", "columns"), [("NT", 24), ("NT", 8), ("odd terms", 64)])
def test_shares_of_copies_are_whole_patterns_that_tensor_maps_copy(name: str, columns: int) -> None:
    """Of 24 columns each of two blocks would copy 12, where a swizzle's pattern has 8; and threads
    copy terms that do not begin at multiples of 16 bytes, each for its own block."""
    space = space_of(task_for(name, PROGRAMS[name][1][0]))
    alone, shared = (cost_s(space, columns=columns, a_blocks=blocks) for blocks in (1, 2))
    assert np.isfinite(alone)
    assert not np.isfinite(shared)


def test_no_estimate_is_below_what_tensor_cores_and_memory_take() -> None:
    gpu = gpu_of(HOPPER)
    for sizes in LARGE:
        operations = 2 * int(sizes.m) * sizes.n * sizes.k
        moved = 2 * (int(sizes.m) * sizes.k + sizes.n * sizes.k + int(sizes.m) * sizes.n)
        least_s = max(
            operations / (gpu.tensor_operations * gpu.multiprocessors * gpu.hertz),
            moved / (gpu.numbers.gigabytes_per_s * 1e9),
        )
        assert space_of(task_for("NT", sizes)).least_s > least_s


# ---- what the compiler makes of it


@needs_nvcc
@pytest.mark.each_value
@pytest.mark.parametrize("sizes", LARGE, ids=str)
@pytest.mark.parametrize("name", ["NT", "NN"])
def test_the_best_predicted_are_products_of_warpgroups_on_copied_tiles(
    name: str, sizes: Sizes, tmp_path: Path
) -> None:
    space = space_of(task_for(name, sizes))
    source = compile_setting(space, space.ranked[0]).imports[0].inspect_source("cuda")
    code = compile_cuda(source, "sm_90a")
    assert all(use.stack_bytes == use.spill_store_bytes == 0 for use in code.uses.values())
    assert all(use.registers >= 64 for use in code.uses.values())
    assembly = disassemble(code.binary, tmp_path)
    assert re.findall(r"HGMMA\.64x\d+x16\.F32", assembly)
    is_mapped = {"NT": sizes.k % 8 == 0, "NN": sizes.k % 8 == 0 or sizes.n % 8 == 0}[name]
    assert ("UTMALDG" in assembly) == is_mapped
    assert "HMMA.1688" not in assembly
    assert space.ranked[0]["stages"] >= 3


@needs_nvcc
@pytest.mark.parametrize(
    ("a_blocks", "b_blocks"), [(2, 1), pytest.param(1, 2, marks=pytest.mark.long), (2, 2)]
)
def test_blocks_of_a_cluster_copy_for_one_another(
    a_blocks: int, b_blocks: int, tmp_path: Path
) -> None:
    """Blocks meet at the beginning and the end. No fence for the whole device is in their loops,
    of which the compiler makes one for each release in the cluster's scope."""
    space = space_of(task_for("NT", LARGE[0]))
    knobs = best(space, a_blocks=a_blocks, b_blocks=b_blocks)
    source = compile_setting(space, knobs).imports[0].inspect_source("cuda")
    code = compile_cuda(source, "sm_90a")
    assert all(use.stack_bytes == use.spill_store_bytes == 0 for use in code.uses.values())
    assembly = disassemble(code.binary, tmp_path)
    copies = re.findall(r"UTMALDG\.2D(\.MULTICAST)?", assembly)
    assert ".MULTICAST" in copies
    assert ("" in copies) == (a_blocks * b_blocks == 2)  # of the operand that two do not share
    meetings = re.findall(r"UCGABAR_\w+", assembly)
    assert meetings == ["UCGABAR_ARV", "UCGABAR_WAIT"] * 3  # each kind of threads has its last
    assert "SYNCS.ARRIVE.TRANS64.RED" in assembly
    assert "MEMBAR.ALL.GPU" not in assembly


@needs_nvcc
@pytest.mark.each_value
@pytest.mark.parametrize("parts", [1, 2])
@pytest.mark.parametrize("consumers", [1, 2, 3])
def test_products_are_in_flight_together_and_no_sum_is_read_before_the_last(
    consumers: int, parts: int, tmp_path: Path
) -> None:
    """The compiler's own order, which no emulation sees: it once moved the wait below the reads,
    and it waits after each product where it cannot tell which sums are ready."""
    space = space_of(task_for("NT", LARGE[0]))
    knobs = best(space, consumers=consumers, parts=parts, bulk_stores=0, persistent=0)
    source = compile_setting(space, knobs).imports[0].inspect_source("cuda")
    assembly = disassemble(compile_cuda(source, "sm_90a").binary, tmp_path)
    order = re.findall(r"WARPGROUP.ARRIVE|HGMMA|DEPBAR\.LE gsb0, 0x[01]|F2FP", assembly)
    products, waits, reads = (
        [place for place, word in enumerate(order) if re.search(kind, word)]
        for kind in ("HGMMA", "0x0", "F2FP")
    )
    stages = order.count("WARPGROUP.ARRIVE")  # the first one may be apart
    assert len(products) == stages * parts * knobs["depth"] // HALVES.terms
    assert len(waits) == 1
    assert products[-1] < waits[0] < reads[0]


def disassemble(binary: bytes, folder: Path) -> str:
    file = folder / "k.cubin"
    file.write_bytes(binary)
    return subprocess.check_output(["cuobjdump", "-sass", str(file)], text=True, timeout=60)
