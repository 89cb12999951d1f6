"""Which networks are taken, and whether they are right.

    pip install -e '.[coverage]'
    python -m benchmarks.coverage --out benchmarks/results/coverage/networks.json
    python -m benchmarks.coverage --only 'bert*' --how dynamo,tracing

Each network is made with random weights and exported by PyTorch, in a process of its own; another
one imports and compiles it without any schedule, and compares it with what PyTorch computed: those
with open dimensions at up to 30 sizes (1, 2, primes, the ends, beyond the range). Quantized files,
see `benchmarks.coverage.quantized`, are compared with what onnxruntime computed. An `error` is
relative to the largest element. Failures stay in the table; `benchmarks/COVERAGE.md` is made of it.
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.coverage.convolutions import CONVOLUTIONS
from benchmarks.coverage.networks import NETWORKS, OPEN
from benchmarks.coverage.page import page, read_unseen
from benchmarks.coverage.quantized import FILES
from benchmarks.machine import about

_ROOT = Path(__file__).parents[2]
_PAGE = _ROOT / "benchmarks" / "COVERAGE.md"
_LATENCIES = _ROOT / "benchmarks" / "results" / "coverage" / "latency.json"
_OPERATORS = _ROOT / "benchmarks" / "results" / "coverage" / "node-tests.json"
_LIMIT_S = 400.0


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.coverage")
    parser.add_argument("--only", default="*", help="glob on names")
    parser.add_argument("--how", default="dynamo,tracing,archive", help="of open networks")
    parser.add_argument("--out", type=Path, help="goes on with what is there")
    parser.add_argument("--page", action="store_true", help="write benchmarks/COVERAGE.md")
    options = parser.parse_args()
    known = json.loads(options.out.read_text()) if options.out and options.out.exists() else {}
    rows: dict[str, dict[str, Any]] = known.get("rows", {})
    for name in (*NETWORKS, *FILES):
        if not fnmatch.fnmatchcase(name, options.only):
            continue
        hows = ["dynamo"] if name in NETWORKS else ["file"]
        for how in options.how.split(",") if name in OPEN else hows:
            if how in rows.setdefault(name, {}):
                continue
            rows[name][how] = _row(name, how)
            print(name, how, json.dumps(rows[name][how])[:160], file=sys.stderr, flush=True)
            if options.out:
                result = {"machine": about(), "rows": rows}
                options.out.write_text(json.dumps(result, indent=1) + "\n")
    if options.page:
        raced = json.loads(_LATENCIES.read_text())["rows"] if _LATENCIES.exists() else {}
        tested = json.loads(_OPERATORS.read_text()) if _OPERATORS.exists() else None
        kinds = frozenset(OPEN), frozenset(CONVOLUTIONS)
        unseen = read_unseen(_LATENCIES.parent)
        _PAGE.write_text(page(rows, raced, *kinds, len(NETWORKS) + len(FILES), tested, unseen))


def _row(name: str, how: str) -> dict[str, Any]:
    """What became of one network: one process makes it, another one takes it."""
    with tempfile.TemporaryDirectory() as folder:
        for child, arguments in (("export_child", [name, how, folder]), ("check_child", [folder])):
            command = [sys.executable, "-m", f"benchmarks.coverage.{child}", *arguments]
            try:
                done = subprocess.run(
                    command, cwd=_ROOT, capture_output=True, text=True, timeout=_LIMIT_S
                )
            except subprocess.TimeoutExpired:
                return {"crashed": f"{child} took longer than {_LIMIT_S:g} s"}
            if done.returncode:
                last = (done.stderr.strip().splitlines() or ["no word"])[-1]
                kind = "exporter" if child == "export_child" else "crashed"
                return {kind: last[:200]}
        row: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
        return row


if __name__ == "__main__":
    main()
