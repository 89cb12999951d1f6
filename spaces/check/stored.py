"""What was computed of a program's outputs, in a file."""

from __future__ import annotations

import contextlib
import os
import tempfile
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from spaces.check.draws import Argument, Array
from spaces.ir.element_types import numpy_dtype

Places = tuple[Array, ...]
"""Indices of a tensor for each axis, sorted: the elements of a grid."""


@dataclass(frozen=True, slots=True)
class Computed:
    """The results of one draw.

    Attributes:
        range: number of the range that was taken.
        keeps: whether old contents of outputs come through.
        places: the elements that were computed, by output; empty where all were.
    """

    range: int
    keeps: bool
    outputs: dict[int, Array]
    bounds: dict[int, Array | None]
    places: dict[int, Places] = field(default_factory=dict)


def save(path: Path, computed: Sequence[Computed]) -> None:
    """Write whole or not at all; an unwritable cache costs time and nothing else."""
    raw: dict[str, Array] = {"meta": np.array([[c.range, int(c.keeps)] for c in computed])}
    for case, known in enumerate(computed):
        for i, output in known.outputs.items():
            raw[f"output{case}-{i}"] = np.frombuffer(output.tobytes(), np.uint8)
        for i, bound in known.bounds.items():
            if bound is not None:
                raw[f"bound{case}-{i}"] = bound
        for i, places in known.places.items():
            for axis, indices in enumerate(places):
                raw[f"place{case}-{i}-{axis}"] = indices
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=path.parent, suffix=".part", delete=False) as file:
            try:
                np.savez(file, allow_pickle=False, **raw)
                os.replace(file.name, path)
            except OSError:  # a full disk, which must not stay full because of this file
                os.unlink(file.name)


def load(path: Path, args: Sequence[Argument], *, sampled: bool = False) -> list[Computed] | None:
    """What `save` wrote; None where there is no such file, or only a part of it.

    Args:
        sampled: whether only some elements were computed.
    """
    found = []
    try:
        with np.load(path, allow_pickle=False) as stored:
            for case, (number, keeps) in enumerate(stored["meta"]):
                found.append(_read(stored, case, int(number), bool(keeps), args, sampled))
    except (OSError, EOFError, KeyError, ValueError, zipfile.BadZipFile):
        return None
    return found or None


def _read(
    stored: Mapping[str, Array],
    case: int,
    number: int,
    keeps: bool,
    args: Sequence[Argument],
    sampled: bool,
) -> Computed:
    outputs, bounds, places = {}, {}, {}
    for i, arg in enumerate(args):
        if not arg.written:
            continue
        shape = arg.shape
        if sampled:
            places[i] = tuple(stored[f"place{case}-{i}-{axis}"] for axis in range(len(shape)))
            shape = tuple(map(len, places[i]))
        outputs[i] = stored[f"output{case}-{i}"].view(numpy_dtype(arg.dtype)).reshape(shape)
        name = f"bound{case}-{i}"
        bounds[i] = stored[name].reshape(shape) if name in stored else None
    return Computed(number, keeps, outputs, bounds, places)
