"""Inputs that a model's numbers are looked at on: a user's, or drawn ones."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from spaces.frontends.inputs import InputSpec, check_names, make_inputs
from spaces.frontends.model import Model
from spaces.import_check.answers import plan
from spaces.ir.element_types import numpy_dtype
from spaces.precision.products import Array
from tuner.errors import TunerError
from tuner.request.model_spec import InputValue

Given = Sequence[tuple[str, InputValue]]
_DRAWS = 4
"""Drawn inputs at each size."""


def draw_samples(model: Model, given: Given) -> Iterator[list[Array]]:
    """Usual inputs, of open dimensions at several sizes."""
    for instance, number in plan(model.shapes):
        specs = [spec.at(dict(instance)) for spec in model.inputs]
        for draw in range(_DRAWS):
            yield make_inputs(specs, given, seed=1 + number * _DRAWS + draw)


def read_samples(path: Path, model: Model, given: Given) -> list[list[Array]]:
    """The inputs of a file of NumPy's: of each name one array as the model takes it, or several
    behind one another, along an axis before the others. Inputs that it lacks are drawn.

    Raises:
        TunerError: the file cannot be read, or what it holds does not fit.
    """
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = {name: np.asarray(file[name]) for name in file.files}
    except (OSError, ValueError, EOFError) as error:
        raise TunerError(f"--calibrate: cannot read {path} as .npz: {error}") from error
    check_names(arrays, [spec.name for spec in model.inputs], "--calibrate")
    if not arrays:
        raise TunerError(f"--calibrate: {path} holds no array")
    several = {spec.name: _apart(spec, arrays[spec.name]) for spec in model.inputs
               if spec.name in arrays}  # fmt: skip
    counts = {len(each) for each in several.values()}
    if len(counts) > 1 or counts == {0}:
        raise TunerError(f"--calibrate: {path} holds unequal numbers of inputs, or none")
    return [
        _whole(model, {name: each[place] for name, each in several.items()}, given, seed=place)
        for place in range(counts.pop())
    ]


def _apart(spec: InputSpec, array: Array) -> Sequence[Array]:
    """The values of an input, one after another."""
    dtype, rank = numpy_dtype(spec.dtype), len(spec.shape)
    if array.dtype == dtype and array.ndim in (rank, rank + 1):
        each = [array] if array.ndim == rank else list(array)
        if all(_sizes(spec, one) is not None for one in each):
            return [np.ascontiguousarray(one) for one in each]
    raise TunerError(
        f"--calibrate {spec.name}: the file holds {array.dtype} {','.join(map(str, array.shape))}, "
        f"but the model takes {spec.dtype} {','.join(map(str, spec.dims or spec.shape))}, or "
        "several of these behind one another"
    )


def _sizes(spec: InputSpec, array: Array) -> dict[str, int] | None:
    """The sizes of open dimensions that an array has; None where it does not fit."""
    found: dict[str, int] = {}
    for dim, size in zip(spec.dims or spec.shape, array.shape, strict=True):
        if isinstance(dim, int) and dim != size:
            return None
        if isinstance(dim, str) and dim.isidentifier() and found.setdefault(dim, size) != size:
            return None
    return found if spec.at(found).shape == array.shape or not spec.dims else None


def _whole(model: Model, arrays: Mapping[str, Array], given: Given, *, seed: int) -> list[Array]:
    """One value of each input."""
    sizes: dict[str, int] = {}
    for spec in model.inputs:
        if spec.name in arrays:
            for name, size in (_sizes(spec, arrays[spec.name]) or {}).items():
                if sizes.setdefault(name, size) != size:
                    raise TunerError(f"--calibrate: inputs of one sample disagree on {name}")
    missing = [spec.at(sizes) for spec in model.inputs if spec.name not in arrays]
    others = [(name, value) for name, value in given if name not in arrays]
    drawn = dict(zip((s.name for s in missing), make_inputs(missing, others, seed), strict=True))
    return [{**drawn, **arrays}[spec.name] for spec in model.inputs]
