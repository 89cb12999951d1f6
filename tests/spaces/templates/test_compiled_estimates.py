"""What templates take for granted of their kernels is what the compiler says of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

from spaces.codegen.artifact import build_artifact, compile_kernel, kernels_of
from spaces.codegen.cuda.cubin import resident_blocks
from spaces.design_space.knob_space import KnobSpace
from spaces.passes.cuda.launches import LaunchWatch
from spaces.targets.gpu import count_resident, gpu_of
from spaces.targets.target import parse_target, resolve_target
from spaces.templates.attention.gpu import hopper_knobs as hopper_attention_knobs
from spaces.templates.attention.gpu import knobs as attention_knobs
from spaces.templates.base import Template
from spaces.templates.registry import templates_of
from spaces.templates.tensor_cores import ampere_knobs, hopper_knobs
from spaces.templates.tensor_cores.tile import HALVES
from tests.needed import needs_nvcc
from tests.spaces.templates.attention.attentions import Sizes as HeadSizes
from tests.spaces.templates.attention.attentions import task_for as attention_task
from tests.spaces.templates.tensor_cores import single_products
from tests.spaces.templates.tensor_cores.convolutions import (
    LAYER,
    OPEN,
    Convolution,
    task_of_convolution,
)
from tests.spaces.templates.tensor_cores.products import Sizes, task_for, task_with
from tuner.candidate import of_knobs
from tuner.request.target_text import tf32
from tuner.task import Task

pytestmark = pytest.mark.tvm

AMPERE, HOPPER = (
    resolve_target(f'{{"kind":"cuda","arch":"{arch}"}}') for arch in ("sm_80", "sm_90a")
)
EACH = 50
"""One of so many settings is looked at, from the best predicted on."""
MAIN = "main_kernel"
"""Before one that adds up what its blocks have left."""


@dataclass(frozen=True, slots=True)
class Believed:
    """Bytes of a block, its threads, and registers of each, as a template has them."""

    block_bytes: int
    threads: int
    registers: int


@dataclass(frozen=True, slots=True)
class Case:
    """A program on a target, and what its template believes of a setting."""

    target: str
    task: Callable[[str], Task]
    believe: Callable[[KnobSpace, Mapping[str, int], str], Believed]

    def space(self) -> KnobSpace:
        """Of the program's first template."""
        task = self.task(self.target)
        template, *_ = templates_of(task)
        return KnobSpace(task, template)


def of_product(tiles: Any) -> Callable[[KnobSpace, Mapping[str, int], str], Believed]:
    def believe(_: KnobSpace, knobs: Mapping[str, int], target: str) -> Believed:
        tile = tiles.tile_of(HALVES, knobs)
        registers = int(tile.registers(gpu_of(target)))
        return Believed(int(tile.block_bytes(16)), int(tile.threads), registers)

    return believe


def of_heads(tiles: Any) -> Callable[[KnobSpace, Mapping[str, int], str], Believed]:
    def believe(space: KnobSpace, knobs: Mapping[str, int], _: str) -> Believed:
        template: Any = space.template
        tile, heads = tiles.tile_of(knobs), template._sizes
        registers = int(tile.registers(heads))
        return Believed(int(tile.block_bytes(heads)), int(tile.threads), registers)

    return believe


def product(*sizes: int) -> Callable[[str], Task]:
    return lambda target: task_for("NT", Sizes(*sizes), target)


def heads(target: str) -> Task:
    return attention_task("causal", HeadSizes(32, 2048, 2048, 128, 128, 8), target)


CASES = {
    "Ampere": Case(AMPERE, product(4096, 4096, 4096), of_product(ampere_knobs)),
    "Ampere, element by element": Case(AMPERE, product(1000, 3000, 777), of_product(ampere_knobs)),
    "Hopper": Case(HOPPER, product(4096, 4096, 4096), of_product(hopper_knobs)),
    "attention": Case(AMPERE, heads, of_heads(attention_knobs)),
    "attention on Hopper": Case(HOPPER, heads, of_heads(hopper_attention_knobs)),
}


@pytest.mark.parametrize("number", [2, pytest.param(8, marks=pytest.mark.long)])
@pytest.mark.parametrize("name", CASES)
def test_launches_ask_for_the_shared_memory_that_a_template_counts_on(
    name: str, number: int
) -> None:
    case = CASES[name]
    space = case.space()
    for knobs in space.ranked[::EACH][:number]:
        watch, module = LaunchWatch(), space.write(of_knobs(knobs, space.name)).mod
        compile_kernel(module, parse_target(case.target), None, (watch.instrument(),))
        asked_bytes = watch.shared_bytes[MAIN]
        assert asked_bytes == case.believe(space, knobs, case.target).block_bytes, knobs


@needs_nvcc
@pytest.mark.parametrize("name", CASES)
def test_as_many_blocks_share_a_multiprocessor_as_a_template_counts_on(name: str) -> None:
    """The compiler takes from 0.6 to 1.25 of the registers that templates count on; what they count
    them for is this."""
    case = CASES[name]
    space, gpu = case.space(), gpu_of(case.target)
    best = space.ranked[0]
    artifact = build_artifact(space.write(of_knobs(best, space.name)).mod, case.target)
    use = kernels_of(artifact)[MAIN]
    believed = case.believe(space, best, case.target)
    counted = count_resident(gpu, believed.block_bytes, believed.registers, believed.threads)
    assert use.threads == believed.threads
    assert resident_blocks(use, gpu) == counted


@needs_nvcc
@pytest.mark.parametrize(
    ("swap", "row_parts", "column_parts", "fits"),
    [(0, 4, 5, False), (0, 3, 5, False), (1, 5, 4, False), (1, 4, 5, True), (0, 4, 4, True)],
)
def test_words_that_are_rounded_are_counted_as_they_are_and_rounded(
    swap: int, row_parts: int, column_parts: int, fits: bool
) -> None:
    """Of a product in TF32 whose columns lie next to one another, so that a thread reads word by
    word what gives instructions their columns, or their rows."""
    task = task_with(single_products.matmul, Sizes(2048, 2048, 2048), tf32(AMPERE))
    knobs = {"swap": swap, "row_parts": row_parts, "column_parts": column_parts, "splits": 1}
    knobs |= {"row_warps": 2, "column_warps": 2, "stages": 3, "group": 8}
    template = next(t for t in templates_of(task) if "tf32" in t.name)
    assert is_feasible(template, knobs) == keeps_registers(task, template, knobs) == fits


@needs_nvcc
@pytest.mark.parametrize(("layer", "fits"), [(LAYER, True), (OPEN, False)], ids=["known", "open"])
def test_places_of_windows_take_registers_where_sizes_are_open(
    layer: Convolution, fits: bool
) -> None:
    """Known ones the compiler finds again in the largest tiles."""
    task = task_of_convolution(replace(layer, terms_last=True), AMPERE)
    knobs = {"swap": 1, "row_parts": 5, "column_parts": 4, "splits": 1}
    knobs |= {"row_warps": 2, "column_warps": 2, "stages": 3, "group": 8}
    template, *_ = templates_of(task)
    assert is_feasible(template, knobs) == keeps_registers(task, template, knobs) == fits


def is_feasible(template: Template, knobs: Mapping[str, int]) -> bool:
    costs_s = template.costs_s({name: np.array([value]) for name, value in knobs.items()})
    return bool(np.isfinite(costs_s[0]))


def keeps_registers(task: Task, template: Template, knobs: Mapping[str, int]) -> bool:
    """Whether the compiler spills none of a setting's."""
    space = KnobSpace(task, template)
    artifact = build_artifact(space.write(of_knobs(knobs, space.name)).mod, task.target)
    return kernels_of(artifact)[MAIN].spill_store_bytes == 0
