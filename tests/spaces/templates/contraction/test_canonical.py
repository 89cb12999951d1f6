"""Settings that give one program: the one that stands for all gives the same as they do."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spaces.design_space.knob_space import KnobSpace
from spaces.ir.schedules import InvalidCandidate, code_hash
from spaces.passes.cpu_passes import before_compile
from spaces.templates.base import HasTwins, Template, draw, setting
from spaces.templates.contraction.match import match_contraction
from spaces.templates.contraction.template import contraction_templates
from tests.few_examples import examples
from tests.spaces.after_pass import modules_after
from tests.spaces.templates.contraction.byte_programs import product_task
from tests.spaces.templates.contraction.test_contraction import (
    CPU,
    PROGRAMS,
    SLOW,
    Tensors,
    program_task,
    templates_for,
)
from tuner.candidate import of_knobs
from tuner.task import Task

pytestmark = pytest.mark.tvm


def lowered(space: KnobSpace, knobs: dict[str, int]) -> str:
    """The hash of a setting's program as it is compiled, without loops of one step."""
    module = before_compile(space.write(of_knobs(knobs, space.name)).mod)
    return code_hash(modules_after("RemoveNoOp", module, CPU)[-1])


def twins(task: Task, template: Template, seed: int, most: int) -> None:
    """Compare settings that are not canonical with those that stand for them."""
    assert isinstance(template, HasTwins)
    space = KnobSpace(task, template)
    columns = draw(template, 4096, np.random.default_rng(seed))
    stand = template.canonical(columns)
    good = np.isfinite(template.costs_s(columns))
    moved = np.any([stand[name] != columns[name] for name in columns], axis=0)
    for row in np.flatnonzero(good & moved)[:most]:
        given, kept = setting(columns, int(row)), setting(stand, int(row))
        try:
            wanted = lowered(space, given)
        except InvalidCandidate:
            continue
        assert np.isfinite(template.costs_s({n: np.array([v]) for n, v in kept.items()})).all()
        assert lowered(space, kept) == wanted, (given, kept)


@settings(max_examples=examples(8), **SLOW)
@given(PROGRAMS, st.integers(0, 2**31))
def test_one_setting_stands_for_all_that_give_its_program(tensors: Tensors, seed: int) -> None:
    task = program_task(tensors, constants=[1])
    for template in templates_for(task)[:2]:
        twins(task, template, seed, 2)


def test_so_it_is_for_products_of_bytes() -> None:
    task = product_task((40, 48, 64))
    for template in contraction_templates(task, match_contraction(task)):
        twins(task, template, 0, 3)


@settings(max_examples=15, **SLOW)
@given(PROGRAMS)
def test_a_canonical_setting_stands_for_itself(tensors: Tensors) -> None:
    for template in templates_for(program_task(tensors)):
        assert isinstance(template, HasTwins)
        columns = draw(template, 256, np.random.default_rng(0))
        once = template.canonical(columns)
        again = template.canonical(once)
        assert all(np.array_equal(once[name], again[name]) for name in columns)


def distinct(task: Task, template: Template) -> tuple[int, int]:
    """How many of a space's best settings were written, and how many programs these are."""
    space, hashes = KnobSpace(task, template), []
    for knobs in space.ranked[:400:8]:
        try:
            hashes.append(code_hash(space.write(of_knobs(knobs, space.name)).mod))
        except InvalidCandidate:
            continue
    return len(hashes), len(set(hashes))


def test_settings_that_are_proposed_differ() -> None:
    from tests.spaces.templates.contraction.test_contraction import conv2d, matmul, tensor

    a, b = tensor("a", 60, 96), tensor("b", 96, 72)
    data, weight = tensor("data", 1, 14, 14, 24), tensor("w", 3, 3, 24, 32)
    convolution = conv2d(data, weight, "NHWC", stride=1, pad=1)
    programs: list[list[Any]] = [[a, b, matmul(a, b)], [data, weight, convolution]]
    for tensors in programs:
        for template in templates_for(task := program_task(tensors, constants=[1])):
            written, programs_of_them = distinct(task, template)
            assert written > 25
            assert programs_of_them >= 0.98 * written, template.name
