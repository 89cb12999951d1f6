"""The command lines of those that record tasks, and of those that search recorded ones."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any

from benchmarks.replay.policies import find_recordings
from benchmarks.replay.programs import HELD_OUT, PROGRAMS
from tuner.errors import TunerError
from tuner.replay.recording import Recording, load
from tuner.task import Task

_KNOWN = {**PROGRAMS, **HELD_OUT}


def load_recordings(parser: argparse.ArgumentParser, folder: Path) -> list[Recording]:
    """The recordings of a folder; without any the command ends."""
    try:
        return [load(path) for path in find_recordings(folder).values()]
    except TunerError as error:
        parser.error(str(error))


def record_tasks(
    parser: argparse.ArgumentParser,
    argv: Sequence[str],
    record: Callable[[Task, argparse.Namespace], dict[str, Any]],
    *,
    default: Collection[str],
    out: Path,
) -> int:
    """Record the tasks that were asked for, and print a line of each.

    Args:
        parser: has the options of one recorder alone.
        default: names of the tasks where none is named.
        out: folder of the files, if no other is named.
    """
    parser.add_argument("tasks", nargs="*", metavar="TASK", help=", ".join(_KNOWN))
    parser.add_argument("--cores", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=out, metavar="DIR")
    parser.add_argument("--work", type=Path, default=Path("runs/recordings"), metavar="DIR")
    options = parser.parse_args(argv)
    if unknown := [name for name in options.tasks if name not in _KNOWN]:
        parser.error(f"{unknown[0]} is no task: there are {', '.join(_KNOWN)}")
    from spaces.lowering.extract_tasks import task_of
    from spaces.targets.target import resolve_target

    options.out.mkdir(parents=True, exist_ok=True)
    target = resolve_target("llvm", cores=options.cores)
    for name in options.tasks or default:
        said = record(task_of(_KNOWN[name](), target, name=name), options)
        print(json.dumps({name: said}), flush=True)
    return 0
