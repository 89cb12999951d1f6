"""The templates for attention on CPUs: what they take, their settings, whether these are right."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import tvm

from spaces.codegen.artifact import build_artifact, load_kernel
from spaces.design_space.knob_space import KnobSpace
from spaces.ir import tvm_compat
from spaces.targets.cpu import cpu_of
from spaces.targets.target import parse_target
from spaces.templates.attention.cpu import few_knobs, many_knobs
from spaces.templates.attention.cpu.many_costs import estimate, estimate_cycles
from spaces.templates.attention.heads import Heads
from spaces.templates.base import ShapedTemplate, Template, every
from spaces.templates.registry import templates_of
from tests.spaces.emulation.attention_samples import drawn
from tests.spaces.emulation.samples import Sample, check, rare, wrong
from tests.spaces.templates.attention.attentions import (
    PROGRAMS,
    SHAPES,
    WIDE_PROGRAMS,
    Sizes,
    task_for,
)
from tests.spaces.templates.open_programs import all_values, list_feasible
from tuner.candidate import of_knobs

pytestmark = pytest.mark.tvm

MANY, FEW = "kernel:many-rows-attention-1", "kernel:few-rows-attention-1"
HOST = str(parse_target('{"kind":"llvm","num-cores":2}'))
"""This machine's vectors."""
NARROW = str(parse_target('{"kind":"llvm","mcpu":"x86-64-v3","num-cores":2}'))
"""Vectors of eight rows, in 16 registers."""
OLD = str(parse_target('{"kind":"llvm","mcpu":"x86-64","num-cores":1}'))
TARGETS = {"host": HOST, "narrow": NARROW, "old": OLD}
EVERY = {**WIDE_PROGRAMS, **PROGRAMS}
OPEN = "causal float32 of m rows"
SHAPES_OF_ALL = tuple((("m", m), ("n", n)) for m, n in SHAPES)


def template_of(name: str, sizes: Sizes, target: str = NARROW, place: int = 0) -> Template:
    """A template of a program's attention: for many rows, or for few."""
    return templates_of(task_for(name, sizes, target))[place]


def best_of(template: Template) -> dict[str, int]:
    """The setting that is predicted to be the best."""
    _, settings = list_feasible(template, step=1)
    columns = {knob: np.array([s[knob] for s in settings]) for knob in template.choices}
    return settings[int(np.argmin(template.costs_s(columns)))]


@pytest.mark.parametrize("name", EVERY)
def test_each_program_has_one_for_many_rows_and_where_vectors_divide_heads_one_for_few(
    name: str,
) -> None:
    for sizes in EVERY[name][1]:
        names = [template.name for template in templates_of(task_for(name, sizes, NARROW))]
        whole = sizes.width % 8 == sizes.columns % 8 == 0
        assert names == [MANY, FEW][: 1 + whole]


@pytest.mark.parametrize("target", TARGETS)
def test_each_value_of_a_knob_is_in_some_setting_within_the_limits(target: str) -> None:
    template = template_of("causal", PROGRAMS["causal"][1][0], TARGETS[target])
    used, settings = list_feasible(template, step=20)
    cpu, known = cpu_of(TARGETS[target]), all_values(template)
    most = (cpu.registers - 2) // min(known[many_knobs.VECTORS]) - 1
    for knob in (many_knobs.KEYS, many_knobs.COLUMNS):
        known[knob] = {value for value in known[knob] if value <= most}
    assert used == known
    for own in settings:
        tile = many_knobs.tile_of(own)
        assert tile.vectors * (max(tile.keys, tile.columns) + 1) + 1 <= cpu.registers
        assert tile.keys <= tile.chunk


@pytest.mark.parametrize("target", TARGETS)
def test_each_value_of_a_knob_for_few_rows_is_in_some_setting(target: str) -> None:
    template = template_of("causal", PROGRAMS["causal"][1][0], TARGETS[target], 1)
    used, settings = list_feasible(template, step=20)
    known, registers = all_values(template), cpu_of(TARGETS[target]).registers
    known[few_knobs.VECTORS] = {n for n in known[few_knobs.VECTORS] if 2 * n < registers}
    assert used == known
    for own in settings:
        tile = few_knobs.tile_of(own)
        assert tile.vectors * (tile.rows + 1) + 1 <= registers


SAMPLED = pytest.mark.parametrize(
    ("target", "number"),
    [
        ("host", len(EVERY) // 2),
        ("narrow", 8),
        ("old", 4),
        *(pytest.param(target, 20 * len(EVERY), marks=pytest.mark.long) for target in TARGETS),
    ],
)


@SAMPLED
def test_samples_are_right_with_any_mask_type_and_size(target: str, number: int) -> None:
    samples = list(drawn(TARGETS[target], number, EVERY))
    if number > len(EVERY):
        values = [v for sample in samples for v in sample.values if v[0] != many_knobs.COLUMNS]
        assert rare(values, {*values}) == {}
    assert wrong(samples) == {}


@SAMPLED
def test_samples_for_few_rows_are_right_with_any_mask_type_and_size(
    target: str, number: int
) -> None:
    lanes = cpu_of(TARGETS[target]).lanes(32)
    whole = [
        name
        for name, (_, known) in EVERY.items()
        if all(s.width % lanes == s.columns % lanes == 0 for s in known)
    ]
    samples = list(drawn(TARGETS[target], number, whole, place=1))
    if number > len(EVERY):
        values = [v for sample in samples for v in sample.values]
        assert rare(values, {*values}) == {}
    assert wrong(samples) == {}


def test_the_best_predicted_of_open_sizes_are_right() -> None:
    """Of few rows, and of many."""
    task = task_for(OPEN, WIDE_PROGRAMS[OPEN][1][0], HOST)
    template, _ = templates_of(task)
    assert isinstance(template, ShapedTemplate)
    space, chosen = KnobSpace(task, template), set()
    for shape, _ in (task.shapes[0], task.shapes[-1]):
        best = best_of(template.at(shape))
        chosen.add(tuple(best.items()))
        module = space.write(of_knobs(best, space.name)).mod
        assert check(Sample(task, module, str(best), (), SHAPES_OF_ALL)) == []
    assert len(chosen) > 1


def test_heads_that_share_keys_have_rows_in_one_piece_where_rows_are_few() -> None:
    sizes = Sizes(32, 1, 4096, 128, 128, 8)
    many, few = (template_of("causal", sizes, NARROW, place) for place in range(2))
    assert best_of(many)[many_knobs.HEADS] == best_of(few)[few_knobs.HEADS] == 4
    assert best_of(few)[few_knobs.ROWS] == 4


def test_few_rows_are_estimated_to_be_faster_than_vectors_of_which_most_are_empty() -> None:
    def least(rows: int, place: int) -> float:
        template = template_of("causal", Sizes(32, rows, 4096, 128, 128, 8), NARROW, place)
        columns = every(template)
        return float(np.min(template.costs_s(columns)))

    assert least(1, 1) < least(1, 0)
    assert least(256, 1) > least(256, 0)


def test_rows_beyond_the_last_cost_as_much_as_others() -> None:
    cpu, tile = cpu_of(NARROW), many_knobs.Tile(2, 4, 8, 64, 1, 1)
    full, part = (estimate(Heads(12, rows, 256, 64, 64, 1.0), cpu, tile) for rows in (32, 17))
    assert full.cycles == part.cycles
    assert (full.pieces.padding, part.pieces.padding) == (1.0, 17 / 32)


def test_cores_share_the_pieces_unless_there_is_one() -> None:
    cpu, tile = cpu_of(NARROW), many_knobs.Tile(2, 4, 8, 64, 1, 1)
    alone = replace(tile, parallel=0)
    several, one = (Heads(n, 16, 4096, 64, 64, 1.0) for n in (8, 1))
    assert estimate_cycles(several, cpu, tile) < estimate_cycles(several, cpu, alone)
    assert estimate_cycles(one, cpu, tile) > estimate_cycles(one, cpu, alone)


def test_no_score_is_in_memory_but_those_of_a_piece() -> None:
    """What is allocated does not grow with the rows or the keys."""
    tasks = [task_for("plain", Sizes(2, n, n, 64, 64, 2), NARROW) for n in (512, 4096)]
    best = best_of(templates_of(tasks[0])[0])
    short, long = (
        sizes_of(KnobSpace(task, templates_of(task)[0]).write(of_knobs(best, MANY)).mod["main"])
        for task in tasks
    )
    assert short == long
    assert sum(long) * 4 <= cpu_of(NARROW).l2_bytes


def sizes_of(function: Any) -> list[int]:
    """Elements of each tensor that a program allocates."""
    from tvm import tirx
    from tvm_ffi import structural_walk

    found: list[int] = []

    def look(node: Any) -> None:
        found.append(int(np.prod([tvm_compat.as_int(size) or 0 for size in node.buffer.shape])))

    structural_walk(function.body, [(tirx.AllocBuffer, look)])
    return found


def test_keys_that_no_row_of_a_piece_looks_at_are_not_read() -> None:
    sizes = Sizes(1, 70, 70, 32, 32, 1)
    task = task_for("causal float32 of 70 rows", sizes, NARROW)
    template, _ = templates_of(task)
    setting = {**best_of(template), many_knobs.VECTORS: 1}
    space = KnobSpace(task, template)
    module = space.write(of_knobs(setting, space.name)).mod
    kernel = load_kernel(build_artifact(module, NARROW))
    rng = np.random.default_rng(0)
    shapes = [tvm_compat.param_shape(parameter) for parameter in module["main"].params]
    arrays = [rng.standard_normal(shape).astype("float32") for shape in shapes]
    arrays[1][0, 8:] = np.nan  # the first piece has eight rows
    tensors = [tvm.runtime.tensor(array) for array in arrays]
    kernel.module["main"](*kernel.arguments(tensors, tvm.cpu()))
    found = tensors[-1].numpy()
    assert np.isfinite(found[0, :8]).all()
    assert np.isnan(found[0, 8:]).all()
