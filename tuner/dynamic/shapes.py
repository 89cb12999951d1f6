"""The shapes a dynamic program is tuned for: from what users say to weighted instances. Pure."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
import numpy.typing as npt

from tuner.arrays import Floats
from tuner.dynamic.derived_names import describe_value
from tuner.errors import UsageError
from tuner.task import Instance, Shapes

Dims = Sequence[tuple[str, tuple[int, ...]]]
"""Values of each symbolic dimension, ascending."""

MOST_SHAPES = 512
"""A task with more shapes is tuned for a sample of them: neighbours' costs hardly differ."""
MEASURED_SHAPES = 16
"""The most shapes of a task that are measured; the others are predicted."""
_MOST_COMBINED = 1 << 20
_HEAVIEST = 1e100
_SIZE = re.compile(r"[0-9]{1,10}")


@dataclass(frozen=True, slots=True)
class Domain:
    """The sizes of a model's symbolic dimensions that it is tuned for.

    Attributes:
        dims: values of each dimension, ascending.
        weights: of the combinations that occur; None is all of them, equally often.
    """

    dims: tuple[tuple[str, tuple[int, ...]], ...] = ()
    weights: Mapping[Instance, float] | None = None

    @property
    def smallest(self) -> dict[str, int]:
        """The smallest value of each dimension."""
        return {name: values[0] for name, values in self.dims}

    @property
    def largest(self) -> dict[str, int]:
        """The largest value of each dimension."""
        return {name: values[-1] for name, values in self.dims}

    def shapes(self) -> Shapes:
        """All instances, weighted; see `joint`."""
        return joint(self.dims, self.weights)


NO_DOMAIN = Domain()
"""The domain of a model without symbolic dimensions."""


def domain_of(shapes: Shapes) -> Domain:
    """The domain that some instances are of, without their weights."""
    sizes: dict[str, set[int]] = {}
    for instance, _ in shapes:
        for name, value in instance:
            sizes.setdefault(name, set()).add(value)
    return Domain(tuple((name, tuple(sorted(found))) for name, found in sizes.items()))


def joint(dims: Dims, weights: Mapping[Instance, float] | None = None) -> Shapes:
    """All combinations of some dimensions' values, weighted.

    Args:
        weights: of the combinations that occur; None is all of them, equally often.

    Returns:
        In the order of their values; empty where there are no dimensions.

    Raises:
        UsageError: a weight is for a shape that the dimensions do not have, or there are too many
            combinations.
    """
    if not dims:
        return ()
    if math.prod(len(values) for _, values in dims) > _MOST_COMBINED:
        names = " and ".join(name for name, _ in dims)
        raise UsageError(f"--dim: {names} have too many combinations: give them a larger step")
    ordered = sorted(dims)
    instances = [
        tuple((name, value) for (name, _), value in zip(ordered, values, strict=True))
        for values in product(*(values for _, values in ordered))
    ]
    if weights is None:
        return tuple((instance, 1.0) for instance in instances)
    known = set(instances)
    for instance in weights:
        if instance not in known:
            raise UsageError(f"--weights: no --dim has {shape_text(instance)}")
    return tuple((instance, weights[instance]) for instance in instances if instance in weights)


def read_weights(text: str, names: Sequence[str]) -> dict[Instance, float]:
    """Weights of shapes, from JSON.

    For one dimension an object of weights by value, `{"5": 0.2, "24": 1}`; for any number of
    them a list of objects, `[{"T": 5, "B": 1, "weight": 0.2}]`.

    Args:
        names: names of the dimensions.

    Raises:
        UsageError: it is neither; the text says what is wrong.
    """
    try:
        raw = json.loads(text, object_pairs_hook=_each_once)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"--weights: not JSON: {error}") from error
    if isinstance(raw, dict) and len(names) == 1:
        raw = [{names[0]: value, "weight": weight} for value, weight in raw.items()]
    if not isinstance(raw, list) or not raw or not all(isinstance(row, dict) for row in raw):
        raise UsageError(
            '--weights: write {"5": 0.2, "24": 1} for one dimension, or a list of objects as '
            f'{{"{names[0] if names else "T"}": 5, "weight": 0.2}}'
        )
    return weights_of(raw, names)


def weights_of(rows: Sequence[Mapping[str, Any]], names: Sequence[str]) -> dict[Instance, float]:
    """Weights of shapes, from objects as `{"T": 5, "B": 1, "weight": 0.2}`.

    Raises:
        UsageError: an object is malformed, or a shape is there twice.
    """
    found: dict[Instance, float] = {}
    for row in rows:
        instance, weight = _weight(row, names)
        if instance in found:
            raise UsageError(f"--weights: {shape_text(instance)} is given twice")
        found[instance] = weight
    return found


def _each_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object of JSON from its pairs, without repeated keys.

    Raises:
        UsageError: a key is repeated.
    """
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise UsageError(f"--weights: {twice[:40]!r} is given twice")
    return found


def _weight(row: Mapping[str, Any], names: Sequence[str]) -> tuple[Instance, float]:
    if set(row) != {*names, "weight"}:
        wanted = ", ".join((*names, "weight"))
        raise UsageError(f"--weights: {json.dumps(row)[:80]} must have {wanted} and nothing else")
    weight = row["weight"]
    number = isinstance(weight, int | float) and not isinstance(weight, bool)
    if not number or not 0 < weight < _HEAVIEST:
        raise UsageError(f"--weights: {str(weight)[:40]!r} is no weight: it must be above 0")
    values = []
    for name in sorted(names):
        if not _SIZE.fullmatch(str(row[name])):
            raise UsageError(f"--weights: {str(row[name])[:40]!r} is no size of {name}")
        values.append((name, int(row[name])))
    return tuple(values), float(weight)


def merge_shapes(shapes: Shapes) -> Shapes:
    """Each instance once, with the sum of its weights, in the order of their values."""
    found: dict[Instance, float] = {}
    for instance, weight in shapes:
        found[instance] = found.get(instance, 0.0) + weight
    return tuple(sorted(found.items()))


def choose_measured(shapes: Shapes) -> Shapes:
    """The shapes of a task that are measured; see `sample_shapes`."""
    return sample_shapes(shapes, MEASURED_SHAPES)


def sample_shapes(shapes: Shapes, most: int) -> Shapes:
    """A sample of at most `most` shapes, spread over all of them, that stand for all.

    Every shape adds its weight to that of the nearest kept shape. The last one, mostly the
    largest, is always kept.
    """
    if len(shapes) <= most:
        return shapes
    places = _places([instance for instance, _ in shapes])
    kept = _spread(places, most)
    weights = np.zeros(len(kept))
    nearest = np.square(places[:, None, :] - places[kept][None]).sum(axis=2).argmin(axis=1)
    np.add.at(weights, nearest, [weight for _, weight in shapes])
    return tuple((shapes[i][0], float(w)) for i, w in zip(kept, weights, strict=True))


def _places(instances: Sequence[Instance]) -> Floats:
    """Shapes as points of the unit cube. A coordinate is the mean of the value's scaled rank and of
    its scaled logarithm: from 1 to 2 is as far as from 64 to 128, but fewer values are there."""
    values = np.array([[value for _, value in instance] for instance in instances])
    ranks = [np.unique(column, return_inverse=True)[1] for column in values.T]
    sizes = [np.log2(np.maximum(column, 1)) for column in values.T]
    columns = [(_in_unit(r) + _in_unit(s)) / 2 for r, s in zip(ranks, sizes, strict=True)]
    return np.stack(columns, axis=1)


def _in_unit(column: npt.NDArray[Any]) -> Floats:
    low, spread = column.min(), np.ptp(column)
    return np.asarray((column - low) / (spread if spread > 0 else 1), dtype=np.float64)


def _spread(places: Floats, most: int) -> list[int]:
    """Indices of points far from one another: each is the furthest from those before it."""
    kept = [len(places) - 1]
    distance = np.full(len(places), np.inf)
    while len(kept) < most:
        distance = np.minimum(distance, np.square(places - places[kept[-1]]).sum(axis=1))
        kept.append(int(distance.argmax()))
    return sorted(kept)


def from_plain(stored: Sequence[Any]) -> Shapes:
    """Shapes from what JSON makes of them: lists in place of tuples."""
    return tuple(
        (tuple((name, value) for name, value in instance), weight) for instance, weight in stored
    )


def shape_text(instance: Instance) -> str:
    """An instance as people read it: `T=5, B=1`."""
    return (
        ", ".join(dict.fromkeys(describe_value(name, value) for name, value in instance))
        or "static"
    )
