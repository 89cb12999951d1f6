"""The template for attention: what it takes, its settings, and what the compiler makes of them."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from spaces.codegen.cuda.compile import compile_cuda
from spaces.design_space.knob_space import KnobSpace
from spaces.design_space.task_space import TaskSpace
from spaces.ir.element_types import HALVES
from spaces.ir.schedules import task_module
from spaces.lowering.attention.description import Attention
from spaces.lowering.attention.fuse import fuse_attention
from spaces.lowering.extract_tasks import task_of
from spaces.targets.gpu import gpu_of
from spaces.templates.attention.causal import find_limit
from spaces.templates.attention.gpu import hopper_knobs, knobs
from spaces.templates.attention.gpu.ampere import write_ampere_attention
from spaces.templates.attention.gpu.costs import estimate
from spaces.templates.attention.gpu.knobs import AttentionTile, Heads, tile_of
from spaces.templates.attention.gpu.write import write_program
from spaces.templates.attention.groups import find_group
from spaces.templates.attention.read import read_attention
from spaces.templates.base import every
from spaces.templates.gpu_rates import MOST_LEFT_BYTES
from spaces.templates.registry import templates_of
from tests.needed import needs_nvcc
from tests.spaces.templates.attention.attentions import (
    AMPERE,
    HOPPER,
    PROGRAMS,
    Graph,
    Sizes,
    task_for,
)
from tests.spaces.templates.open_programs import all_values, list_feasible
from tests.spaces.templates.tensor_cores.test_hopper_template import (
    compile_setting,
    disassemble,
    find_left,
)
from tuner.candidate import Candidate, CandidateKind, Draft

pytestmark = pytest.mark.tvm

PROMPT = ("causal", Sizes(32, 2048, 2048, 128, 128, 8))
SHORT = ("masked", Sizes(12, 384, 384, 64, 64, 12, 8))
DECODE = ("plain", Sizes(32, 1, 4096, 128, 128, 32))
GROUPED = ("causal", Sizes(32, 1, 4096, 128, 128, 8))
OPEN = ("open", Sizes(32, "m", "n", 128, 128, 8))
LARGE = {"prompt": PROMPT, "short": SHORT, "decode": DECODE, "grouped": GROUPED, "open": OPEN}
ON_BOTH = {"prompt", "decode"}
"""Those that are compiled for Hopper in `make test`, too."""


def space_of(name: str, sizes: Sizes, target: str = AMPERE) -> KnobSpace:
    task = task_for(name, sizes, target)
    template, *_ = templates_of(task)
    return KnobSpace(task, template)


@pytest.mark.parametrize("name", PROGRAMS)
def test_every_attention_has_it(name: str) -> None:
    for sizes in PROGRAMS[name][1]:
        assert [t.name for t in templates_of(task_for(name, sizes))] == [
            "kernel:ampere-attention-1"
        ]


@pytest.mark.parametrize("target", [AMPERE, HOPPER], ids=["ampere", "hopper"])
def test_no_draft_is_for_the_rules_which_schedule_no_attention(target: str) -> None:
    """Once all settings must be known neither, and not after one of the rules'."""
    task = task_for(*PROMPT, target)
    space, known = TaskSpace(task), {template.name for template in templates_of(task)}
    theirs = Candidate(CandidateKind.TRACE, "[]", "rules:cuda")
    numbers = [*range(1, 41), *range(1_000_001, 1_000_021)]
    drafts = [Draft(task.key, n, n, parent) for n in numbers for parent in (None, theirs)]
    assert {space.realize_draft(draft).candidate.space for draft in drafts} <= known


def test_a_program_that_only_looks_like_attention_has_it_not() -> None:
    from tvm import tirx
    from tvm_ffi import structural_mutate

    task = task_for("plain", PROGRAMS["plain"][1][0])
    function = task_module(task.module)["main"]
    read_attention(function)

    def halve(number: Any, _mutator: Any) -> Any:
        return tirx.FloatImm("float32", 1e-3) if float(number.value) == 0.0 else number

    body = structural_mutate(function.body, [(tirx.FloatImm, halve)])
    changed = tirx.PrimFunc(function.params, body, function.ret_type, function.attrs)
    assert templates_of(task_of(changed, AMPERE, name="changed")) == []


@pytest.mark.parametrize("target", [AMPERE, HOPPER])
def test_each_value_of_a_knob_is_in_some_setting_within_the_limits(target: str) -> None:
    space = space_of("causal", PROGRAMS["causal"][1][0], target)
    used, settings = list_feasible(space.template, step=20)
    assert used == all_values(space.template)
    gpu, heads = gpu_of(target), Heads(4, 70, 70, 32, 32, 0.5, 2)
    tile_of = (hopper_knobs if target == HOPPER else knobs).tile_of
    for own in settings:
        tile = tile_of(own)
        assert tile.block_bytes(heads) <= gpu.dynamic_shared_bytes
        assert tile.threads * tile.registers(heads) <= gpu.registers


@pytest.mark.parametrize("name", PROGRAMS)
def test_hopper_has_a_second_one(name: str) -> None:
    for sizes in PROGRAMS[name][1]:
        names = [t.name for t in templates_of(task_for(name, sizes, HOPPER))]
        assert names == ["kernel:hopper-attention-1", "kernel:ampere-attention-1"]


def test_warps_share_the_keys_of_one_row_and_have_rows_of_their_own_of_many() -> None:
    one, many = (tile_of(space_of(*each).ranked[0]) for each in (DECODE, PROMPT))
    assert one.row_warps == 1 < one.key_warps
    assert many.row_warps > 1


@pytest.mark.parametrize("target", [AMPERE, HOPPER])
def test_blocks_share_the_keys_of_few_rows_and_have_all_heads_that_look_at_them(
    target: str,
) -> None:
    few, many = (space_of(*each, target).ranked[0] for each in (GROUPED, PROMPT))
    assert (few["heads"], many["splits"]) == (4, 1)
    assert few["splits"] > 1


@pytest.mark.parametrize("target", [AMPERE, HOPPER])
def test_what_blocks_leave_of_open_sizes_is_counted_in_64_bits(target: str) -> None:
    left = find_left(space_of(*OPEN, target))
    assert {str(number.ty.dtype) for number in left} == {"int64"}


def test_the_limit_of_what_blocks_leave_holds_in_every_shape() -> None:
    # The shape with the most work is the one of few rows.
    shapes = ((1, 1 << 23), (4000, 1000))
    known = tuple(((("m", m), ("n", n)), 1.0) for m, n in shapes)
    template, *_ = templates_of(replace(task_for(*OPEN), shapes=known))
    columns = every(template)
    feasible = np.isfinite(template.costs_s(columns))
    left = 4.0 * 32 * 4000 * (128 + 2) * columns["splits"]
    assert max(left[feasible]) <= MOST_LEFT_BYTES < max(left)


@needs_nvcc
def test_blocks_of_few_registers_are_estimated_to_share_a_multiprocessor() -> None:
    gpu, space = gpu_of(HOPPER), space_of(*SHORT, HOPPER)
    few = {"consumers": 1, "keys": 32, "stages": 2, "splits": 1}
    knobs = next(each for each in space.ranked if few.items() <= each.items())
    source = compile_setting(space, knobs, HOPPER).imports[0].inspect_source("cuda")
    (use,) = compile_cuda(source, "sm_90a").uses.values()
    _, sizes = SHORT
    heads = Heads(12 * 8, sizes.rows, sizes.keys, sizes.width, sizes.columns, 1.0)
    tile = hopper_knobs.tile_of(knobs)
    assert use.registers <= tile.registers(heads) <= 1.5 * use.registers
    assert estimate(heads, gpu, tile).resident > 1


@pytest.mark.parametrize(
    ("name", "sizes", "heads"),
    [
        ("causal", Sizes(8, 9, 9, 32, 32, 2), 4),
        ("causal", Sizes(8, 9, 9, 32, 32, 2, 3), 4),
        ("causal", Sizes(6, 9, 9, 32, 32, 1, 2), 6),
        ("causal", Sizes(6, 9, 9, 32, 32, 6, 2), 1),
        ("shared", Sizes(3, 21, 40, 32, 24, 1, 2), 3),
        ("plain", Sizes(3, 21, 40, 32, 24, 3, 2), 1),
        ("open", Sizes(8, "m", "n", 32, 32, 4), 2),
    ],
)
def test_heads_that_look_at_the_same_keys_are_found(name: str, sizes: Sizes, heads: int) -> None:
    task = task_for(name, sizes)
    assert find_group(read_attention(task_module(task.module)["main"])).heads == heads


@pytest.mark.parametrize(
    ("name", "limit"), [("causal", 0), ("plain", None), ("masked", None), ("chosen", None)]
)
def test_keys_that_no_row_looks_at_are_known_from_the_scores(name: str, limit: int | None) -> None:
    sizes = replace(PROGRAMS[name][1][0], rows=40, keys=40)
    found = find_limit(read_attention(task_module(task_for(name, sizes).module)["main"]))
    assert (None if found is None else int(found)) == limit


def test_rows_with_a_past_look_at_that_much_more() -> None:
    sizes = Sizes(4, 33, 80, 64, 64, 1)
    found = find_limit(read_attention(task_module(task_for("causal", sizes).module)["main"]))
    assert int(found) == 80 - 33


def limited(limit: Callable[[Graph, Any], Any]) -> Attention:
    """Of rows that see the keys up to their own number and a limit."""
    g = Graph()
    q, k, v = (g.parameter([1, 2, 9, 16], "float16") for _ in range(3))
    more = limit(g, g.parameter([1], "int64"))

    def body() -> Any:
        row = g.emit(g.op.expand_dims(g.emit(g.op.arange(9)), 1))
        last = g.emit(g.op.add(row, more))
        seen = g.emit(g.op.less_equal(g.emit(g.op.arange(9)), last))
        scores = g.multiply(q, g.turn(k, 0, 1, 3, 2))
        left = g.emit(g.op.where(seen, scores, g.number(-math.inf)))
        return g.multiply(g.cast(g.emit(g.op.nn.softmax(left, -1)), "float16"), v)

    return read_attention(fuse_attention(g.write(body), HALVES)["attention"])


def test_a_limit_that_only_a_tensor_has_is_none_for_the_program() -> None:
    assert find_limit(limited(lambda g, more: more)) is None


def test_no_limit_depends_on_the_row() -> None:
    assert find_limit(limited(lambda g, more: g.parameter([9, 1], "int64"))) is None


def test_a_limit_may_be_larger_than_32_bits() -> None:
    attention = limited(lambda g, more: g.number(1 << 40, "int64"))
    assert int(find_limit(attention)) == 1 << 40
    tensors = [attention.query, attention.key, attention.value, attention.place]
    heads = Heads(2, 9, 9, 16, 16, 1.0)
    tile = AttentionTile(row_warps=1, key_warps=1, parts=1, keys=16, stages=2, splits=1, heads=1)
    parameters = [load.tensor for load in tensors]
    assert write_program(write_ampere_attention, attention, heads, tile, parameters)


def compile_best(name: str, sizes: Sizes, target: str, folder: Path) -> str:
    """The machine code of the best predicted setting, whose kernels spill nothing."""
    space = space_of(name, sizes, target)
    source = compile_setting(space, space.ranked[0], target).imports[0].inspect_source("cuda")
    code = compile_cuda(source, re.findall(r"sm_\w+", target)[0])
    for use in code.uses.values():
        assert use.stack_bytes == use.spill_store_bytes == 0
        assert use.registers <= gpu_of(target).registers // use.threads
    return disassemble(code.binary, folder)


@needs_nvcc
@pytest.mark.parametrize(("name", "sizes"), LARGE.values(), ids=LARGE)
def test_the_best_predicted_multiply_on_tensor_cores_what_was_copied_ahead(
    name: str, sizes: Sizes, tmp_path: Path
) -> None:
    assembly = compile_best(name, sizes, AMPERE, tmp_path)
    assert {*re.findall(r"HMMA\.\w+", assembly)} == {"HMMA.16816"}
    assert {"LDSM.16.M88.4", "LDSM.16.MT88.4"} <= {*re.findall(r"LDSM[.\w]+", assembly)}
    assert "LDGSTS.E.BYPASS.128" in assembly
    assert "MUFU.EX2" in assembly


@needs_nvcc
@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=() if n in ON_BOTH else pytest.mark.long) for n in LARGE]
)
def test_the_best_predicted_for_hopper_multiply_in_warpgroups_several_at_a_time(
    name: str, tmp_path: Path
) -> None:
    assembly = compile_best(*LARGE[name], HOPPER, tmp_path)
    assert {*re.findall(r"\bH\w*MMA\b", assembly)} == {"HGMMA"}
    # It waits once for the scores of a stage and once for its sums, and not for each product.
    assert len(re.findall(r"WARPGROUP\.DEPBAR", assembly)) == 2
    assert "LDGSTS.E.BYPASS.128" in assembly
    assert "MUFU.EX2" in assembly
