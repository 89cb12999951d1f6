"""Writes RESULTS.md from the raw results.

    python -m benchmarks.page

Every JSON file under `benchmarks/results/` is what a benchmark printed with `--json`; the page
says nothing that is not in them.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results"
PAGE = Path(__file__).parent / "RESULTS.md"

_SAYS = {
    "throughput": "A GEMM tuned from scratch: rate, result and memory (`benchmarks.throughput`)",
    "startup": "How long it takes to begin (`benchmarks.startup`)",
    "quiet": "A/A test of the quiet lock (`benchmarks.quiet`)",
    "resume": "Kill -9 at random moments (`benchmarks.resume`)",
    "demo": "The demo: untuned, tuned and onnxruntime (`tuner bench runs/demo --json`)",
}


def page() -> str:
    """The text of the page."""
    parts = [
        "# Results\n",
        "Made by `python -m benchmarks.page` from the JSON files in `results/`. Absolute times "
        "are one machine's on one day; what carries over are the ratios of one run.\n",
    ]
    for path in sorted(RESULTS.glob("*.json")):
        result: dict[str, Any] = json.loads(path.read_text())
        parts.append(f"## {_SAYS.get(path.stem, path.stem)}\n")
        if (machine := result.pop("machine", None)) is not None:
            parts.append(", ".join(str(value) for value in machine.values()) + "\n")
        parts.append("| what | figure |\n|---|---|")
        parts.append("\n".join(f"| {name} | {_show(value)} |" for name, value in _rows(result)))
        parts.append("")
    return "\n".join(parts)


def _rows(result: dict[str, Any], prefix: str = "") -> list[tuple[str, Any]]:
    rows: list[tuple[str, Any]] = []
    for name, value in result.items():
        if isinstance(value, dict):
            rows += _rows(value, f"{prefix}{name} ")
        else:
            rows.append((f"{prefix}{name}".replace("_", " "), value))
    return rows


def _show(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.3g}" if abs(value) < 1e3 else f"{value:.0f}"
    if isinstance(value, list):
        return ", ".join(_show(v) for v in value)
    return str(value)


if __name__ == "__main__":
    PAGE.write_text(page())
