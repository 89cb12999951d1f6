"""Programs that runs have in common: `python -m benchmarks.prior.overlap WORK RUN...`.

WORK holds the runs of drawn layers (`benchmarks.prior`). A network is unseen by what was learned of
them where none of its programs is among theirs. Prints the names of those that are.
"""

from __future__ import annotations

import sys
from contextlib import closing
from pathlib import Path

from benchmarks.command import say
from spaces.lowering.extract_tasks import program_hash
from tuner.runs.folder import RunFolder
from tuner.storage.sqlite_store import SqliteStore
from tuner.task import Task


def main() -> None:
    """Run the command line."""
    work, *runs = map(Path, sys.argv[1:])
    drawn = {program_hash(task) for run in sorted(work.glob("run-*")) for task in _tasks(run)}
    say(f"{len(drawn)} programs were drawn")
    for run in runs:
        tasks = _tasks(run)
        known = [task.name for task in tasks if program_hash(task) in drawn]
        print(f"{run}: {len(known)} of {len(tasks)}", *known)


def _tasks(run: Path) -> list[Task]:
    with closing(SqliteStore(RunFolder(run).store, read_only=True)) as store:
        return list(store.tasks())


if __name__ == "__main__":
    main()
