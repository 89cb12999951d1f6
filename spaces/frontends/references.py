"""What a model's source gives for inputs, kept beside the copy of the model.

A model of PyTorch is kept as a module of TVM, since reading an archive runs what is in it. What
PyTorch computes is recorded where the archive is read; it is numbers, and runs nothing.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from spaces.ir.element_types import numpy_dtype
from tuner.task import Instance

Array = npt.NDArray[Any]
_ABOUT, _ARRAYS = "references.json", "references.npz"


@dataclass(frozen=True, slots=True)
class Reference:
    """Inputs, and what the source gives for them.

    Attributes:
        instance: sizes of the open dimensions.
        number: of the draw.
    """

    instance: Instance
    number: int
    inputs: tuple[Array, ...]
    outputs: tuple[Array, ...]


@dataclass(frozen=True, slots=True)
class References:
    """What was recorded of a source.

    Attributes:
        name: of the program that computed, with its version.
        known: inputs and outputs.
        refused: why it computed no more than that, in one line.
    """

    name: str
    known: tuple[Reference, ...]
    refused: str = ""


def save_references(references: References, directory: Path) -> None:
    """Write them into the folder of a model's copy.

    Raises:
        OSError: it cannot be written.
    """
    arrays: dict[str, Array] = {}
    known = []
    for place, one in enumerate(references.known):
        types = []
        for kind, values in (("input", one.inputs), ("output", one.outputs)):
            arrays |= {f"{place}-{kind}-{n}": array for n, array in enumerate(values)}
            types.append([str(array.dtype) for array in values])
        known.append({"instance": one.instance, "number": one.number, "types": types})
    np.savez(directory / _ARRAYS, **arrays)  # type: ignore[arg-type]
    about = {"name": references.name, "refused": references.refused, "known": known}
    (directory / _ABOUT).write_text(json.dumps(about, indent=1) + "\n")


def load_references(directory: Path) -> References | None:
    """Read them; None where the copy has none. Its checksums were looked at before."""
    if not (directory / _ABOUT).exists():
        return None
    about = json.loads((directory / _ABOUT).read_text())
    known = []
    with np.load(directory / _ARRAYS, allow_pickle=False) as arrays:
        for place, one in enumerate(about["known"]):
            inputs, outputs = (
                # Types that NumPy lacks come back as bytes of their width.
                tuple(
                    arrays[f"{place}-{kind}-{n}"].view(numpy_dtype(dtype))
                    for n, dtype in enumerate(types)
                )
                for kind, types in zip(("input", "output"), one["types"], strict=True)
            )
            instance = tuple((str(name), int(size)) for name, size in one["instance"])
            known.append(Reference(instance, int(one["number"]), inputs, outputs))
    return References(about["name"], tuple(known), about["refused"])
