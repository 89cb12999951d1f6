"""Batches of products whose rows and columns are open: those of attention with a cache."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from spaces.design_space.knob_space import KnobSpace
from spaces.design_space.task_space import TaskSpace
from spaces.lowering.extract_tasks import set_shapes, task_of
from spaces.targets.target import emulate_target
from spaces.templates.registry import templates_of
from tuner.candidate import Draft
from tuner.task import Task

pytestmark = pytest.mark.tvm
SHAPES = tuple(((("known", k), ("new", n)), 1.0) for n, k in ((1, 9), (64, 128), (300, 1000)))


def scores(heads: int, arch: str) -> Task:
    """Of new tokens with known ones, in every head."""
    from tvm import te, tirx

    new, known = tirx.Var("new", "int64"), tirx.Var("known", "int64")
    query = te.placeholder((heads, new, 32), "float16", name="query")
    keys = te.placeholder((heads, 32, known), "float16", name="keys")
    depth = te.reduce_axis((0, 32), name="depth")

    def score(h: Any, i: Any, j: Any) -> Any:
        pair = (query[h, i, depth], keys[h, depth, j])
        return te.sum(pair[0].astype("float32") * pair[1].astype("float32"), axis=depth)

    program = te.create_prim_func([query, keys, te.compute((heads, new, known), score)])
    target = emulate_target(f'{{"kind":"cuda","arch":"{arch}"}}')
    return set_shapes(task_of(program, target, name="scores"), SHAPES)


@pytest.mark.each_value
@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
@pytest.mark.parametrize("heads", [1, 4])
def test_a_setting_is_estimated_on_all_shapes_as_on_each(heads: int, arch: str) -> None:
    task = scores(heads, arch)
    template, *_ = templates_of(task)
    knobs = KnobSpace(task, template).ranked[0]
    together = template.shape_costs_s(knobs)  # type: ignore[attr-defined]
    columns = {name: np.array([value]) for name, value in knobs.items()}
    alone = [template.at(instance).costs_s(columns)[0] for instance, _ in task.shapes]  # type: ignore[attr-defined]
    np.testing.assert_allclose(together, alone)
    assert together[0] < together[-1]


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
def test_a_search_finds_settings_for_them(arch: str) -> None:
    point = TaskSpace(scores(4, arch)).realize_draft(Draft("scores", 0, 0))
    assert point.candidate.space.startswith("kernel:")
