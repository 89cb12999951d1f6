"""`tuner restore DIR FILE.jsonl...`: records of a lost run, brought back from files."""

from __future__ import annotations

from pathlib import Path

import click

from cluster.commands.flags import PATH, debug_flag, run_argument
from cluster.commands.runs import folder_of


@click.command(short_help="Bring records back from files.")
@run_argument
@click.argument("files", metavar="FILE.jsonl...", nargs=-1, required=True, type=PATH)
@debug_flag
def restore(run: Path | str, files: tuple[Path, ...]) -> None:
    """Add to the run in DIR the records in FILE.jsonl... that it lacks, or in folders of such."""
    from contextlib import closing

    from tuner.restore import restore as bring_back
    from tuner.run_folder import read_run
    from tuner.run_lock import RunLock
    from tuner.run_place import open_store

    folder, _ = read_run(folder_of(run))
    url = run if isinstance(run, str) else ""
    with RunLock(folder.lock), closing(open_store(folder, url)) as store:
        restored = bring_back(files, store)
    click.echo(f"added {restored.added} records; {restored.known} were there already")
    if restored.strange:
        click.echo(f"left out {restored.strange} records of tasks that the run does not have")
