"""What is known of a network that was made for the table, and of the calls of a file."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

NO_AXES: Mapping[str, Mapping[int, str]] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Made:
    """A network that was made.

    Attributes:
        module: a `torch.nn.Module` that is ready to infer.
        inputs: examples, by name, in order.
        axes: the open dimensions of inputs: by axis the name, an expression where it follows.
        tuned: the sizes of each open dimension that it is tuned for.
        tried: those that it is tried with, beyond that included.
    """

    module: Any
    inputs: Mapping[str, Any]
    axes: Mapping[str, Mapping[int, str]] = field(default_factory=lambda: NO_AXES)
    tuned: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    tried: Mapping[str, tuple[int, ...]] = field(default_factory=dict)


Make = Callable[[], Made]


def write_calls(
    folder: Path,
    calls: Sequence[Mapping[str, Any]],
    results: Sequence[Sequence[Any]],
    tuned: Mapping[str, Sequence[int]] = MappingProxyType({}),
    within: float = 1e-3,
) -> None:
    """Write what the file of a folder is called with, and what should come out.

    Args:
        tuned: the sizes of each open dimension that it is tuned for.
        within: the largest error, by the largest element, of what is right.
    """
    import numpy as np

    arrays: dict[str, Any] = {}
    for number, (call, wanted) in enumerate(zip(calls, results, strict=True)):
        arrays |= {f"{number} in {name}": array for name, array in call.items()}
        arrays |= {f"{number} out {place}": array for place, array in enumerate(wanted)}
    np.savez(folder / "samples.npz", **arrays)
    about = {"inputs": [*calls[0]], "samples": [{} for _ in calls], "tuned": dict(tuned),
             "within": within}  # fmt: skip
    (folder / "about.json").write_text(json.dumps(about))
