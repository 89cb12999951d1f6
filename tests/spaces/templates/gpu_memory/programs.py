"""Programs bound by memory as networks have them, with sizes that vectors do not always divide."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from spaces.lowering.extract_tasks import extract
from spaces.lowering.lower import lower
from spaces.targets.target import emulate_target
from tuner.dynamic.shapes import joint
from tuner.task import Instance, Task

HOPPER = emulate_target('{"kind":"cuda","arch":"sm_90a"}')
Dim = int | str
Body = Callable[..., Any]
_F32, _F16 = "float32", "float16"


@dataclass(frozen=True, slots=True)
class Source:
    """A model of one operator, or of a few that are fused.

    Attributes:
        dims: of its inputs, symbolic ones by name; `kinds` their types.
        body: of a module of TVM's operators and the inputs.
        tuned: sizes of each symbolic dimension that it is tuned for.
        run: all shapes that it is run on.
    """

    dims: Sequence[Sequence[Dim]]
    body: Body
    kinds: Sequence[str] = (_F32,)
    tuned: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    run: tuple[Instance, ...] = ((),)


def open_dim(name: str, tuned: tuple[int, ...], more: tuple[int, ...]) -> dict[str, Any]:
    """One symbolic dimension."""
    return {"tuned": {name: tuned}, "run": tuple(((name, n),) for n in (*tuned, *more))}


def _filter(
    op: Any, x: Any, w: Any, *, first: bool = False, groups: int = 0, **options: int
) -> Any:
    """A convolution with a filter for each channel, or `groups` of several."""
    layouts = ("NCHW", "OIHW") if first else ("NHWC", "HWIO")
    channels = int(x.ty.shape[1 if first else 3])
    return op.nn.conv2d(
        x, w, groups=groups or channels, data_layout=layouts[0], kernel_layout=layouts[1], **options
    )


def _filter_last(op: Any, x: Any, w: Any, bias: Any) -> Any:
    """With a bias and ReLU."""
    return op.nn.relu(op.add(_filter(op, x, w, padding=1), bias))


_ROWS = open_dim("m", (1, 33), (0, 5))
_LENGTH = open_dim("n", (1, 7, 64, 300), (0, 96, 517))
_LONGER = open_dim("n", (1, 7, 64, 300), (96, 517))
_BOTH: dict[str, Any] = {
    "tuned": {"m": (1, 9), "n": (5, 64)},
    "run": tuple((("m", m), ("n", n)) for m, n in ((1, 1), (9, 64), (0, 5), (3, 0), (5, 300))),
}
_IMAGES: dict[str, Any] = {
    "tuned": {"m": (4, 12), "n": (5, 16)},
    "run": tuple((("m", m), ("n", n)) for m, n in ((4, 5), (12, 16), (1, 1), (9, 33))),
}

PROGRAMS: Mapping[str, Source] = {
    "softmax": Source([(33, 1000)], lambda op, x: op.nn.softmax(x)),
    "softmax in halves": Source([(9, 3, 512)], lambda op, x: op.nn.softmax(x), [_F16]),
    "softmax of odd rows": Source([(77, 517)], lambda op, x: op.nn.softmax(x)),
    "softmax across": Source([(5, 37, 64)], lambda op, x: op.nn.softmax(x, 1), [_F16]),
    "softmax of open rows": Source([("m", 256)], lambda op, x: op.nn.softmax(x), [_F16], **_ROWS),
    "softmax of open length": Source([(37, "n")], lambda op, x: op.nn.softmax(x), **_LENGTH),
    "softmax of open sizes": Source([("m", "n")], lambda op, x: op.nn.softmax(x), [_F16], **_BOTH),
    "RMS norm": Source(
        [(50, 1024), (1024,)], lambda op, x, g: op.nn.rms_norm(x, g, [-1]), [_F16] * 2
    ),
    "RMS norm of open rows": Source(
        [("m", 520), (520,)], lambda op, x, g: op.nn.rms_norm(x, g, [-1]), [_F16] * 2, **_ROWS
    ),
    "layer norm": Source(
        [(8, 20, 384), (384,), (384,)],
        lambda op, x, g, b: op.nn.layer_norm(x, g, b, [-1]),
        [_F16] * 3,
    ),
    "sums of rows": Source([(77, 1024)], lambda op, x: op.sum(x, [1])),
    "sums of columns": Source([(517, 72)], lambda op, x: op.sum(x, [0])),
    "sums of columns of open length": Source([("n", 72)], lambda op, x: op.sum(x, [0]), **_LONGER),
    "sum of all of open length": Source([("n", 72)], lambda op, x: op.sum(x), [_F16], **_LONGER),
    "largest of all": Source([(61, 1000)], lambda op, x: op.max(x)),
    "global average": Source([(3, 50, 7, 7)], lambda op, x: op.mean(x, [2, 3])),
    "pooling": Source([(3, 8, 17, 17)], lambda op, x: op.nn.max_pool2d(x, [3, 3], [2, 2], [1, 1])),
    "pooling, channels last": Source(
        [(2, 9, 11, 24)],
        lambda op, x: op.nn.max_pool2d(x, [3, 3], [2, 2], [1, 1], layout="NHWC"),
        [_F16],
    ),
    "filters of channels": Source([(2, 9, 11, 48), (3, 3, 1, 48), (48,)], _filter_last),
    "filters of channels in halves": Source(
        [(2, 9, 11, 40), (3, 3, 1, 40)], partial(_filter, strides=2, padding=1), [_F16] * 2
    ),
    "two filters of a channel": Source(
        [(1, 9, 9, 12), (5, 2, 1, 24)], partial(_filter, groups=12, dilation=2)
    ),
    "filters of channels, first": Source(
        [(2, 13, 9, 11), (13, 1, 5, 5)], partial(_filter, first=True, strides=2, padding=2)
    ),
    "filters of a line": Source(
        [(2, 50, 24), (5, 1, 24)],
        lambda op, x, w: op.nn.conv1d(x, w, 2, 2, 1, 24, "NWC", "WIO"),
    ),
    "filters of channels of open batch": Source(
        [("n", 9, 7, 16), (3, 3, 1, 16)],
        partial(_filter, padding=1),
        **open_dim("n", (1, 5), (0, 2)),
    ),
    "filters of channels of open images": Source(
        [(1, 13, "m", "n"), (13, 1, 3, 3)],
        partial(_filter, first=True, padding=1),
        [_F16] * 2,
        **_IMAGES,
    ),
    "GELU": Source([(37, 264)], lambda op, x: op.nn.gelu(x), [_F16]),
    "GELU of an odd row": Source([(1, 1001)], lambda op, x: op.nn.gelu(x)),
    "GELU of an odd column": Source([(1001, 1)], lambda op, x: op.nn.gelu(x)),
    "GELU of open rows": Source([("n", 33)], lambda op, x: op.nn.gelu(x), **_LENGTH),
    "residual and bias": Source(
        [(5, 37, 264), (5, 37, 264), (264,)],
        lambda op, x, y, b: op.add(op.add(x, y), b),
        [_F16] * 3,
    ),
    "cast": Source([(37, 264)], lambda op, x: op.astype(x, "float16")),
    "rows by index": Source(
        [(100, 264), (37,)], lambda op, x, i: op.take(x, i, axis=0), [_F16, "int32"]
    ),
    "heads inside": Source(
        [(3, 17, 8, 64)], lambda op, x: op.permute_dims(x, [0, 2, 1, 3]), [_F16]
    ),
    "transpose": Source([(77, 132)], lambda op, x: op.permute_dims(x)),
    "transpose of odd sizes": Source([(333, 117)], lambda op, x: op.permute_dims(x), [_F16]),
    "transpose of open length": Source(
        [(2, "n", 64)], lambda op, x: op.permute_dims(x, [0, 2, 1]), [_F16], **_LENGTH
    ),
    "transpose and add": Source(
        [(77, 132), (132, 77), (77,)],
        lambda op, x, y, b: op.add(op.add(op.permute_dims(x), y), b),
        [_F16] * 3,
    ),
    "all axes": Source([(5, 36, 3, 40)], lambda op, x: op.permute_dims(x, [3, 0, 2, 1]), [_F16]),
}
"""Programs by name."""

TRANSPOSE = Source([(4096, 4096)], lambda op, x: op.permute_dims(x))


def task_for(source: Source, target: str = HOPPER) -> Task:
    """The task of a program."""
    from tvm import relax
    from tvm.tirx import Var

    known = {name: Var(name, "int64") for name in source.tuned}
    builder = relax.BlockBuilder()
    kinds = [*source.kinds, *[source.kinds[-1]] * len(source.dims)]
    variables = [
        relax.Var(f"x{i}", relax.TensorType([known.get(str(d), d) for d in dims], kind))
        for i, (dims, kind) in enumerate(zip(source.dims, kinds, strict=False))
    ]
    with builder.function("main", variables):
        with builder.dataflow():
            body = builder.normalize(source.body(relax.op, *variables))
            out = builder.emit_output(body)
        builder.emit_func_output(out)
    shapes = joint([*source.tuned.items()]) if source.tuned else ()
    (task,) = extract(lower(builder.get(), target), target, None, shapes)
    return task
