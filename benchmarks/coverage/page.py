"""The page that tells of coverage and latencies, made of their rows."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from benchmarks.coverage.onnx_tests import table
from benchmarks.coverage.ratios import Ratios, ratios_of
from benchmarks.figures import geometric_mean

_RIGHT = 1e-3
"""The largest error, by the largest element of the output, of a network that is right."""
_INTRO = """# Which networks are taken, and how fast they are

Networks with random weights, as PyTorch exports them, imported and compiled without any schedule,
compared with what PyTorch computes, and quantized files: written by
`python -m benchmarks.coverage --page`; raw rows are
in [results/coverage/networks.json](results/coverage/networks.json). Those with
latencies were tuned for the time given and run beside onnxruntime and OpenVINO (float32), each in a
process of its own, in turns, on the same threads: `python -m benchmarks.coverage.latency`, rows in
[results/coverage/latency.json](results/coverage/latency.json). Below 1 ours is faster.
"""
_FILES = """With drawn weights, as onnxruntime's tools (static QDQ and QOperator, dynamic, blocks of
few bits, float16, its optimiser), onnxruntime-genai's model builder ("built": two small layers of
each architecture) and PyTorch's export for quantization write them. Compared with what onnxruntime
computes node by node, or PyTorch. Language models have grouped attention, a cache, open lengths and
batches. Where rows have 8 bits, another order of sums moves some by a step. Where such a step has
grown beyond the limit, the check of the import says whether what lies between bytes is right.
"""
Rows = Mapping[str, Mapping[str, Any]]


def page(
    rows: Rows,
    latencies: Rows,
    open_names: frozenset[str],
    convolutions: frozenset[str],
    number: int,
    operators: Mapping[str, Any] | None = None,
    unseen: Mapping[str, Rows] = MappingProxyType({}),
) -> str:
    """The whole page.

    Args:
        rows: of `benchmarks.coverage`, by network and exporter.
        latencies: of `benchmarks.coverage.latency`, by network.
        convolutions: names of the networks that are no more than one.
        number: of all networks in the list, whether they were tried or not.
        operators: results of `benchmarks.coverage.onnx_tests`.
        unseen: latencies of networks that nobody tuned for, by what their searches began with.
    """
    opened = {name: row for name, row in rows.items() if name in open_names}
    single = {name: row for name, row in rows.items() if name in convolutions}
    files = {name: row["file"] for name, row in rows.items() if "file" in row}
    others = open_names | convolutions | files.keys()
    static = {name: row for name, row in rows.items() if name not in others}
    raced = {name: ratios_of(row) for name, row in latencies.items()}
    parts = [
        *_head(rows, number),
        *_static("All dimensions known", static, raced),
        *_open(opened, raced),
    ]
    if single:
        parts += ["", *_static("Convolutions that are not plain", single, raced)]
    if files:
        parts += ["", *_quantized(files)]
    if unseen:
        parts += ["", *_minute(unseen)]
    if any("import" in row for hows in rows.values() for row in hows.values()):
        parts += ["", *_checks(rows)]
    if operators is not None:
        parts += ["", *table(operators)]
    return "\n".join(parts) + "\n"


def read_unseen(results: Path) -> dict[str, Rows]:
    """Latencies of networks that nobody tuned for, by what their searches began with.

    Args:
        results: the folder of `unseen-BASE.json`.
    """
    paths = sorted(results.glob("unseen-*.json"), reverse=True)
    return {path.stem.partition("-")[2]: json.loads(path.read_text())["rows"] for path in paths}


def _minute(unseen: Mapping[str, Rows]) -> Iterator[str]:
    """What a user of a network has after a minute."""
    raced = {base: {n: ratios_of(r) for n, r in rows.items()} for base, rows in unseen.items()}
    first = next(iter(unseen.values()))
    yield f"## After a minute: {len(first)} networks that nobody tuned for\n"
    for base, ratios in raced.items():
        yield f"With `--base-model {base}`: {_summary([*ratios.values()])}"
    heads = [f"trials, {base} | ms | / onnxruntime | / the best" for base in unseen]
    yield f"| network | tasks | {' | '.join(heads)} |"
    yield "|---|---|" + "---|---|---|---|" * len(unseen)
    for name, row in first.items():
        cells = []
        for base, rows in unseen.items():
            found = raced[base].get(name)
            timed = (
                _race(found).partition(" | ")[2] if isinstance(found, Ratios) else f"{found} | |"
            )
            cells.append(f"{rows.get(name, {}).get('trials', '')} | {timed}")
        shown = name.removesuffix(", unseen")
        yield f"| {shown} | {row.get('tasks', '')} | {' | '.join(cells)} |"


def _checks(rows: Rows) -> Iterator[str]:
    """What the check of the import said, which every run makes: all but what passed whole."""
    files = {f"{name}, {how}": row for name, hows in rows.items() for how, row in hows.items()}
    checks = {name: row["import"] for name, row in files.items() if "import" in row}
    passed = sum(check["state"] == "passed" for check in checks.values())
    yield f"## The check of the import: passed for {passed} of {len(checks)} files\n"
    yield "As in a run of 90 s, which gives it 9 s of processor time. What was not compared:\n"
    yield "| file | outcome | s | what was not compared, and why |"
    yield "|---|---|---|---|"
    for name, check in checks.items():
        left = [*check["notes"]] if check["state"] == "passed" else [check["said"], *check["notes"]]
        if left:
            said = "; ".join(left).replace("|", "/")
            yield f"| {name} | {check['state']} | {check['seconds']:.1f} | {said[:160]} |"


def is_right(row: Mapping[str, Any]) -> bool:
    """Whether a network was taken, and computes what it should."""
    if "error" not in row or row["wrong"]:
        return False
    return row["error"] <= row.get("within", _RIGHT) or is_right_between_bytes(row)


def is_right_between_bytes(row: Mapping[str, Any]) -> bool:
    """Whether the check of the import found that a network rounds to other bytes at a tie, whose
    step layers behind it see, and that each part between bytes is right."""
    return "within" in row and row.get("import", {}).get("state") == "passed"


def told(row: Mapping[str, Any]) -> str:
    """A cell of the table."""
    if is_right(row):
        between = " between bytes" * is_right_between_bytes(row)
        return f"right{between}, {row['error']:.0e}"
    if "exporter" in row:
        return "the exporter refuses it"
    if "refused" in row or "crashed" in row:
        why = row.get("refused", row.get("crashed"))
        return f"refused: {str(why).rpartition('model.')[2].replace('|', '/')[:110]}"
    if row["wrong"]:
        return f"wrong at {len(row['wrong'])} of {row['sizes']} sizes"
    return f"wrong by {row['error']:.0e}"


def _head(rows: Rows, number: int) -> Iterator[str]:
    yield _INTRO
    if len(rows) < number:
        yield f"{number - len(rows)} of {number} are yet to be tried.\n"


def _static(title: str, rows: Rows, raced: Mapping[str, Ratios | str]) -> Iterator[str]:
    right = sum(is_right(row["dynamo"]) for row in rows.values())
    yield f"## {title}: {right} of {len(rows)}\n"
    yield _summary([raced[name] for name in rows if name in raced])
    yield "| network | tasks | result | tuned for | ms | / onnxruntime | / the best |"
    yield "|---|---|---|---|---|---|---|"
    for name, row in rows.items():
        known = row["dynamo"]
        yield f"| {name} | {known.get('tasks', '')} | {told(known)} | {_race(raced.get(name))} |"


def _open(rows: Rows, raced: Mapping[str, Ratios | str]) -> Iterator[str]:
    taken = [r for hows in rows.values() for r in hows.values() if "exporter" not in r]
    yield f"\n## Open dimensions: {sum(map(is_right, taken))} of {len(taken)} files\n"
    yield "Each at up to 30 sizes.\n"
    yield "| network, open | ONNX, dynamo | ONNX, tracing | archive |"
    yield "|---|---|---|---|"
    for name, hows in rows.items():
        cells = (told(hows[how]) if how in hows else "" for how in ("dynamo", "tracing", "archive"))
        yield f"| {name} | {' | '.join(cells)} |"
    if timed := [name for name in rows if name in raced]:
        yield "\nTheir latencies, geometric means over five sizes:\n"
        yield "| network, open | tuned for | ms | / onnxruntime | / the best | the worst size |"
        yield "|---|---|---|---|---|---|"
        for name in timed:
            found = raced[name]
            worst = "" if isinstance(found, str) else f"{found.worst:.2f} at {found.worst_at}"
            yield f"| {name} | {_race(found)} | {worst} |"


def _quantized(rows: Mapping[str, Any]) -> Iterator[str]:
    """Files of few bits, which no exporter wrote."""
    yield f"## Quantized files: {sum(map(is_right, rows.values()))} of {len(rows)}\n"
    yield _FILES
    yield "| file | tasks | result | right within |"
    yield "|---|---|---|---|"
    for name, row in rows.items():
        within = f"{row.get('within', _RIGHT):g}"
        yield f"| {name} | {row.get('tasks', '')} | {told(row)} | {within} |"


def _summary(raced: list[Ratios | str]) -> str:
    known = [found for found in raced if isinstance(found, Ratios)]
    if not known:
        return ""
    said = [f"{len(known)} of them were timed. Geometric means:"]
    for peer, values in (
        ("onnxruntime", [r.onnxruntime for r in known if r.onnxruntime]),
        ("the better of onnxruntime and OpenVINO", [r.best for r in known if r.best]),
    ):
        if (mean := geometric_mean(values)) is not None:
            said.append(f"{mean:.2f} of {peer} ({min(values):.2f} to {max(values):.2f}).")
    return " ".join(said) + "\n"


def _race(found: Ratios | str | None) -> str:
    """The cells of one network's race."""
    if found is None:
        return " | | | "
    if isinstance(found, str):
        return f"{found.replace('|', '/')[:80]} | | | "
    cells = [found.time_budget, f"{found.ours_ms:.3g}"]
    cells += ["" if r is None else f"{r:.2f}" for r in (found.onnxruntime, found.best)]
    return " | ".join(cells)
