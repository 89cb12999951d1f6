"""What the command lines of the benchmarks share: flags, rows that outlive a broken run, output."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.machine import about
from benchmarks.suites import Workload
from tuner.errors import TunerError, UsageError
from tuner.files.atomic import atomic_file

MIN_ROUNDS = 20
"""Kernels are timed side by side for at least as many."""


def common_flags(parser: argparse.ArgumentParser, *, limit: str) -> None:
    """Flags that every comparison takes. `limit` is how long one side may run, as `30m`."""
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--target", default="llvm", help="as for `tuner tune`; a CPU")
    parser.add_argument(
        "--rounds", type=int, default=MIN_ROUNDS, help="of the race; at least 20 are made"
    )
    parser.add_argument("--limit", default=limit, help="wall time of one run of one side")
    parser.add_argument(
        "--out", type=Path, help="file for the JSON, written after each row; goes on where it was"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run_main(parser: argparse.ArgumentParser, body: Callable[[argparse.Namespace], Any]) -> None:
    """Parse, do, print; what a user can mend is one line."""
    options = parser.parse_args()
    options.rounds = max(MIN_ROUNDS, options.rounds)
    try:
        if options.trials is not None and options.trials < 1:
            raise UsageError(f"--trials {options.trials}: give a number above zero")
        result = body(options)
    except TunerError as error:
        print(f"{parser.prog}: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
    if options.json:
        print(json.dumps(result))
    else:
        print(json.dumps(result, indent=1))


@contextlib.contextmanager
def workplace(keep: Path | None) -> Iterator[Path]:
    """A folder for the length of a block, or the one that is to be kept."""
    if keep is not None:
        keep.mkdir(parents=True, exist_ok=True)
        yield keep.resolve()
        return
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        yield Path(folder)


def fresh(parent: Path, name: str) -> Path:
    """A path in a folder that nothing has yet: `name`, or with a number after it."""
    path, number = parent / name, 1
    while path.exists():
        number += 1
        path = parent / f"{name}-{number}"
    return path


def say(text: str) -> None:
    """Progress, for who waits: on standard error."""
    print(text, file=sys.stderr, flush=True)


class Rows:
    """The rows of a result, on disk as soon as they are there.

    Args:
        out: file that keeps them; None keeps none. Rows that it has from a call with the same
            settings are kept, and need not be made again.
        settings: what all rows have in common.
    """

    def __init__(self, out: Path | None, settings: Mapping[str, Any]) -> None:
        self._out, self._settings = out, dict(settings)
        self.rows: list[dict[str, Any]] = []
        if out is not None and out.exists():
            self.rows = _kept(out, self._settings)

    def has(self, key: Mapping[str, Any]) -> bool:
        """Whether a row holds all of these."""
        return any(all(row.get(k) == v for k, v in key.items()) for row in self.rows)

    def missing(self, workloads: Sequence[Workload]) -> Iterator[tuple[int, Workload]]:
        """Those without a row, numbered from 0 among all; says which one is next."""
        for number, workload in enumerate(workloads):
            if not self.has(workload.to_json()):
                say(f"[{number + 1}/{len(workloads)}] {workload.label}")
                yield number, workload

    def add(self, row: dict[str, Any]) -> None:
        """Keep a row."""
        self.rows.append(row)
        finished(self._out, self._settings, {}, self.rows)

    def finish(self, summary: Mapping[str, Any]) -> dict[str, Any]:
        """The whole result."""
        return finished(self._out, self._settings, summary, self.rows)


def finished(
    out: Path | None,
    settings: Mapping[str, Any],
    summary: Mapping[str, Any],
    rows: Sequence[Mapping[str, Any]],
) -> dict[str, Any]:
    """A result, written to `out` where that is given."""
    document = {
        "settings": dict(settings),
        "summary": dict(summary),
        "rows": list(rows),
        "machine": about(),
    }
    if out is not None:
        try:
            with atomic_file(out) as file:
                json.dump(document, file, indent=1)
                file.write("\n")
        except OSError as error:
            raise TunerError(f"cannot write {out}: {error.strerror}") from error
    return document


def _kept(out: Path, settings: Mapping[str, Any]) -> list[dict[str, Any]]:
    try:
        known = json.loads(out.read_text())
        same = known["settings"] == json.loads(json.dumps(settings))
        rows = list(known["rows"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise TunerError(f"{out} is no result of this benchmark") from error
    if not same:
        raise TunerError(f"{out} holds a result with other settings; name another file")
    return rows


def settings_of(options: argparse.Namespace, target: str, cores: int) -> dict[str, Any]:
    """What a comparison is made with, which goes on only with rows that were made so."""
    return {
        "trials": options.trials,
        "seed": options.seed,
        "cores": cores,
        "target": target,
    }


def cores_of(target: str) -> tuple[str, int]:
    """Canonical JSON of a CPU target, and the threads that kernels use."""
    from spaces.targets.backends import backend_of
    from spaces.targets.config import target_cores
    from spaces.targets.cores import thread_variables
    from spaces.targets.target import resolve_target

    resolved = resolve_target(target)
    if not backend_of(resolved).on_host:
        raise TunerError("this compares on a CPU: give an llvm target")
    cores = target_cores(resolved)
    os.environ.update(thread_variables(cores))
    return resolved, cores
