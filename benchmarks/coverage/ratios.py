"""Ratios of the latencies of one network. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from benchmarks.figures import geometric_mean

_PEERS = ("onnxruntime", "openvino")


@dataclass(frozen=True, slots=True)
class Ratios:
    """Ours over theirs, geometric means over sizes; None where that one could not run it.

    Attributes:
        best: over the faster one at each size.
        worst: the largest ratio to onnxruntime, or to the other one where it is missing;
            `worst_at` is its size, empty where no dimension is open.
        ours_ms: the geometric mean of our latencies.
    """

    time_budget: str
    ours_ms: float
    onnxruntime: float | None
    best: float | None
    worst: float
    worst_at: str


def ratios_of(row: Mapping[str, Any]) -> Ratios | str:
    """Of a row of `benchmarks.coverage.latency`; where it failed, why."""
    if "failure" in row:
        return str(row["failure"])
    sizes: Mapping[str, Mapping[str, Any]] = row["sizes"]
    ours = {size: _ms(sides, "ours") for size, sides in sizes.items()}
    known_ms = {size: ms for size, ms in ours.items() if ms is not None}
    if not known_ms:
        return str(row["failed"].get("ours", "it was not timed"))
    over: dict[str, dict[str, float]] = {"onnxruntime": {}, "best": {}}
    for size, ms in known_ms.items():
        theirs = {p: t for p in _PEERS if (t := _ms(sizes[size], p)) is not None}
        if "onnxruntime" in theirs:
            over["onnxruntime"][size] = ms / theirs["onnxruntime"]
        if theirs:
            over["best"][size] = ms / min(theirs.values())
    worst = over["onnxruntime"] or over["best"] or {"": float("nan")}
    worst_at = max(worst, key=lambda size: worst[size])
    return Ratios(
        time_budget=row["time_budget"],
        ours_ms=geometric_mean(list(known_ms.values())) or float("nan"),
        onnxruntime=geometric_mean(list(over["onnxruntime"].values())),
        best=geometric_mean(list(over["best"].values())),
        worst=worst[worst_at],
        worst_at=worst_at,
    )


def _ms(sides: Mapping[str, Any], name: str) -> float | None:
    found = sides.get(name)
    return None if found is None else float(found["median"])
