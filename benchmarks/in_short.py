"""The table of `docs/comparison.md`: latencies of ours over others', from the raw results. Pure.

`python -m benchmarks.page` puts it between the marks of that page.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from benchmarks.coverage.ratios import Ratios, ratios_of
from benchmarks.figures import geometric_mean

BEGIN, END = "<!-- made by python -m benchmarks.page -->", "<!-- until here -->"
_HEAD = ("| beside | what | tuned for | latency, ours over theirs |", "|---|---|---|---|")
_MODELS = {
    "squeezenet": "squeezenet",
    "resnet50": "resnet50",
    "encoder": "an encoder layer of BERT-base",
    "encoder-512": "the same of 512 tokens",
    "encoder-2048": "the same of 2,048 tokens",
}
_CONVOLUTIONS_S = "30s"
"""What single convolutions were tuned for, by which their rows are told from those of networks."""


def table(results: Path) -> list[str]:
    """The lines of the table, from a folder of results.

    Raises:
        OSError: where a result is not there.
    """
    parts = (_onnxruntime, _blas, _metaschedule, _alone)
    return [*_HEAD, *(line for part in parts for line in part(results))]


def put_in(page: str, lines: list[str]) -> str:
    """The page with these lines between its marks.

    Raises:
        ValueError: where it has no marks.
    """
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"no {BEGIN} and {END} in the page")
    return "\n".join([f"{before}{begin}\n", *lines, f"\n{end}{after}"])


def _read(results: Path, name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((results / f"{name}.json").read_text())
    return found


def _onnxruntime(results: Path) -> Iterator[str]:
    for name, said in _MODELS.items():
        result = _read(results, f"versus_onnxruntime-{name}")
        budget = f"{result['settings']['time_budget_s'] / 60:g} minutes"
        yield f"| onnxruntime | {said} | {budget} | {result['summary']['ratio']:.2f} |"
    rows = _read(results, "coverage/latency")["rows"]
    raced = {n: r for n, row in rows.items() if isinstance(r := ratios_of(row), Ratios)}
    known = {n: r for n, r in raced.items() if set(rows[n]["sizes"]) == {""}}
    single = {n: r for n, r in known.items() if r.time_budget == _CONVOLUTIONS_S}
    yield _of_many("networks, all dimensions known", {n: known[n] for n in known.keys() - single})
    yield _of_many("single convolutions that are not plain", single)
    yield _of_many("transformers, a length open", {n: raced[n] for n in raced.keys() - known})
    result = _read(results, "dynamic_encoder")
    layer, trials = result["summary"], result["settings"]["trials"]
    mean, worst = layer["over_onnxruntime_mean"], layer["over_onnxruntime_worst"]
    budget = f"{trials} trials for each task"
    said = f"that layer, its length open | {budget}"
    yield f"| onnxruntime | {said} | {mean:.2f} (worst {worst:.2f}) |"


def _of_many(said: str, raced: Mapping[str, Ratios]) -> str:
    ratios = [r.onnxruntime for r in raced.values() if r.onnxruntime is not None]
    budget = "/".join(sorted({r.time_budget for r in raced.values()}))
    what = f"{len(ratios)} {said}"
    return f"| onnxruntime | {what} | {budget} each | {_mean(ratios)} ({_range(ratios)}) |"


def _blas(results: Path) -> Iterator[str]:
    result = _read(results, "versus_blas")
    rows = [row for row in result["rows"] if not row["failure"]]
    for kind, (parts, said) in {
        "products": (3, "matrix products"),
        "batches": (4, "batches of them"),
    }.items():
        ratios = [
            1 / row["ratio"]["of_medians"]
            for row in rows
            if len(re.findall(r"\d+", row["shape"])) == parts
        ]
        assert len(ratios) == result["summary"][kind]["of"]
        trials = f"{result['settings']['trials']} trials"
        yield f"| OpenBLAS | {len(ratios)} {said} | {trials} | {_mean(ratios)} ({_range(ratios)}) |"


def _metaschedule(results: Path) -> Iterator[str]:
    for name, said in {
        "geomean": "programs",
        "operators": "operators, one of each kind of its own suite",
        "operators-long": "of these",
        "avx2": "programs for AVX2 alone",
    }.items():
        result = _read(results, f"versus_metaschedule-{name}")
        ratios = [row["race"]["ratio"]["of_medians"] for row in result["rows"] if _raced(row)]
        number = len(result["rows"])
        what = f"{len(ratios)}{f' of {number}' if number > len(ratios) else ''} {said}"
        theirs = result["settings"].get("their_trials")
        beside = f" beside {theirs:,}" if theirs else " on both sides"
        trials = f"{result['settings']['trials']} trials{beside}"
        if wall := result["summary"].get("wall_ratio"):
            trials += f", ours in {wall['geometric_mean']:.2f} of the time"
        yield f"| MetaSchedule | {what} | {trials} | {_mean(ratios)} ({_range(ratios)}) |"


def _alone(results: Path) -> Iterator[str]:
    layer = _read(results, "dynamic_encoder")["summary"]
    mean, worst = layer["over_static_mean"], layer["over_static_worst"]
    budget = f"{layer['wall_ratio']:.0f} times as long for each alone"
    said = "an encoder layer, its length open"
    figures = f"{mean:.2f} (worst {worst:.2f})"
    yield f"| itself, tuned for each length alone | {said} | {budget} | {figures} |"


def _raced(row: Mapping[str, Any]) -> bool:
    return bool((row.get("race") or {}).get("ratio"))


def _mean(ratios: list[float]) -> str:
    mean = geometric_mean(ratios)
    return "-" if mean is None else f"{mean:.2f}"


def _range(ratios: list[float]) -> str:
    return f"{min(ratios):.2f} to {max(ratios):.2f}"
