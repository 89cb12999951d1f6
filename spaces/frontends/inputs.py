"""What goes into a model: its inputs' shapes and types, and values for them."""

from __future__ import annotations

import io
import zlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from spaces.ir.element_types import numpy_dtype
from tuner.dynamic.derived_names import derive
from tuner.errors import TunerError
from tuner.request.model_spec import InputArray, InputValue, IntRange

Shape = tuple[int, ...]
_SAFE_INTS = IntRange(0, 1)
"""Integers are mostly indices: these two are in range almost everywhere."""
_DIVISORS = IntRange(1, 2)


@dataclass(frozen=True, slots=True)
class InputSpec:
    """One input of a model.

    Attributes:
        shape: all its dimensions; of a model with symbolic ones, for the largest of its shapes.
        dims: the dimensions as they are declared, symbolic ones by name; empty where all are
            known.
        drawn: the integers that it is drawn from, where the model says which make sense.
    """

    name: str
    shape: Shape
    dtype: str
    dims: tuple[int | str, ...] = ()
    drawn: IntRange | None = None

    def at(self, values: Mapping[str, int]) -> InputSpec:
        """The input for one shape.

        Args:
            values: of the model's symbolic dimensions.
        """
        if not self.dims:
            return self
        shape = tuple(d if isinstance(d, int) else derive(d, values) or 0 for d in self.dims)
        return replace(self, shape=shape, dims=())


def check_names(given: Iterable[str], known: Sequence[str], option: str) -> None:
    """Refuse an option for an input that the model does not have.

    Raises:
        TunerError: naming those there are.
    """
    for name in given:
        if name not in known:
            listed = ", ".join(known) if known else "none"
            raise TunerError(f"{option} {name}: no such input; the model has {listed}")


def check_values(
    inputs: Sequence[InputSpec], values: Sequence[tuple[str, InputValue]]
) -> dict[str, np.ndarray[Any, Any] | IntRange]:
    """What was given for inputs, by name, files read.

    Raises:
        TunerError: an unknown name, a file or an array that does not fit, or a range for an
            input that holds no integers.
    """
    known = {spec.name: spec for spec in inputs}
    check_names([name for name, _ in values], list(known), "--input")
    return {
        name: _check_range(known[name], value)
        if isinstance(value, IntRange)
        else _load(known[name], value)
        for name, value in values
    }


def make_inputs(
    inputs: Sequence[InputSpec],
    values: Sequence[tuple[str, InputValue]] = (),
    seed: int = 0,
    divisors: Collection[int] = (),
) -> list[np.ndarray[Any, Any]]:
    """A value for each input, in their order; the same for the same seed.

    Floats are standard normal. Integers come from the range given for them, else from the one that
    the model says, else they are 0 or 1, and 1 or 2 where the model divides by them. Files hold one
    array each. They and arrays are checked.

    Args:
        divisors: positions of inputs that are divided by.

    Raises:
        TunerError: an unknown name, a file or an array that does not fit, or a range for an
            input that holds no integers.
    """
    given = check_values(inputs, values)
    arrays = []
    for position, spec in enumerate(inputs):
        value = given.get(spec.name)
        if isinstance(value, np.ndarray):
            arrays.append(value)
            continue
        # Each input has a stream of its own, so naming a file for one changes no other.
        rng = np.random.default_rng([seed, zlib.crc32(spec.name.encode())])
        usual = spec.drawn or (_DIVISORS if position in divisors else _SAFE_INTS)
        arrays.append(_draw(spec, value, rng, usual))
    return arrays


def _draw(
    spec: InputSpec, given: IntRange | None, rng: np.random.Generator, usual: IntRange
) -> np.ndarray[Any, Any]:
    dtype = numpy_dtype(spec.dtype)
    if dtype.kind in "iub":
        chosen = given or usual
        return rng.integers(chosen.low, chosen.high, spec.shape, endpoint=True).astype(dtype)
    return np.asarray(rng.standard_normal(spec.shape)).astype(dtype)


def _check_range(spec: InputSpec, given: IntRange) -> IntRange:
    if numpy_dtype(spec.dtype).kind not in "iub":
        raise TunerError(f"--input {spec.name}: it holds {spec.dtype}, not integers")
    return given


def _load(spec: InputSpec, given: Path | InputArray) -> np.ndarray[Any, Any]:
    file = given if isinstance(given, Path) else io.BytesIO(given.npy)
    try:
        array = np.load(file, allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise TunerError(f"--input {spec.name}: cannot read {given} as .npy: {error}") from error
    if not isinstance(array, np.ndarray):
        raise TunerError(f"--input {spec.name}: {given} holds several arrays, one .npy is needed")
    if spec.dtype == "bfloat16" and array.dtype == "V2":  # such files do not know that type
        array = array.view(numpy_dtype(spec.dtype))
    if array.shape != spec.shape or array.dtype != numpy_dtype(spec.dtype):
        raise TunerError(
            f"--input {spec.name}: {given} holds {array.dtype} {_text(array.shape)}, "
            f"but the model takes {spec.dtype} {_text(spec.shape)}"
        )
    return np.ascontiguousarray(array)


def _text(shape: Shape) -> str:
    return ",".join(map(str, shape)) or "scalar"
