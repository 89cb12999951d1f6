"""The template for products that threads multiply: what it takes, what it is estimated to take,
where its tiles lie, and what the compiler makes of it."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import product as combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from spaces.codegen.cuda.compile import compile_cuda
from spaces.features.knob_features import TRAITS
from spaces.lowering.extract_tasks import task_of
from spaces.targets.gpu import gpu_of, register_limit
from spaces.templates.base import every
from spaces.templates.thread_products.family import NAME
from spaces.templates.thread_products.knobs import SECTOR, tile_of
from spaces.templates.thread_products.places import Tile, place_lane
from tests.needed import needs_nvcc
from tests.spaces.emulation.samples import AMPERE, OLD
from tests.spaces.templates.few_rows.few_row_programs import matmul
from tests.spaces.templates.open_programs import all_values, list_feasible, names
from tests.spaces.templates.tensor_cores.products import HOPPER
from tests.spaces.templates.tensor_cores.test_hopper_template import compile_setting, disassemble
from tests.spaces.templates.thread_products.thread_product_programs import (
    PROGRAMS,
    batched,
    space_for,
    task_for,
)
from tuner.task import Task

pytestmark = pytest.mark.tvm

LARGE = [(4096, 4096, 4096), (1000, 3000, 777), (4095, 4097, 512)]
CUBES = [(1024, 1024, 1024), (2048, 2048, 2048)]
ARCHITECTURES = {AMPERE: "sm_80", HOPPER: "sm_90a"}
BANKS = 32
long = pytest.mark.long


def product(target: str, *sizes: Any, kind: str = "float32", **layout: Any) -> Task:
    return task_of(matmul(*sizes, kind=kind, **layout), target, name="product")


def open_product(target: str, rows: Sequence[int], **layout: Any) -> Task:
    shapes = tuple(((("m", size),), 1.0) for size in rows)
    return replace(product(target, "m", 4096, 4096, **layout), shapes=shapes)


# ---- what it takes


@pytest.mark.parametrize("name", PROGRAMS)
def test_products_in_single_have_it_in_any_layout_with_known_sizes_and_open(name: str) -> None:
    assert names(task_for(name, AMPERE))[0] == NAME


@pytest.mark.parametrize("kind", ["float16", "bfloat16"])
def test_halves_are_multiplied_by_threads_where_tensor_cores_do_not(kind: str) -> None:
    assert names(product(OLD, 200, 136, 64, kind=kind)) == [NAME]
    assert NAME not in names(product(AMPERE, 200, 136, 64, kind=kind))


def test_other_types_and_sums_that_begin_with_a_bias_are_left_to_the_rules() -> None:
    from tvm.script import from_source

    assert names(product(AMPERE, 200, 136, 64, kind="float64")) == []
    text = matmul(200, 136, 64, kind="float32").script()
    biased = text.replace("= T.float32(0.0)", "= T.float32(1.0)")
    assert biased != text
    assert names(task_of(from_source(biased), AMPERE, name="biased")) == []


# ---- settings


@pytest.mark.each_value
@pytest.mark.parametrize("target", [AMPERE, OLD], ids=["ampere", "old"])
@pytest.mark.parametrize("name", ["NN", "NT", "odd TN", "open batch"])
def test_each_value_of_a_knob_is_in_some_setting_within_the_limits(name: str, target: str) -> None:
    space = space_for(task_for(name, target))
    used, settings = list_feasible(space.template, step=50)
    assert used == all_values(space.template)
    gpu = gpu_of(target)
    for knobs in settings:
        tile = tile_of(knobs)
        assert 64 <= tile.threads <= 512
        assert tile.sums < register_limit(gpu, tile.threads)
        assert tile.shared_bytes <= gpu.dynamic_shared_bytes


def test_limits_and_not_shapes_say_which_settings_are_feasible() -> None:
    template: Any = space_for(task_for("open batch", AMPERE)).template
    shapes = [shape for shape, _ in task_for("open batch", AMPERE).shapes]
    each = [np.isfinite(template.at(shape).costs_s(every(template))) for shape in shapes]
    assert (each[0] == each[1]).all()


# ---- estimates


def test_traits_are_finite_numbers_of_each_setting_and_of_each_shape() -> None:
    template: Any = space_for(open_product(AMPERE, [1, 70, 4000])).template
    space = space_for(open_product(AMPERE, [1, 70, 4000]))
    columns = {name: np.array([s[name] for s in space.ranked[:50]]) for name in template.choices}
    traits, on_shapes = template.traits(columns), template.shape_traits(space.ranked[0])
    assert traits.shape[1] == on_shapes.shape[1] <= TRAITS
    assert (len(traits), len(on_shapes)) == (50, 3)
    assert np.isfinite(traits).all()
    assert np.isfinite(on_shapes).all()


@pytest.mark.parametrize("name", ["open rows", "open batch"])
def test_a_setting_is_estimated_on_all_shapes_as_on_each(name: str) -> None:
    task = task_for(name, AMPERE)
    template: Any = space_for(task).template
    knobs = space_for(task).ranked[0]
    columns = {name: np.array([value]) for name, value in knobs.items()}
    alone = [template.at(shape).costs_s(columns)[0] for shape, _ in task.shapes]
    np.testing.assert_allclose(template.shape_costs_s(knobs), alone)


def test_no_estimate_is_below_what_multiplying_and_memory_take() -> None:
    for target, (m, n, k) in combinations(ARCHITECTURES, [*LARGE, *CUBES]):
        gpu = gpu_of(target)
        multiplying_s = m * n * k / (gpu.madds * gpu.multiprocessors * gpu.hertz)
        moved_s = 4 * (m * k + n * k + m * n) / (gpu.numbers.gigabytes_per_s * 1e9)
        found = space_for(product(target, m, n, k)).least_s
        assert max(multiplying_s, moved_s) < found < 2 * max(multiplying_s, moved_s)


def test_small_products_get_small_tiles_and_large_ones_large_tiles() -> None:
    def best(*sizes: int) -> Any:
        return tile_of(space_for(product(HOPPER, *sizes)).ranked[0])

    small, large = best(64, 64, 512), best(4096, 4096, 4096)
    assert small.rows * small.columns <= 32 * 32
    assert large.rows * large.columns >= 128 * 128


def test_blocks_share_long_sums_of_few_tiles_and_no_others() -> None:
    few, many = (space_for(product(HOPPER, *sizes)) for sizes in ((64, 64, 8192), LARGE[0]))
    assert few.ranked[0]["splits"] > 1
    assert many.ranked[0]["splits"] == 1
    columns = every(few.template)
    alone = few.template.costs_s(columns)[columns["splits"] == 1]
    assert few.least_s < np.min(alone) / 2


# ---- where tiles lie


def tiles() -> Iterator[Tile]:
    """Tiles of all kinds."""
    for turned, lanes, vectors, warps, depth, width in combinations(
        (True, False), (4, 8), (1, 2, 4), (1, 4), (8, 16, 32), (1, 2, 4)
    ):
        yield Tile(turned, 4 * lanes * vectors * warps, depth, lanes, vectors, width)


def count_wavefronts(places: Sequence[int], width: int) -> int:
    """The least number of times that the memory serves some threads, which all read or write so
    many elements: of different words those of one bank take turns. For one warp, or for as much of
    it as has 128 bytes together."""
    words = {place + part for place in places for part in range(width)}
    return max(Counter(word % BANKS for word in words).values())


def test_no_copies_of_a_warp_meet_in_a_bank() -> None:
    for tile in tiles():
        together = BANKS // tile.width
        for first in range(0, tile.copies, together):
            places = [tile.offset(*tile.copy(n)) for n in range(first, first + together)]
            assert all(place % tile.width == 0 for place in places)
            assert count_wavefronts(places, tile.width) == 1, tile


def test_what_a_thread_copies_in_few_terms_at_a_time_lies_in_few_rows() -> None:
    """Addresses within a row differ by what an instruction adds."""
    for tile, threads in combinations(tiles(), (64, 256)):
        if not tile.turned and tile.width < 4 and tile.copies >= threads:
            slots = [tile.copy(number)[0] for number in range(0, tile.copies, threads)]
            assert len({*slots}) == len(slots) // min(tile.depth // SECTOR, len(slots)), tile


def test_no_reads_of_half_a_warp_meet_in_a_bank() -> None:
    for tile in tiles():
        along = 0 if tile.lanes == 4 else 1
        for half, term in combinations((0, 16), range(0, tile.depth, 1 if tile.turned else 4)):
            lanes = [place_lane(lane, 4)[along] for lane in range(half, half + 16)]
            for own in range(0, 4 * tile.vectors, 4 if tile.turned else 1):
                slot = tile.own_slot(own)
                places = [tile.read(0, tile.first_slot(0, lane), slot, term) for lane in lanes]
                assert all(place % 4 == 0 for place in places)
                assert count_wavefronts(places, 4) == 1, tile


def test_each_element_is_copied_once_to_a_place_of_its_own_and_read_from_there() -> None:
    for tile in tiles():
        copied = [tile.copy(number) for number in range(tile.copies)]
        parts = range(tile.width)
        places = {tile.offset(*at) + part for at in copied for part in parts}
        assert len(places) == tile.copies * tile.width == tile.rows * tile.depth
        where = {tile.row(slot): slot for slot in range(tile.rows)}
        assert len(where) == tile.rows
        for warp, lane, own in combinations(
            range(tile.rows // (4 * tile.lanes * tile.vectors)),
            range(tile.lanes),
            range(4 * tile.vectors),
        ):
            row = tile.first_row(warp, lane) + tile.own_row(own)
            first, slot = tile.first_slot(warp, lane), tile.own_slot(own)
            assert where[row] == first + slot
            for term in range(tile.depth):
                there = 4 * tile.depth + tile.offset(first + slot, term)
                assert tile.read(tile.depth, first, slot, term) == there


def test_threads_of_a_warp_have_places_of_their_own() -> None:
    for lanes in (4, 8):
        found = {place_lane(lane, lanes) for lane in range(BANKS)}
        assert found == {*combinations(range(lanes), range(BANKS // lanes))}


# ---- what the compiler makes of it


def find_loop(assembly: str) -> list[str]:
    """Instructions of the loop with the most products that holds no other loop."""
    known = [
        (int(at, 16), said) for at, said in re.findall(r"/\*(\w{4,5})\*/\s+([^;]*);", assembly)
    ]
    loops = []
    for end, said in known:
        back = re.search(r"\bBRA\b.*?0x(\w+)", said)
        if back and (first := int(back[1], 16)) < end:
            loops.append([word for at, word in known if first <= at <= end])
    return max(loops, key=lambda loop: sum("FFMA" in word for word in loop))


def count_instructions(loop: Sequence[str]) -> Counter[str]:
    return Counter(map(name_instruction, loop))


def name_instruction(word: str) -> str:
    """What an instruction does, without its predicate and its registers."""
    return re.sub(r"^@!?U?P\w+\s+", "", word).split()[0]


@needs_nvcc
@pytest.mark.each_value
@pytest.mark.parametrize("layout", [pytest.param("NN", marks=long), "NT"])
@pytest.mark.parametrize("sizes", [*LARGE, *(pytest.param(cube, marks=long) for cube in CUBES)])
@pytest.mark.parametrize("target", ARCHITECTURES, ids=ARCHITECTURES.get)
def test_the_best_predicted_multiply_almost_all_the_time_what_was_copied_ahead(
    target: str, sizes: tuple[int, int, int], layout: str, tmp_path: Path
) -> None:
    space = space_for(product(target, *sizes, nt=layout == "NT"))
    source = compile_setting(space, space.ranked[0], target).imports[0].inspect_source("cuda")
    code = compile_cuda(source, ARCHITECTURES[target])
    for use in code.uses.values():  # the second one adds up what blocks have left
        assert use.stack_bytes == use.spill_store_bytes == 0
        assert use.registers <= register_limit(gpu_of(target), use.threads)
    assembly = disassemble(code.binary, tmp_path)
    found = count_instructions(find_loop(assembly))
    _, n, k = sizes
    dense = (k, k if layout == "NT" else n)
    assert found["FFMA"] / found.total() > 0.85
    assert found["LDS.128"] * 8 <= found["FFMA"]
    assert ("LDGSTS.E.BYPASS.128" in found) == any(size % 4 == 0 for size in dense)
    assert ("LDGSTS.E" in found) == any(size % 4 for size in dense)
    assert not any(word.startswith(("LDG.", "STS")) for word in found)
    assert ("STG.E.128" in assembly) == (n % 4 == 0)
    assert space.ranked[0]["stages"] >= 3


@needs_nvcc
@pytest.mark.parametrize("layout", ["NN", pytest.param("NT", marks=long)])
def test_before_copies_went_ahead_loads_are_under_way_while_a_stage_is_multiplied(
    layout: str, tmp_path: Path
) -> None:
    space = space_for(product(OLD, 2048, 2048, 2048, nt=layout == "NT"))
    source = compile_setting(space, space.ranked[0], OLD).imports[0].inspect_source("cuda")
    code = compile_cuda(source, "sm_75")
    (use,) = code.uses.values()
    assert use.stack_bytes == use.spill_store_bytes == 0
    loop = find_loop(disassemble(code.binary, tmp_path))
    words = [name_instruction(word) for word in loop]
    loads, stores, products = (
        [place for place, word in enumerate(words) if word.startswith(start)]
        for start in ("LDG.E.128", "STS.128", "FFMA")
    )
    assert len(products) / len(words) > 0.85
    assert sum(loads[0] < place < stores[0] for place in products) > len(products) / 10


@needs_nvcc
def test_shares_of_a_sum_are_left_in_vectors_and_added_by_a_second_kernel(tmp_path: Path) -> None:
    space = space_for(product(HOPPER, 64, 64, 8192))
    source = compile_setting(space, space.ranked[0], HOPPER).imports[0].inspect_source("cuda")
    code = compile_cuda(source, "sm_90a")
    assert len(code.uses) == 2
    assert all(use.stack_bytes == use.spill_store_bytes == 0 for use in code.uses.values())
    assembly = disassemble(code.binary, tmp_path)
    assert "STG.E.128" in assembly
    assert not re.search(r"\b(ATOMG?|RED)\b", assembly)
    found = count_instructions(find_loop(assembly))
    assert found["FFMA"] / found.total() > 0.7


@needs_nvcc
@pytest.mark.parametrize("number", [1, pytest.param(8, marks=long)])
def test_estimates_of_registers_are_near_what_the_compiler_takes_and_nothing_spills(
    number: int,
) -> None:
    space = space_for(product(HOPPER, 1000, 1000, 1000))
    rng = np.random.default_rng(0)
    for place in rng.choice(len(space.ranked), number, replace=False):
        source = compile_setting(space, space.ranked[place], HOPPER).imports[0]
        for use in compile_cuda(source.inspect_source("cuda"), "sm_90a").uses.values():
            assert use.stack_bytes == use.spill_store_bytes == 0, space.ranked[place]


@needs_nvcc
@pytest.mark.parametrize("nt", [True, pytest.param(False, marks=long)])
def test_of_open_sizes_the_loop_has_no_branch_but_its_own(nt: bool, tmp_path: Path) -> None:
    shapes = tuple(
        (tuple(zip(("b", "k", "m", "n"), sizes, strict=True)), 1.0)
        for sizes in ((1, 64, 64, 64), (2, 512, 1024, 1024))
    )
    task = task_of(batched("b", "m", "n", "k", nt=nt), AMPERE, name="open")
    space = space_for(replace(task, shapes=shapes))
    source = compile_setting(space, space.ranked[0], AMPERE).imports[0].inspect_source("cuda")
    code = compile_cuda(source, "sm_80")
    (use,) = code.uses.values()
    assert use.stack_bytes == use.spill_store_bytes == 0
    found = count_instructions(find_loop(disassemble(code.binary, tmp_path)))
    assert found["BRA"] == 1
    assert found["FFMA"] / found.total() > 0.6
