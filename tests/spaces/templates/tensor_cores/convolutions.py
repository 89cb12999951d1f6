"""Convolutions in every layout and with what networks do to them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from spaces.lowering.extract_tasks import extract
from spaces.lowering.lower import lower
from tests.spaces.templates.tensor_cores.products import AMPERE
from tuner.task import Instance, Task

Size = int | str
"""Of a dimension; the name of an open one."""


@dataclass(frozen=True, slots=True)
class Convolution:
    """Images (batch, *sizes, channels) by kernels (*kernel, channels of a group, filters).

    Attributes:
        first: whether channels come before sizes, and filters before all else of the kernels.
        added: whether a bias, a residual and ReLU follow.
        instances: sizes of open dimensions that it is tuned for.
    """

    batch: Size
    sizes: tuple[Size, ...]
    channels: int
    filters: int
    kernel: tuple[int, ...]
    stride: int = 1
    padding: int = 0
    dilation: int = 1
    groups: int = 1
    first: bool = False
    added: bool = False
    kind: str = "float16"
    instances: tuple[Instance, ...] = ((),)

    @property
    def known(self) -> tuple[tuple[Size, ...], tuple[int, ...]]:
        """The shapes of images and of kernels."""
        inside = self.channels // self.groups
        if self.first:
            images = (self.batch, self.channels, *self.sizes)
            return images, (self.filters, inside, *self.kernel)
        return (self.batch, *self.sizes, self.channels), (*self.kernel, inside, self.filters)


PROGRAMS: Mapping[str, Convolution] = {
    "1x1": Convolution(2, (9, 7), 40, 24, (1, 1)),
    "1x1 stride 2": Convolution(2, (9, 8), 24, 40, (1, 1), 2),
    "3x3": Convolution(2, (9, 11), 72, 40, (3, 3), padding=1),
    "3x3 bfloat16": Convolution(1, (13, 9), 16, 72, (3, 3), 2, 1, kind="bfloat16"),
    "3x3 added": Convolution(3, (7, 7), 24, 16, (3, 3), padding=1, added=True),
    "7x7 of colours": Convolution(2, (30, 29), 3, 24, (7, 7), 2, 3),
    "unpadded": Convolution(1, (12, 9), 8, 33, (5, 2)),
    "dilated": Convolution(1, (17, 15), 16, 24, (3, 3), padding=2, dilation=2),
    "groups": Convolution(2, (9, 9), 48, 72, (3, 3), padding=1, groups=3, added=True),
    "odd groups": Convolution(1, (9, 9), 15, 21, (3, 3), padding=1, groups=3),
    "odd channels": Convolution(1, (9, 9), 13, 17, (3, 3), padding=1, added=True),
    "one pixel": Convolution(1, (3, 3), 64, 40, (3, 3)),
    "one padded pixel": Convolution(1, (1, 1), 16, 24, (3, 3), padding=1),
    "one dimension": Convolution(2, (50,), 24, 40, (5,), 2, 2),
    "three dimensions": Convolution(1, (5, 6, 7), 8, 24, (3, 3, 3), padding=1),
    "channels first": Convolution(2, (9, 11), 24, 40, (3, 3), padding=1, first=True, added=True),
    "channels first, stride 2": Convolution(2, (15, 16), 13, 24, (3, 3), 2, 1, first=True),
    "channels first, 1x1": Convolution(2, (8, 6), 24, 40, (1, 1), first=True),
    "channels first, groups": Convolution(1, (9, 8), 32, 16, (3, 3), 1, 1, groups=2, first=True),
    "open batch": Convolution(
        "n",
        (9, 7),
        16,
        24,
        (3, 3),
        padding=1,
        added=True,
        instances=tuple((("n", n),) for n in (1, 5)),
    ),
    "open batch, 1x1": Convolution(
        "n", (5, 7), 16, 24, (1, 1), instances=tuple((("n", n),) for n in (1, 5))
    ),
    "open images": Convolution(
        "n",
        ("h", "w"),
        16,
        24,
        (3, 3),
        2,
        1,
        instances=tuple(
            (("h", h), ("n", n), ("w", w)) for h, n, w in ((4, 1, 5), (1, 2, 9), (12, 3, 17))
        ),
    ),
    "open images, channels first": Convolution(
        1,
        ("h", "w"),
        8,
        24,
        (3, 3),
        padding=1,
        first=True,
        instances=tuple((("h", h), ("w", w)) for h, w in ((5, 4), (1, 1), (13, 16))),
    ),
}
"""Programs by name; no tile divides their sizes."""


def task_for(name: str, target: str = AMPERE, kind: str = "") -> Task:
    """The task of a program, of elements of another type where one is given."""
    known = PROGRAMS[name]
    return task_of_convolution(replace(known, kind=kind or known.kind), target)


def task_of_convolution(c: Convolution, target: str) -> Task:
    """The task of a convolution, lowered as a graph has it."""
    shapes = tuple((instance, 1.0) for instance in c.instances if instance)
    (task,) = extract(lower(_graph(c), target), target, shapes=shapes)
    return task


def _graph(c: Convolution) -> Any:
    from tvm import relax, tirx

    dims: dict[str, Any] = {}

    def shaped(name: str, sizes: Sequence[Size]) -> Any:
        shape = [
            dims.setdefault(size, tirx.Var(size, "int64")) if isinstance(size, str) else size
            for size in sizes
        ]
        return relax.Var(name, relax.TensorType(shape, c.kind))

    images, kernels = (shaped(name, sizes) for name, sizes in zip("xw", c.known, strict=True))
    place = 1 if c.first else len(c.sizes) + 1
    bias = shaped("bias", [c.filters if i == place else 1 for i in range(len(c.sizes) + 2)])
    axes = "DHW"[-len(c.sizes) :] if len(c.sizes) != 1 else "W"
    layouts = (f"NC{axes}", f"OI{axes}") if c.first else (f"N{axes}C", f"{axes}IO")
    convolve = getattr(relax.op.nn, f"conv{len(c.sizes)}d")
    found = convolve(
        images,
        kernels,
        strides=[c.stride] * len(c.sizes),
        padding=[c.padding] * 2 * len(c.sizes),
        dilation=[c.dilation] * len(c.sizes),
        groups=c.groups,
        data_layout=layouts[0],
        kernel_layout=layouts[1],
    )
    builder = relax.BlockBuilder()
    before = relax.Var("before", builder.normalize(found).ty)
    inputs = [images, kernels, *([bias, before] if c.added else [])]
    with builder.function("main", inputs):
        with builder.dataflow():
            result = builder.emit(found)
            if c.added:
                result = builder.emit(relax.op.add(result, bias))
                result = builder.emit(relax.op.nn.relu(relax.op.add(result, before)))
            result = builder.emit_output(result)
        builder.emit_func_output(result)
    return builder.get()
