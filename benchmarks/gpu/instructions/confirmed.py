"""Which instructions a device has confirmed.

    python -m benchmarks.gpu.instructions.confirmed

A row is a section of a manual; it is confirmed once each program that names it ran on a device and
gave what the section says.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.gpu.instructions.saved import KEPT, RESULT
from tests.spaces.emulation.instructions.catalogue import programs
from tests.spaces.emulation.instructions.judge import is_right
from tests.spaces.emulation.instructions.program import Program

UNCONFIRMED = "unconfirmed"


def read_result(folder: Path = KEPT) -> dict[str, Any]:
    """What a device gave; nothing where none has run the programs."""
    try:
        result: dict[str, Any] = json.loads((folder / RESULT).read_text())
    except FileNotFoundError:
        return {}
    return result


def table(result: Mapping[str, Any], known: Mapping[str, Program]) -> str:
    """A Markdown table: section, its programs, and what a device says of them."""
    sections: dict[str, list[str]] = {}
    for name, program in known.items():
        sections.setdefault(program.section, []).append(name)
    lines = ["| definition | programs | on a device |", "|---|---|---|"]
    for section, names in sections.items():
        lines.append(f"| {section} | {len(names)} | {_state(names, result)} |")
    return "\n".join(lines)


def _state(names: list[str], result: Mapping[str, Any]) -> str:
    rows = [result.get("programs", {}).get(name, {"ran": False, "says": ""}) for name in names]
    wrong = [name for name, row in zip(names, rows, strict=True) if not is_right(row["says"])]
    ran = sum(row["ran"] for row in rows)
    if wrong:
        return "differs: " + ", ".join(f"`{name}`" for name in wrong)
    if ran < len(names):
        return UNCONFIRMED if ran == 0 else f"{ran} of {len(names)} confirmed"
    return f"confirmed: {result['device']['device']}, {result['date'][:10]}"


def main() -> None:
    """Print the table of what is kept."""
    print(table(read_result(), programs()))


if __name__ == "__main__":
    main()
