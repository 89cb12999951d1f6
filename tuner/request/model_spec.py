"""A model that is asked for, with what it leaves open."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tuner import checks
from tuner.errors import UsageError
from tuner.request.setting import check
from tuner.task import Shapes


@dataclass(frozen=True, slots=True)
class IntRange:
    """Integers to draw an input from, both ends included.

    Raises:
        UsageError: the ends are not integers, or `low` is above `high`.
    """

    low: int
    high: int

    def __post_init__(self) -> None:
        checks.integers("NAME", self.low, self.high, f"int:{self}")

    def __str__(self) -> str:
        return f"{self.low}..{self.high}"


@dataclass(frozen=True, slots=True)
class InputArray:
    """The value of an input, from memory.

    Attributes:
        npy: bytes of a `.npy` file with it: arrays themselves can be neither compared nor hashed.
    """

    npy: bytes = field(repr=False)

    def __str__(self) -> str:
        return "the array"


InputValue = Path | IntRange | InputArray


@dataclass(frozen=True, slots=True)
class ModelSpec:
    """A model, with the values of its dynamic shapes and free arguments.

    Attributes:
        source: `model.onnx`, `model.pt2`, `path.py:function` or `package.module:function`.
        shapes: shape of each input that the model leaves dynamic.
        inputs: values of inputs: a file, an array, or a range of integers to draw from.
        args: keyword arguments for a function that makes the model.
        dims: sizes of each dimension that stays symbolic, ascending.
        ties: dimensions that follow from others, each with what it is, as people write it:
            `past + new`.
        weights: file with the weight of each shape, or the weights; None weighs all shapes alike.
        program: the model itself where it came from memory, a `spaces.frontends.model.Model`;
            `source` is then only what people call it.

    Raises:
        UsageError: a value is invalid, or a name is given twice; nothing is opened.
    """

    source: str
    shapes: tuple[tuple[str, tuple[int, ...]], ...] = ()
    inputs: tuple[tuple[str, InputValue], ...] = ()
    args: tuple[tuple[str, str | int | float], ...] = ()
    dims: tuple[tuple[str, tuple[int, ...]], ...] = ()
    ties: tuple[tuple[str, str], ...] = ()
    weights: Path | Shapes | None = None
    program: Any = field(default=None, compare=False, repr=False)

    def __post_init__(self) -> None:
        check("source", self.source, checks.nonempty)
        _pairs("shapes", self.shapes, _check_shape, _sizes)
        _pairs("inputs", self.inputs, _check_input, _input_text)
        _pairs("args", self.args, _check_argument, str)
        _pairs("dims", self.dims, _check_dimension, _sizes)
        _pairs("ties", self.ties, checks.tie, str)
        twice = [(name, f"{name}={value}") for name, value in (*self.dims, *self.ties)]
        checks.each_once(twice)
        if isinstance(self.weights, str | Path):
            check("weights", str(self.weights), checks.nonempty)


def _pairs(
    field: str,
    pairs: Iterable[tuple[str, Any]],
    check: Callable[[str, Any, str], object],
    text: Callable[[Any], str],
) -> None:
    """Check each pair of a name and a value, shown as a user types it: `x=1,3`."""
    shown = []
    for pair in pairs:
        if not (isinstance(pair, tuple | list) and len(pair) == 2 and isinstance(pair[0], str)):
            raise UsageError(f"{field}: {checks.short(pair)} is no pair of a name and its value")
        name, value = pair
        shown.append((name, f"{name}={text(value)}"))
        try:
            check(name, value, shown[-1][1])
        except UsageError as error:
            raise UsageError(f"{field}: {error}") from error
    try:
        checks.each_once(shown)
    except UsageError as error:
        raise UsageError(f"{field}: {error}") from error


def _sizes(sizes: Any) -> str:
    return ",".join(map(str, sizes)) if isinstance(sizes, Iterable) else str(sizes)


def _input_text(value: Any) -> str:
    return f"int:{value}" if isinstance(value, IntRange) else str(value)


def _check_shape(name: str, sizes: Any, shown: str) -> None:
    checks.extents(name, _list(sizes), shown)


def _check_dimension(name: str, sizes: Any, shown: str) -> None:
    listed = _list(sizes)
    if listed != list(checks.dimension(name, listed, shown)):
        raise UsageError(f"{shown!r} is not in order: give each size once, the smallest first")
    if listed == [0]:
        raise UsageError(f"{shown!r}: kernels are made for sizes above 0, name one of these, too")


def _list(sizes: Any) -> list[Any]:
    return list(sizes) if isinstance(sizes, Iterable) and not isinstance(sizes, str) else []


def _check_input(name: str, value: Any, shown: str) -> None:
    if isinstance(value, IntRange):
        checks.integers(name, value.low, value.high, shown)
    elif isinstance(value, InputArray):
        checks.input_name(name, shown)
    else:
        checks.array_file(name, value, shown)


def _check_argument(name: str, value: Any, shown: str) -> None:
    checks.argument(name, shown)
    if not isinstance(value, str | int | float):
        raise UsageError(f"{shown!r} is not an argument: its value is no text and no number")
