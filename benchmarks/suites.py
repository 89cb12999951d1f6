"""Which program of `benchmarks.workloads` with which arguments, and lists of them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks import workloads
from cluster.app.console import parse
from tuner.errors import UsageError

_FILE = Path(workloads.__file__)


@dataclass(frozen=True, slots=True)
class Workload:
    """A program with all its arguments, in the order of its function's.

    Attributes:
        name: of a function of `benchmarks.workloads`.
    """

    name: str
    args: tuple[tuple[str, int], ...]

    @property
    def label(self) -> str:
        """For people: the name and those arguments that are not the default's."""
        usual = defaults(self.name)
        said = [f"{name}={value}" for name, value in self.args if usual[name] != value]
        return " ".join([self.name, *said])

    @property
    def file_name(self) -> str:
        """The label without what is awkward in the name of a folder."""
        return self.label.replace(" ", "-").replace("=", "")

    def prim_func(self) -> Any:
        """The program. Imports TVM."""
        return _functions()[self.name](**dict(self.args))

    def command_line(self) -> list[str]:
        """What names it to `tuner tune`."""
        return [f"{_FILE}:{self.name}", *(f"--arg={name}={value}" for name, value in self.args)]

    def to_json(self) -> dict[str, Any]:
        """As plain data."""
        return {"workload": self.name, "args": dict(self.args)}


def workload(name: str, args: Iterable[tuple[str, object]] = ()) -> Workload:
    """A program by name, arguments that are not given at their defaults.

    Raises:
        UsageError: no such program or argument, or a value that is no integer.
    """
    if name not in _functions():
        raise UsageError(f"{name}: no such workload; there are {', '.join(sorted(_functions()))}")
    values = defaults(name)
    for key, value in args:
        if key not in values:
            raise UsageError(f"--arg {key}: {name} takes {', '.join(values)}")
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            raise UsageError(f"--arg {key}={value}: give a whole number")
        values[key] = value
    return Workload(name, tuple(values.items()))


def parsed(name: str, texts: Iterable[str]) -> Workload:
    """A program by name, with arguments as `m=512`. Raises UsageError."""
    return workload(name, parse.distinct(tuple(texts), parse.argument))


def defaults(name: str) -> dict[str, int]:
    """Arguments of a program and their defaults."""
    parameters = inspect.signature(_functions()[name]).parameters
    return {key: int(parameter.default) for key, parameter in parameters.items()}


def suite(name: str) -> tuple[Workload, ...]:
    """A list by name. Raises UsageError."""
    if name not in SUITES:
        raise UsageError(f"{name}: no such suite; there are {', '.join(SUITES)}")
    return tuple(workload(*entry) for entry in SUITES[name])


def gemm_shape(text: str) -> Workload:
    """`m,n,k`, or `b,m,n,k` with `ta` or `tb` after it, as `12,128,128,64,tb`.

    Raises:
        UsageError: it is neither.
    """
    *sizes, last = text.split(",")
    flags = {"ta": "transpose_a", "tb": "transpose_b"}
    transposed = [(flags[last], 1)] if last in flags else []
    sizes = sizes if transposed else [*sizes, last]
    names = {3: "mnk", 4: "bmnk"}.get(len(sizes))
    if (
        names is None
        or not all(s.isdecimal() and int(s) for s in sizes)
        or (transposed and len(sizes) == 3)
    ):
        raise UsageError(f"--shape {text}: give m,n,k or b,m,n,k or b,m,n,k,tb")
    values = [(key, int(size)) for key, size in zip(names, sizes, strict=True)]
    return workload("gemm" if len(names) == 3 else "batch_gemm", values + transposed)


def _functions() -> dict[str, Callable[..., Any]]:
    return {
        name: function
        for name, function in vars(workloads).items()
        if inspect.isfunction(function) and not name.startswith("_")
    }


Entry = tuple[str, tuple[tuple[str, int], ...]]


def _entry(name: str, **args: int) -> Entry:
    return name, tuple(args.items())


SUITES: dict[str, tuple[Entry, ...]] = {
    # What BERT, ResNet and MobileNet are made of. Weights of convolutions are known ahead.
    "geomean": (
        _entry("gemm", m=512, n=512, k=512),
        _entry("dense", m=128, n=3072, k=768, constant=1),
        _entry("batch_gemm", b=12, m=128, n=128, k=64, transpose_b=1),
        _entry("batch_gemm", b=12, m=128, n=64, k=128),
        _entry("conv2d", c=64, h=56, w=56, f=64, kernel=3, constant=1),
        _entry("conv2d", c=128, h=28, w=28, f=256, kernel=3, stride=2, constant=1),
        _entry("pointwise", c=1024, h=14, w=14, f=256, constant=1),
        _entry("depthwise", c=144, h=56, w=56, constant=1),
        _entry("depthwise", c=512, h=14, w=14, constant=1),
        _entry("softmax", rows=1536, cols=128),
    ),
    # What TVM's own tuners are compared on: one shape of each operator.
    "operators": (
        *(_entry("operator", number=n, case=2) for n in range(len(workloads.OPERATORS) - 1)),
        _entry("operator", number=len(workloads.OPERATORS) - 1, case=0),
    ),
    # A convolution, a depthwise one and a product of those, for budgets unlike.
    "operators-long": tuple(_entry("operator", number=n, case=2) for n in (1, 3, 5)),
    # Of networks on machines without AVX-512, to be run with such a target.
    "avx2": (
        _entry("dense", m=384, n=3072, k=768, constant=1),
        _entry("batch_gemm", b=12, m=128, n=128, k=64, transpose_b=1),
        _entry("conv2d", c=64, h=56, w=56, f=64, kernel=3, constant=1),
    ),
    "blas": (
        *(_entry("gemm", m=size, n=size, k=size) for size in (64, 128, 256, 512, 1024, 2048)),
        _entry("gemm", m=97, n=131, k=113),
        _entry("gemm", m=203, n=509, k=331),
        _entry("gemm", m=777, n=777, k=777),
        _entry("gemm", m=1531, n=1013, k=1279),
        _entry("batch_gemm", b=12, m=128, n=128, k=64, transpose_b=1),
        _entry("batch_gemm", b=12, m=128, n=64, k=128),
        _entry("batch_gemm", b=8, m=256, n=256, k=256),
        _entry("batch_gemm", b=6, m=197, n=197, k=64, transpose_b=1),
    ),
    # Footprints from what the second level of cache holds to more than any cache does.
    "memory": (
        _entry("softmax", rows=1536, cols=128),
        _entry("softmax", rows=8192, cols=1000),
        _entry("layer_norm", rows=512, cols=768),
        _entry("layer_norm", rows=8192, cols=1024),
        _entry("reduce_sum", rows=2048, cols=1024),
        _entry("reduce_columns", rows=2048, cols=1024),
        _entry("reduce_sum", rows=16384, cols=2048),
        _entry("max_pool", c=64, h=112, w=112),
        _entry("elementwise", rows=512, cols=512),
        _entry("elementwise", rows=8192, cols=1024),
    ),
}
"""Fixed lists, by name."""
