"""`tuner report DIR...`: a page that shows a run, or several beside each other."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from cluster.app.commands.runs import folder_of
from cluster.app.console.flags import PATH, RUN, debug_flag
from tuner.errors import UsageError
from tuner.run_location import RunLocation

if TYPE_CHECKING:
    from tuner.report.run_report import RunReport

_COMPARISON = "comparison.html"


@click.command(short_help="Write a page that shows runs.")
@click.argument("runs", metavar="DIR|URL...", type=RUN, nargs=-1, required=True)
@click.option(
    "-o",
    "--output",
    metavar="FILE.html",
    type=PATH,
    help="Default: report.html in DIR; of several runs comparison.html in the first, "
    "of URLs in the current folder.",
)
@click.option(
    "--plots",
    "images",
    metavar="FOLDER",
    type=PATH,
    help="Write the charts as images there, too; of several runs those that compare them.",
)
@debug_flag
def report(runs: tuple[RunLocation, ...], output: Path | None, images: Path | None) -> None:
    """Write a page that shows a run: latency over time, tasks, failures, workers, cost model.

    Several runs are compared on one page. It is one file, which needs no network.
    """
    from tuner.pages.write import write_page, write_plots
    from tuner.runs.remote import runs_at

    places = [place for run in runs for place in runs_at(run)]
    _refuse_twice(places)
    file = output or _default(runs[0], len(places))
    names = _names(places)
    told = [_read_report(place, name) for place, name in zip(places, names, strict=True)]
    for folder in _plots(file, places, images):
        write_plots(folder, told)  # before the page: tracking takes them along when that is new
    write_page(file, told, time.time())
    click.echo(str(file))
    if images is not None:
        click.echo(str(images))


def _plots(file: Path, places: list[RunLocation], images: Path | None) -> list[Path]:
    """The folders for the charts: that which was named, and a run's own where its own page is
    written."""
    from tuner.runs.folder import RunFolder

    folders = [] if images is None else [images]
    if len(places) == 1 and not places[0].is_url:
        own = RunFolder(places[0].folder)
        asked = images is not None and images.resolve() == own.plots.resolve()
        if file.resolve() == own.report.resolve() and not asked:
            folders.append(own.plots)
    return folders


def _refuse_twice(places: list[RunLocation]) -> None:
    """Refuse to compare a run with itself.

    Raises:
        UsageError: a run is among them more than once.
    """
    seen: set[RunLocation] = set()
    for place in places:
        if place.resolved() in seen:
            raise UsageError(f"{place} is named twice: a run is compared with others alone")
        seen.add(place.resolved())


def _default(first: RunLocation, count: int) -> Path:
    from tuner.runs.folder import RunFolder

    named = RunFolder(Path()).report.name if count == 1 else _COMPARISON
    return Path(named) if first.is_url else first.folder / named


def _names(places: list[RunLocation]) -> list[str]:
    """A short name for each run; a longer one where several would have the same."""
    short = [place.name for place in places]
    return [
        name if short.count(name) == 1 else str(place)
        for name, place in zip(short, places, strict=True)
    ]


def _read_report(place: RunLocation, name: str) -> RunReport:
    """All that the page shows of one run.

    Raises:
        TunerError: the run is missing, damaged, of another schema version or without records.
    """
    import contextlib

    from cluster.app.driver.kernel_sets import kernel_sets
    from tuner.report.bench import read_bench
    from tuner.report.run_report import run_report
    from tuner.runs.folder import read_run, refuse_unbegun
    from tuner.storage.sqlite_store import SqliteStore

    folder, manifest = read_run(folder_of(place))
    refuse_unbegun(folder, place)
    with contextlib.closing(SqliteStore(folder.store, read_only=True)) as store:
        return run_report(
            store,
            manifest,
            name=name,
            place=str(place),
            kernel_sets=kernel_sets(store, manifest.max_kernels),
            bench=read_bench(folder.bench),
        )
