"""Convolutions in halves, singles and bytes, in every layout and with what networks do to them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from spaces.lowering.extract_tasks import extract
from spaces.lowering.lower import lower
from spaces.templates.tensor_cores.tile import BYTES
from tests.spaces.templates.tensor_cores.products import AMPERE
from tuner.task import Instance, Task

Size = int | str
"""Of a dimension; the name of an open one."""


@dataclass(frozen=True, slots=True)
class Convolution:
    """Images (batch, *sizes, channels) by kernels (*kernel, channels of a group, filters).

    Attributes:
        first: whether channels come before sizes, and filters before all else of the kernels.
        terms_last: whether, of kernels, channels of a group come last and filters first, sizes
            between them.
        added: whether a bias, a residual and ReLU follow; of bytes a bias, a scale, rounding and
            clipping, as in ONNX's QLinearConv.
        kind: type of images; `kernels` that of kernels, where it is another.
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
    terms_last: bool = False
    added: bool = False
    kind: str = "float16"
    kernels: str = ""
    instances: tuple[Instance, ...] = ((),)

    @property
    def known(self) -> tuple[tuple[Size, ...], tuple[int, ...]]:
        """The shapes of images and of kernels."""
        inside = self.channels // self.groups
        if self.first:
            images = (self.batch, self.channels, *self.sizes)
            return images, (self.filters, inside, *self.kernel)
        images = (self.batch, *self.sizes, self.channels)
        if self.terms_last:
            return images, (self.filters, *self.kernel, inside)
        return images, (*self.kernel, inside, self.filters)

    @property
    def layouts(self) -> tuple[str, str]:
        """The order of their axes."""
        axes = "DHW"[-len(self.sizes) :] if len(self.sizes) != 1 else "W"
        if self.first:
            return f"NC{axes}", f"OI{axes}"
        return f"N{axes}C", f"O{axes}I" if self.terms_last else f"{axes}IO"

    @property
    def sums(self) -> str:
        """The type of sums."""
        return "int32" if self.kind in BYTES.names else self.kind


PROGRAMS: Mapping[str, Convolution] = {
    "1x1": Convolution(2, (9, 7), 40, 24, (1, 1)),
    "1x1 stride 2": Convolution(2, (9, 8), 24, 40, (1, 1), 2),
    "3x3": Convolution(2, (9, 11), 72, 40, (3, 3), padding=1),
    "3x3 stride 2": Convolution(1, (13, 9), 16, 72, (3, 3), 2, 1, kind="bfloat16"),
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
"""Programs in halves by name; no tile divides their sizes."""
SINGLE_PROGRAMS = {name: replace(c, kind="float32") for name, c in PROGRAMS.items()}
"""The same in single precision."""
CHANNELS_LAST_PROGRAMS = {
    name: replace(each, terms_last=True) for name, each in SINGLE_PROGRAMS.items() if not each.first
}
"""Of these those whose images have channels last, in kernels too."""
BYTE_PROGRAMS: Mapping[str, Convolution] = {
    "1x1": Convolution(2, (9, 7), 48, 33, (1, 1), kind="int8", terms_last=True),
    "3x3": Convolution(2, (9, 11), 80, 40, (3, 3), padding=1, kind="int8", terms_last=True),
    "rows last": Convolution(1, (9, 11), 48, 80, (3, 3), padding=1, kind="int8"),
    "signs of one": Convolution(
        *(3, (13, 9), 32, 72, (3, 3), 2, 1),
        terms_last=True,
        added=True,
        kind="uint8",
        kernels="int8",
    ),
    "requantized": Convolution(
        3, (7, 7), 24, 16, (3, 3), padding=1, added=True, kind="uint8", kernels="int8"
    ),
    "7x7 of colours": Convolution(2, (30, 29), 3, 24, (7, 7), 2, 3, kind="uint8", kernels="int8"),
    "dilated": Convolution(
        1, (17, 15), 16, 24, (3, 3), padding=2, dilation=2, kind="int8", terms_last=True
    ),
    "groups": Convolution(
        2, (9, 9), 48, 72, (3, 3), padding=1, groups=3, added=True, kind="uint8", terms_last=True
    ),
    "odd channels": Convolution(1, (9, 9), 13, 17, (3, 3), padding=1, kind="uint8", kernels="int8"),
    "one padded pixel": Convolution(1, (1, 1), 16, 24, (3, 3), padding=1, kind="int8"),
    "one dimension": Convolution(2, (50,), 24, 40, (5,), 2, 2, kind="int8"),
    "channels first": Convolution(
        2, (9, 11), 24, 40, (3, 3), padding=1, first=True, added=True, kind="int8"
    ),
    "channels first, 1x1": Convolution(2, (8, 6), 24, 40, (1, 1), first=True, kind="uint8"),
    "open batch": replace(
        PROGRAMS["open batch"], kind="uint8", kernels="int8", channels=32, terms_last=True
    ),
    "open images": replace(PROGRAMS["open images"], kind="int8", terms_last=True),
    "open images, rows last": replace(PROGRAMS["open images"], kind="uint8", channels=13),
}
"""Programs in bytes, whose sums are in int32."""
LAYER = Convolution(8, (56, 56), 64, 64, (3, 3), padding=1, added=True)
"""Of a ResNet's first stage; `STEM` is what is before it."""
STEM = Convolution(8, (224, 224), 3, 64, (7, 7), 2, 3)
OPEN = replace(
    LAYER,
    batch="n",
    sizes=("h", "w"),
    instances=((("h", 56), ("n", 8), ("w", 56)), (("h", 224), ("n", 1), ("w", 224))),
)


def task_for(name: str, target: str = AMPERE) -> Task:
    """The task of a program in halves."""
    return task_of_convolution(PROGRAMS[name], target)


@cache
def task_of_convolution(c: Convolution, target: str) -> Task:
    """The task of a convolution, lowered as a graph has it."""
    shapes = tuple((instance, 1.0) for instance in c.instances if instance)
    (task,) = extract(lower(_graph(c), target), target, shapes=shapes)
    return task


def _graph(c: Convolution) -> Any:
    from tvm import relax, tirx

    dims: dict[str, Any] = {}

    def shaped(name: str, sizes: Sequence[Size], kind: str) -> Any:
        shape = [
            dims.setdefault(size, tirx.Var(size, "int64")) if isinstance(size, str) else size
            for size in sizes
        ]
        return relax.Var(name, relax.TensorType(shape, kind))

    kinds = (c.kind, c.kernels or c.kind)
    images, kernels = map(shaped, "xw", c.known, kinds)
    place = 1 if c.first else len(c.sizes) + 1
    sizes = [c.filters if i == place else 1 for i in range(len(c.sizes) + 2)]
    bias = shaped("bias", sizes, c.sums)
    convolve = getattr(relax.op.nn, f"conv{len(c.sizes)}d")
    data_layout, kernel_layout = c.layouts
    found = convolve(
        images,
        kernels,
        strides=[c.stride] * len(c.sizes),
        padding=[c.padding] * 2 * len(c.sizes),
        dilation=[c.dilation] * len(c.sizes),
        groups=c.groups,
        data_layout=data_layout,
        kernel_layout=kernel_layout,
        out_dtype=c.sums if c.kind in BYTES.names else None,
    )
    builder = relax.BlockBuilder()
    before = relax.Var("before", builder.normalize(found).ty)
    more = [bias] if c.kind in BYTES.names else [bias, before]
    with builder.function("main", [images, kernels, *(more if c.added else [])]):
        with builder.dataflow():
            result = builder.emit(found)
            if c.added:
                result = builder.emit(relax.op.add(result, bias))
                finish = _requantize if c.kind in BYTES.names else _add_residual
                result = finish(builder, result, before)
            result = builder.emit_output(result)
        builder.emit_func_output(result)
    return builder.get()


def _add_residual(builder: Any, result: Any, before: Any) -> Any:
    from tvm import relax

    return builder.emit(relax.op.nn.relu(relax.op.add(result, before)))


def _requantize(builder: Any, result: Any, _before: Any) -> Any:
    from tvm import relax

    emit = builder.emit
    scaled = emit(emit(relax.op.astype(result, "float32")) * relax.const(0.0007))
    moved = emit(emit(relax.op.round(scaled)) + relax.const(100.0))
    return emit(relax.op.astype(emit(relax.op.clip(moved, 0.0, 255.0)), "uint8"))
