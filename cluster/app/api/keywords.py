"""A program's keywords, in the form that `ModelSpec` and `TuneOptions` take. Nothing is opened.

These two classes check the values.
"""

from __future__ import annotations

import dataclasses
import io
import operator
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from cluster.app.console.parse import dimension_or_tie, split_ties
from tuner.checks import MOST_VALUES, short
from tuner.dynamic.shapes import weights_of
from tuner.errors import UsageError, first_line
from tuner.layers import Layers
from tuner.request.model_spec import InputArray, IntRange, ModelSpec
from tuner.request.options import SETTINGS, TuneOptions
from tuner.space.source import source_of
from tuner.user_code import find

LAYERS = tuple(field.name for field in dataclasses.fields(Layers) if field.name != "strategy")
"""The layers that have a keyword of their own; a strategy of ours is named by the same."""
FIELDS = {known.keyword or name: name for name, known in SETTINGS.items()}
"""The names of the settings of a request, by their keywords."""
Sizes = tuple[tuple[str, Any], ...]


def model_spec(source: str, said: Mapping[str, Any]) -> ModelSpec:
    """The model of a request, with the values of its dynamic shapes and free arguments.

    Args:
        said: keywords: any of `args`, `shapes`, `inputs`, `dims` and `weights`.

    Raises:
        UsageError: a value is invalid.
    """
    pairs = ((name, _sizes(name, values)) for name, values in _pairs("dims", said))
    dims, ties = split_ties(pairs)
    return ModelSpec(
        source,
        shapes=tuple((name, _list(sizes)) for name, sizes in _pairs("shapes", said)),
        inputs=tuple((name, _input(name, value)) for name, value in _pairs("inputs", said)),
        args=_pairs("args", said),
        dims=dims,
        ties=ties,
        weights=_weights(said.get("weights"), said.get("dims"), dims),
    )


def tune_options(model: ModelSpec, said: Mapping[str, Any]) -> TuneOptions:
    """A request.

    Args:
        said: settings of `TuneOptions` and layers, by their keywords.

    Raises:
        UsageError: a value is invalid.
    """
    given = {FIELDS[name]: value for name, value in said.items() if name in FIELDS}
    space = given.get("space")
    if space is not None:
        given["space"] = str(space) if isinstance(space, str | Path) else source_of(space)
    if "strategy" in given:
        given["strategy"] = _layer("strategy", given["strategy"])
    layers = ((name, said[name]) for name in LAYERS if name in said)
    listed = tuple((name, _layer(name, each)) for name, value in layers for each in _all(value))
    return TuneOptions(model, layers=listed, **given)


def _all(value: Any) -> Sequence[Any]:
    return value if isinstance(value, list | tuple) else [value]


def _layer(name: str, value: Any) -> Any:
    """What names a layer, as text, or the file that has its class."""
    if isinstance(value, str | Path):
        return str(value)
    return find.resolve_layer(value, name)


def _pairs(field: str, said: Mapping[str, Any]) -> Sizes:
    """A dictionary as pairs; pairs stay as they are."""
    given = said.get(field, ())
    if isinstance(given, Mapping):
        return tuple(given.items())
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise UsageError(f"{field}: {short(given)} is no dictionary of names and their values")
    pairs = tuple(given)
    for pair in pairs:
        if not (isinstance(pair, tuple | list) and len(pair) == 2):
            raise UsageError(f"{field}: {short(pair)} is no pair of a name and its value")
    return pairs


def _list(values: Any) -> Any:
    """Any iterable but a text as a tuple, its whole numbers as plain integers."""
    if isinstance(values, str) or not isinstance(values, Iterable):
        return values
    return tuple(_whole(value) for value in values)


def _whole(value: Any) -> Any:
    """A whole number of any type, such as NumPy's, as a plain integer; other values as they are."""
    try:
        return value if isinstance(value, bool) else operator.index(value)
    except TypeError:
        return value


def _sizes(name: str, values: Any) -> Any:
    """The sizes of a dimension, each once and in order. A single size may be given as it is, and a
    text is parsed as `--dim` is, to what the dimension follows from if it says that."""
    if isinstance(values, str):
        return dimension_or_tie(f"{name}={values}")[1]
    if isinstance(values, int):
        return (values,)
    if not isinstance(values, Iterable):
        return values
    taken = _list(islice(values, MOST_VALUES + 1))
    if len(taken) > MOST_VALUES:
        raise UsageError(f"dims: {name!r} has more than {MOST_VALUES} values: give it a step")
    try:
        return tuple(sorted(set(taken)))
    except TypeError:
        return taken


def _input(name: Any, value: Any) -> Any:
    """The value of an input: a file by its name, a range (its end excluded), or an array."""
    if isinstance(value, range) and value.step == 1 and len(value):
        return IntRange(value.start, value.stop - 1)
    if isinstance(value, str) and value:
        return Path(value)
    if isinstance(value, str | range | Path | IntRange | InputArray):
        return value
    return _array(name, value)


def _array(name: Any, value: Any) -> InputArray:
    import numpy as np

    file = io.BytesIO()
    try:
        np.save(file, np.asarray(value), allow_pickle=False)
    except (TypeError, ValueError, RuntimeError) as error:  # of NumPy and PyTorch
        why = first_line(error)
        raise UsageError(f"inputs: {name!r} is no file, range or array: {why}") from error
    return InputArray(file.getvalue())


def _weights(weights: Any, given: Any, dims: Sizes) -> Any:
    """Weights of shapes: a file, a dictionary by values, or a list in the order of the values of
    the only dimension, as in the DietCode RFC.

    With several dimensions a key is a tuple of values in the order of `dims`.
    """
    if weights is None or isinstance(weights, Path):
        return weights
    if isinstance(weights, str):
        return Path(weights)
    names = [name for name, _ in dims]
    if not names:
        raise UsageError("weights: no dims say what they are the weights of")
    if not isinstance(weights, Mapping):
        weights = _beside(weights, given, names)
    rows = []
    for key, weight in weights.items():
        values = key if isinstance(key, tuple) else (key,)
        if len(values) != len(names):
            raise UsageError(f"weights: {short(key)} has not a value for each of {names}")
        sizes = zip(names, (_whole(value) for value in values), strict=True)
        rows.append({**dict(sizes), "weight": weight})
    return tuple(weights_of(rows, names).items())


def _beside(weights: Any, given: Any, names: Sequence[str]) -> dict[Any, Any]:
    """A list of weights as a dictionary, by the values of the only dimension in the order given."""
    if len(names) != 1 or isinstance(weights, str) or not isinstance(weights, Iterable):
        raise UsageError("weights: give a dictionary of them by the values of the dimensions")
    values = next(v for name, v in _pairs("dims", {"dims": given}) if [name] == names)
    listed, beside = _list(values), list(weights)
    if not isinstance(listed, tuple) or len(listed) != len(beside):
        raise UsageError(f"weights: {len(beside)} of them are not one for each value of {names[0]}")
    return dict(zip(listed, beside, strict=True))
