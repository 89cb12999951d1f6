"""What `tuner bench` measured last, as a run folder keeps it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tuner.files.atomic import write_bytes

PROGRAMS = ("untuned", "tuned", "onnxruntime")
"""Those that are timed."""


@dataclass(frozen=True, slots=True)
class Bench:
    """The whole model, timed as one.

    Attributes:
        time_s: when, seconds since the epoch.
        shapes: a result for each shape that it was timed on, or one: the keys of
            `spaces.deploy.bench.BenchResult`, and `shape`.
    """

    time_s: float
    shapes: Sequence[Mapping[str, Any]]


def keep_bench(file: Path, shapes: Sequence[Mapping[str, Any]], now_s: float) -> None:
    """Keep what `tuner bench` measured, for the page. Raises OSError.

    Args:
        shapes: as in `Bench`, without NaN.
        now_s: seconds since the epoch.
    """
    told = {"time": now_s, "shapes": list(shapes)}
    write_bytes(file, json.dumps(told, indent=1, allow_nan=False).encode())


def read_bench(file: Path) -> Bench | None:
    """What was kept; None where nothing was, or it is damaged."""
    try:
        told = json.loads(file.read_text(encoding="utf-8"))
        shapes = [shape for shape in told["shapes"] if shape["tuned_ms"]]
        return Bench(float(told["time"]), shapes) if shapes else None
    except (OSError, ValueError, KeyError, TypeError):
        return None
