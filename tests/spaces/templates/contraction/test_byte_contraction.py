"""Sums of products of bytes without an instruction for them: depthwise ones, and on older CPUs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from spaces.design_space.default_schedule import default_candidate
from spaces.design_space.knob_space import KnobSpace
from spaces.design_space.realize import realize
from spaces.targets.target import resolve_target
from spaces.templates.contraction.match import match_contraction
from spaces.templates.contraction.template import contraction_templates
from spaces.templates.registry import templates_of
from tests.contracts.programs import write_down
from tests.spaces.templates.int8.test_int8_template import (
    BYTES,
    VNNI,
    answer,
    arguments,
    graph_tasks,
    product_task,
)
from tuner.task import Task

pytestmark = pytest.mark.tvm

PLACES = (0.0, 0.4, 0.8)


def depthwise(dtypes: tuple[str, str], target: str, channels: int = 48) -> Task:
    from tvm import relax

    def convolution(data: Any, weight: Any) -> Any:
        return relax.op.nn.conv2d(
            data, weight, strides=2, padding=1, groups=channels, data_layout="NHWC",
            kernel_layout="HWIO", out_dtype="int32",
        )  # fmt: skip

    shapes = ((1, 9, 11, channels), (3, 3, 1, channels))
    (task,) = graph_tasks(convolution, shapes, dtypes, target)
    return task


def check(task: Task) -> None:
    """See that settings from all over the templates of contractions give the same sums."""
    given = arguments(task, 1)
    plain = answer(task, realize(task, default_candidate(task)), given)
    templates = contraction_templates(task, match_contraction(task))
    assert templates
    for template in templates:
        space = KnobSpace(task, template)
        for place in PLACES:
            point = write_down(space, space.ranked[int(len(space.ranked) * place**2)])
            np.testing.assert_array_equal(answer(task, point.schedule, given), plain)


@pytest.mark.parametrize("data", BYTES)
def test_depthwise_convolutions_are_exact(data: str) -> None:
    check(depthwise((data, "int8"), resolve_target("llvm", cores=1)))


@pytest.mark.parametrize("constant", [False, True])
def test_products_of_odd_sizes_are_exact(constant: bool) -> None:
    host = resolve_target("llvm", cores=1)
    check(product_task((13, 37, 29), ("uint8", "int8"), constant=constant, target=host))


def test_who_gets_this_template() -> None:
    older = '{"kind":"llvm","mcpu":"haswell","num-cores":1}'
    for task in (depthwise(("uint8", "int8"), VNNI), product_task((64, 64, 64), target=older)):
        assert templates_of(task)[0].name.startswith("kernel:contraction")
    assert templates_of(product_task((64, 64, 64)))[0].name.startswith("kernel:int8")
