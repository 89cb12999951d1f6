"""The page that tells of coverage, made of its rows. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_RIGHT = 1e-3
"""The largest error, by the largest element of the output, of a network that is right."""
_INTRO = """# Which networks are taken

Networks with random weights, as PyTorch exports them, imported and compiled without any schedule,
compared with what PyTorch computes. Written by `python -m benchmarks.coverage --page`; raw rows are
in [results/coverage/networks.json](results/coverage/networks.json).
"""
Rows = Mapping[str, Mapping[str, Mapping[str, Any]]]


def page(rows: Rows, open_names: frozenset[str], number: int) -> str:
    """The whole page.

    Args:
        number: of all networks in the list, whether they were tried or not.
    """
    static = {name: row["dynamo"] for name, row in rows.items() if name not in open_names}
    right = sum(is_right(row) for row in static.values())
    left = "" if len(rows) == number else f"{number - len(rows)} of {number} are yet to be tried.\n"
    lines = [_INTRO, left, f"## All dimensions known: {right} of {len(static)}\n"]
    lines += ["| network | tasks | result |", "|---|---|---|"]
    lines += [f"| {name} | {row.get('tasks', '')} | {told(row)} |" for name, row in static.items()]
    opened = {name: row for name, row in rows.items() if name in open_names}
    taken = [row for hows in opened.values() for row in hows.values() if "exporter" not in row]
    lines += [f"\n## Open dimensions: {sum(map(is_right, taken))} of {len(taken)} files\n"]
    lines += ["Each at up to 30 sizes.\n"]
    lines += ["| network, open | ONNX, dynamo | ONNX, tracing | archive |", "|---|---|---|---|"]
    for name, hows in opened.items():
        cells = (told(hows[how]) if how in hows else "" for how in ("dynamo", "tracing", "archive"))
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def is_right(row: Mapping[str, Any]) -> bool:
    """Whether a network was taken, and computes what it should."""
    return "error" in row and row["error"] <= _RIGHT and not row["wrong"]


def told(row: Mapping[str, Any]) -> str:
    """A cell of the table."""
    if is_right(row):
        return f"right, {row['error']:.0e}"
    if "exporter" in row:
        return "the exporter refuses it"
    if "refused" in row or "crashed" in row:
        why = row.get("refused", row.get("crashed"))
        return f"refused: {str(why).rpartition('model.')[2].replace('|', '/')[:110]}"
    if row["wrong"]:
        return f"wrong at {len(row['wrong'])} of {row['sizes']} sizes"
    return f"wrong by {row['error']:.0e}"
