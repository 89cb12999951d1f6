"""The command line of the mutants, see the package."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.mutants.contexts import cover, tests_of
from benchmarks.mutants.draw import draw
from benchmarks.mutants.judge import (
    UNKNOWN_S,
    Verdict,
    deadline_s,
    durations,
    find_mirrored,
    judge,
    order,
)
from benchmarks.mutants.mutant import Mutant

_MOST_FILES = 6


def main() -> int:
    flags = argparse.ArgumentParser(prog="python -m benchmarks.mutants")
    commands = flags.add_subparsers(dest="command", required=True)
    drawn = commands.add_parser("draw", help="print mutants of this checkout")
    drawn.add_argument("--number", type=int, default=60)
    drawn.add_argument("--seed", type=int, default=37)
    covered = commands.add_parser("cover", help="which tests of TREE run which line")
    covered.add_argument("tree", type=Path)
    covered.add_argument("data", type=Path)
    judged = commands.add_parser("judge", help="plant each mutant, ask the tests of its line")
    judged.add_argument("mutants", type=Path)
    judged.add_argument("data", type=Path)
    judged.add_argument("tree", type=Path)
    judged.add_argument("--part", default="0/1", help="every Nth mutant, from the Kth on: K/N")
    again = commands.add_parser("again", help="ask those that noticed each mutant")
    again.add_argument("judged", type=Path)
    again.add_argument("data", type=Path)
    again.add_argument("tree", type=Path)
    given = flags.parse_args()
    match given.command:
        case "draw":
            rows = [asdict(m) for m in draw(Path.cwd(), given.number, given.seed)]
            print(json.dumps(rows, indent=1))
        case "cover":
            return cover(given.tree.resolve(), given.data.resolve())
        case "judge":
            first, every = map(int, given.part.split("/"))
            mutants = json.loads(given.mutants.read_text())[first::every]
            show(verdicts(mutants, given.data.resolve(), given.tree.resolve()))
        case "again":
            rows = json.loads(given.judged.read_text())
            show(verdicts_again(rows, given.data.resolve(), given.tree.resolve()))
    return 0


def verdicts(rows: list[dict[str, Any]], data: Path, tree: Path) -> Iterator[Verdict]:
    took_s = durations(data)
    for row in rows:
        mutant = Mutant(**row)
        ran = tests_of(data, mutant.path, mutant.line)
        tests = order(ran, took_s, mutant.path) if ran else find_mirrored(tree, mutant.path)
        limit_s = deadline_s(tests, took_s) if ran else UNKNOWN_S
        killed_by, seconds = judge(tree, mutant, tests, limit_s)
        yield Verdict(mutant, killed_by, len(tests), bool(ran), round(seconds, 1))


def verdicts_again(rows: list[dict[str, Any]], data: Path, tree: Path) -> Iterator[Verdict]:
    """Ask the test that noticed it; where it is gone, files with tests that ran the line."""
    took_s = durations(data)
    for row in rows:
        mutant, test = Mutant(**row["mutant"]), row["killed_by"]
        ran = order(tests_of(data, mutant.path, mutant.line), took_s, mutant.path)
        files = dict.fromkeys([test.partition("::")[0], *(t.partition("::")[0] for t in ran)])
        named = [[test]] if "::" in test else []
        asked = [*named, *([file] for file in [*files][:_MOST_FILES] if (tree / file).is_file())]
        asked = [*asked, find_mirrored(tree, mutant.path)] if test else []
        killed_by, seconds, number = "", 0.0, 0
        for tests in asked:
            if not killed_by:
                killed_by, more_s = judge(tree, mutant, tests, UNKNOWN_S)
                seconds, number = seconds + more_s, number + len(tests)
        yield Verdict(mutant, killed_by, number, row["covered"], round(seconds, 1))


def show(found: Iterator[Verdict]) -> None:
    """All of them as JSON, and each as it comes on the other stream."""
    rows = []
    for verdict in found:
        rows.append(asdict(verdict))
        said = verdict.killed_by or "survived"
        print(f"{verdict.mutant.path}:{verdict.mutant.line} {said}", file=sys.stderr, flush=True)
    print(json.dumps(rows, indent=1))


if __name__ == "__main__":
    sys.exit(main())
