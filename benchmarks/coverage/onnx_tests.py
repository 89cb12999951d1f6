"""ONNX's own tests of its operators, through import, lowering and compiler: what became of each.

    python -m benchmarks.coverage.onnx_tests > benchmarks/results/coverage/node-tests.json

It takes ten minutes. `python -m benchmarks.coverage --page` makes a table of what is refused.
"""

from __future__ import annotations

import json
import re
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from benchmarks.machine import about

_NODE = re.compile(r" \(node [^)]*\)|^\S+\.onnx: ")


def main() -> None:
    """Run all of them."""
    import onnx

    from tests.spaces.frontends.onnx.node_tests import cases, results

    rows: dict[str, dict[str, str]] = {}
    for one in results(sorted(cases())):
        rows[one.name] = {"kind": one.kind, "why": _NODE.sub("", one.why)}
        if len(rows) % 100 == 0:
            print(len(rows), Counter(row["kind"] for row in rows.values()), file=sys.stderr)
    print(json.dumps({"machine": about(), "onnx": onnx.__version__, "rows": rows}, indent=1))


def table(found: Mapping[str, Any]) -> Iterator[str]:
    """What is refused, and why, as lines of a page."""
    rows = found["rows"].values()
    kinds = Counter(row["kind"] for row in rows)
    told = ", ".join(f"{number} {kind}" for kind, number in kinds.most_common())
    yield f"## ONNX's own tests of its operators: {kinds['right']} of {len(rows)} are right\n"
    yield f"Those of onnx {found['onnx']}: {told}. What is refused:\n"
    yield "| tests | what is said |"
    yield "|---|---|"
    said = Counter(row["why"] for row in rows if row["kind"] != "right")
    for why, number in sorted(said.items(), key=lambda pair: (-pair[1], pair[0])):
        yield f"| {number} | {why.replace('|', '/')[:160]} |"


if __name__ == "__main__":
    main()
