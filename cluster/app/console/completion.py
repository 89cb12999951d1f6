"""What a shell may complete: runs, tasks of a run, files. Quick, and silent where nothing is found.

Functions here look at the disk and at nothing else: no URL is opened, no heavy library imported.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import click
from click.shell_completion import CompletionItem

from tuner.errors import TunerError
from tuner.run_location import RunLocation, is_url

Complete = Callable[[click.Context, str], list[CompletionItem]]
_MOST_FOLDERS = 2000
"""Folders that are looked at, so that a large one holds no shell up."""
_RUNS = Path("runs")


def words(*choices: str) -> Complete:
    """Completes to one of these, where they begin with what was typed."""

    def complete(_: click.Context, typed: str) -> list[CompletionItem]:
        return [CompletionItem(word) for word in choices if word.startswith(typed)]

    return complete


def files(_: click.Context, typed: str) -> list[CompletionItem]:
    """Leaves it to the shell, which completes to files."""
    return [CompletionItem(typed, type="file")]


def runs(_: click.Context, typed: str) -> list[CompletionItem]:
    """Run folders: those in `runs/` and here, and those of a folder that was typed.

    The shell completes to folders where there is none of them.
    """
    if is_url(typed):
        return []
    found = sorted(str(path) for path in _run_folders(typed) if str(path).startswith(typed))
    return [CompletionItem(path) for path in found] or [CompletionItem(typed, type="dir")]


def tasks(context: click.Context, typed: str) -> list[CompletionItem]:
    """Names of the tasks of the run that was typed before."""
    from tuner.runs.folder import RunFolder
    from tuner.storage.sqlite_file import task_names

    # Where the flag's own value is what is missing, click has not come to the arguments yet.
    named = context.params.get("run") or next(iter(context.args), "")
    try:
        run = RunLocation.of(named)
        names = [] if run.is_url else task_names(RunFolder(Path(run.text)).store)
    except (OSError, TunerError):
        return []
    return [CompletionItem(name) for name in names if name.startswith(typed)]


def _run_folders(typed: str) -> Iterator[Path]:
    """Folders with a manifest among those that the text may go on to."""
    from tuner.runs.folder import RunFolder

    above = Path(typed) if typed.endswith("/") else Path(typed).parent
    for parent in dict.fromkeys((above, Path(), _RUNS)):
        try:
            inside = [path for path, _ in zip(parent.iterdir(), range(_MOST_FOLDERS), strict=False)]
        except OSError:
            continue
        yield from (path for path in inside if RunFolder(path).manifest.is_file())
