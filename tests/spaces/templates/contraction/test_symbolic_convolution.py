"""Convolutions whose batch, height and width are symbolic: any setting computes every shape."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from spaces.design_space.knob_space import KnobSpace
from spaces.lowering.extract_tasks import extract
from spaces.lowering.lower import lower
from spaces.lowering.task_shapes import shapes_of
from spaces.targets.target import resolve_target
from spaces.templates.contraction.match import match_contraction
from spaces.templates.contraction.template import ContractionTemplate, contraction_templates
from tests.contracts.programs import write_down
from tests.spaces.red_zones import Array, check_shapes, feasible
from tuner.dynamic.shapes import joint
from tuner.task import Task

pytestmark = pytest.mark.tvm

CPU = resolve_target("llvm", cores=2)
TUNED = {"N": (1, 3), "H": (6, 12), "W": (5, 12)}


@dataclass(frozen=True)
class Convolution:
    """A convolution with bias and ReLU; channels first, its weights are inputs: a convolution of
    constants would be moved to channels last.

    Attributes:
        inside: channels of the input; `outside` of the result.
    """

    layout: str
    inside: int
    outside: int
    size: int
    stride: int = 1
    pad: int = 0

    def lowered(self) -> Any:
        from tvm import relax, tirx

        n, h, w = (tirx.Var(name, "int64") for name in "NHW")
        first = self.layout == "NCHW"
        c, f, k = self.inside, self.outside, self.size
        rng = np.random.default_rng(0)
        shapes = ((f, c, k, k), (1, f, 1, 1)) if first else ((k, k, c, f), (f,))
        weight, bias = (
            relax.Var(name, relax.TensorType(shape, "float32"))
            if first
            else relax.const(rng.standard_normal(shape).astype("float32"))
            for name, shape in zip(("w", "b"), shapes, strict=True)
        )
        x = relax.Var("x", relax.TensorType((n, c, h, w) if first else (n, h, w, c), "float32"))
        builder = relax.BlockBuilder()
        with builder.function("main", [x, weight, bias] if first else [x]):
            with builder.dataflow():
                made = relax.op.nn.conv2d(
                    x,
                    weight,
                    strides=self.stride,
                    padding=self.pad,
                    data_layout=self.layout,
                    kernel_layout="OIHW" if first else "HWIO",
                )
                moved = builder.emit(relax.op.add(builder.emit(made), bias))
                out = builder.emit_output(relax.op.nn.relu(moved))
            builder.emit_func_output(out)
        return lower(builder.get(), CPU)

    def expected(self, x: Array, weight: Array, bias: Array) -> Array:
        """By NumPy."""
        if self.layout == "NCHW":
            x, weight = x.transpose(0, 2, 3, 1), weight.transpose(2, 3, 1, 0)
        if 0 in x.shape:  # NumPy has no windows on nothing
            out = np.zeros((*x.shape[:3], self.outside), "float32")
            return out.transpose(0, 3, 1, 2) if self.layout == "NCHW" else out
        edge = (self.pad, self.pad)
        x = np.pad(x, ((0, 0), edge, edge, (0, 0)))
        windows = np.lib.stride_tricks.sliding_window_view(x, weight.shape[:2], (1, 2))
        windows = windows[:, :: self.stride, :: self.stride]
        out = np.maximum(np.einsum("nhwcij,ijcf->nhwf", windows, weight) + bias.reshape(-1), 0)
        return out.transpose(0, 3, 1, 2) if self.layout == "NCHW" else out


CONVOLUTIONS = {
    "nhwc": Convolution("NHWC", 16, 24, 3, pad=1),
    "nhwc-strided": Convolution("NHWC", 3, 16, 7, stride=2, pad=3),
    "nhwc-pointwise": Convolution("NHWC", 8, 40, 1),
    "nhwc-narrower": Convolution("NHWC", 8, 16, 3),
    "nchw": Convolution("NCHW", 6, 10, 3, pad=1),
    "nchw-pointwise-strided": Convolution("NCHW", 8, 8, 1, stride=2),
}
SHAPES = [(1, 6, 5), (3, 12, 12), (2, 3, 3), (1, 7, 31), (5, 13, 4), (1, 37, 17)]
"""Of batch, height and width: within the domain, primes, beyond it."""
SMALLER = [(2, 1, 1), (1, 1, 9), (0, 4, 5), (1, 0, 4), (2, 5, 0)]
"""Those that a convolution whose result is as large as its input takes as well."""


def task_of(lowered: Any) -> Task:
    found = extract(lowered, CPU, "*conv2d*", joint(list(TUNED.items())))
    (task,) = found
    return task


@pytest.mark.parametrize("number", [0, *(pytest.param(n, marks=pytest.mark.long) for n in (1, 2))])
@pytest.mark.parametrize("name", sorted(CONVOLUTIONS))
def test_any_setting_computes_every_batch_and_image(name: str, number: int) -> None:
    convolution = CONVOLUTIONS[name]
    lowered = convolution.lowered()
    task = task_of(lowered)
    keeps_size = 2 * convolution.pad == convolution.size - 1
    sizes = SHAPES + (SMALLER if keeps_size and convolution.stride == 1 else [])
    instances = [tuple(sorted(zip("NHW", size, strict=True))) for size in sizes]
    shapes = [dict(shapes_of(lowered, task.name, ((i, 1.0),))[0][0]) for i in instances]
    templates = [
        t
        for t in contraction_templates(task, match_contraction(task))
        if isinstance(t, ContractionTemplate)
    ]
    assert templates
    template = templates[number % len(templates)]
    (knobs,) = feasible(task, template, 1, seed=number)
    point = write_down(KnobSpace(task, template), knobs)
    check_shapes(task, point.schedule.mod, shapes, convolution.expected)
