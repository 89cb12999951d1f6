"""What a device gave for the programs of instructions: the files that are kept of it."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tests.spaces.emulation.instructions.judge import is_right, judge
from tests.spaces.emulation.instructions.program import Array, Arrays, Program

RESULT, ARRAYS = "instructions.json", "instructions.npz"
KEPT = Path(__file__).resolve().parents[2] / "results" / "gpu"
"""Where the files of a device are kept, and what tests read."""


def keys_of(program: Program, outputs: Sequence[Array]) -> dict[str, Array]:
    """A program's inputs and outputs, by their names in the file of arrays."""
    named = {f"{program.name}/in{i}": array for i, array in enumerate(program.inputs())}
    return {**named, **{f"{program.name}/out{i}": array for i, array in enumerate(outputs)}}


def save(folder: Path, document: Mapping[str, Any], arrays: Mapping[str, Array]) -> None:
    """Write both files; that of arrays only where there are any."""
    (folder / RESULT).write_text(json.dumps(plain(document), indent=1, allow_nan=False) + "\n")
    if arrays:
        np.savez_compressed(folder / ARRAYS, allow_pickle=False, **arrays)


def plain(value: Any) -> Any:
    """The same, with words for numbers that JSON lacks."""
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def read_outputs(arrays: Mapping[str, Array], program: Program) -> Arrays:
    """A program's outputs in that file; none where it did not run."""
    found: Arrays = []
    while (key := f"{program.name}/out{len(found)}") in arrays:
        found.append(arrays[key])
    return found


def reference_of(program: Program, folder: Path = KEPT) -> Arrays:
    """The outputs that whoever plays a device must give: a device's own, where one has run it;
    otherwise those of the definition."""
    if (folder / ARRAYS).exists():
        with np.load(folder / ARRAYS) as arrays:
            if found := read_outputs(arrays, program):
                return found
    return program.expect(*program.inputs())


def disagreements(folder: Path, programs: Mapping[str, Program]) -> dict[str, str]:
    """What the device gave that is not what the definition says, by program.

    Also programs whose inputs are not those that the device had: their outputs prove nothing.
    """
    found: dict[str, str] = {}
    with np.load(folder / ARRAYS) as arrays:
        for name, program in programs.items():
            outputs = read_outputs(arrays, program)
            if not outputs:
                continue
            for i, array in enumerate(program.inputs()):
                if array.tobytes() != arrays[f"{name}/in{i}"].tobytes():
                    found[name] = f"input {i} is another now"
            if name not in found and not is_right(says := judge(program, outputs)):
                found[name] = says
    return found
