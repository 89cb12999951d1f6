"""The output of a command: text for people, or one JSON object and nothing else."""

from __future__ import annotations

import contextlib
import json
import math
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import click


@contextlib.contextmanager
def nothing_on_stdout(wanted: bool) -> Iterator[None]:
    """Send all output meanwhile to standard error, that of libraries' native code included."""
    if not wanted:
        yield
        return
    with contextlib.ExitStack() as stack:
        # Without an open descriptor (a closed stdout) there is nothing to keep clean.
        with contextlib.suppress(OSError):
            sys.stdout.flush()
            saved = os.dup(1)
            stack.callback(os.close, saved)
            stack.callback(os.dup2, saved, 1)
            os.dup2(2, 1)
        stack.enter_context(contextlib.redirect_stdout(sys.stderr))
        yield


def print_json(report: Mapping[str, Any]) -> None:
    """Print one object on one line. NaN and the infinities, which JSON lacks, become null."""
    click.echo(json.dumps(plain(report), allow_nan=False))


def plain(value: Any) -> Any:
    """A value as JSON can hold it."""
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, Path):
        return str(value)
    return value


def print_table(*columns: str, rows: Sequence[tuple[str, ...]]) -> None:
    """Print text in aligned columns, the first to the left and the rest to the right; never cut."""
    lines = [columns, *rows]
    widths = [max(len(line[n]) for line in lines) for n in range(len(columns))]
    for line in lines:
        cells = [line[0].ljust(widths[0])]
        cells += [cell.rjust(width) for cell, width in zip(line[1:], widths[1:], strict=True)]
        click.echo("  ".join(cells).rstrip())
