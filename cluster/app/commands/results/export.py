"""`tuner export DIR`: a compiled library, a MetaSchedule database, or the records as text."""

from __future__ import annotations

from pathlib import Path

import click

from cluster.app.commands.runs import folder_of, open_run
from cluster.app.console.flags import LIBRARY_FILE, PATH, debug_flag, run_argument
from tuner.errors import UsageError
from tuner.run_location import RunLocation


@click.command(short_help="Write a library, a database or the records.")
@run_argument
@click.option(
    "--lib",
    "library",
    metavar="FILE.so",
    type=LIBRARY_FILE,
    help="The model compiled with its winners.",
)
@click.option(
    "--database",
    metavar="OUT_DIR",
    type=PATH,
    help="A MetaSchedule database: database_workload.json and database_tuning_record.json.",
)
@click.option(
    "--allow-external",
    is_flag=True,
    help="With --lib: it may call functions of libraries, which must be registered where it runs.",
)
@click.option("--records", metavar="FILE.jsonl", type=PATH, help="One JSON object for each trial.")
@click.option(
    "--timeline",
    metavar="FILE.pftrace",
    type=PATH,
    help="What each worker did when, for Perfetto (ui.perfetto.dev).",
)
@debug_flag
def export(
    run: RunLocation,
    library: Path | None,
    database: Path | None,
    allow_external: bool,
    records: Path | None,
    timeline: Path | None,
) -> None:
    """Write what the run in DIR found: one of --lib, --database, --records and --timeline."""
    if sum(out is not None for out in (library, database, records, timeline)) != 1:
        raise UsageError(
            "tuner export needs exactly one of --lib, --database, --records and --timeline"
        )
    if allow_external and library is None:
        raise UsageError("--allow-external says something of --lib alone")
    if library is not None:
        from cluster.app.console.terminal import size
        from cluster.app.driver.export import ExternalSymbols, export_library

        try:
            calls = export_library(
                folder_of(run, model=True), library, allow_external=allow_external
            )
        except ExternalSymbols as error:
            raise UsageError(f"--allow-external is missing: {error}") from error
        click.echo(f"wrote {library}: {size(library.stat().st_size)}")
        for symbol, provider in calls.items():
            click.echo(f"it calls {symbol}, which {provider} must register wherever it runs")
        _mark_other_toolchains(run)
    elif database is not None:
        from cluster.app.console.terminal import list_names
        from cluster.app.driver.export import export_database

        left_out = export_database(folder_of(run, model=True), database)
        click.echo(f"wrote {database}/database_workload.json and database_tuning_record.json")
        if left_out.symbolic:
            click.echo(
                f"left out {list_names(left_out.symbolic)}: a database holds one schedule for a "
                "program, not the kernels of one with symbolic dimensions; --lib has them all"
            )
        if left_out.faster:
            click.echo(
                f"{list_names(left_out.faster)}: a library's function, or a program that is no "
                "schedule, is faster there than the schedule that the database has; --lib has it "
                "(a function with --allow-external)"
            )
    elif records is not None:
        from tuner.report.record_lines import export_records
        from tuner.view.words import amount

        with open_run(run) as (_, store):
            count = export_records(store, records)
        click.echo(f"wrote {amount(count, 'record')} to {records}")
    elif timeline is not None:
        from tuner.report.timeline import export_timeline

        with open_run(run) as (_, store):
            count = export_timeline(store, timeline, run.name)
        click.echo(f"wrote {count} stretches of workers' time to {timeline}")


def _mark_other_toolchains(run: RunLocation) -> None:
    """Say where kernels were timed with another toolchain than the library was compiled with."""
    from cluster.app.console.terminal import list_names
    from spaces.passes.toolchain import toolchain_fingerprint
    from tuner.view.folds import view_winners

    with open_run(run) as (manifest, store):
        here = toolchain_fingerprint(manifest.target)
        used = {task.toolchain for task in view_winners(store) if task.toolchain}
    if others := sorted(used - {here}):
        click.echo(
            f"its kernels were timed with {list_names(others, 1)}, and are compiled with {here}: "
            f"they may take another time; `tuner tune` with --run {run} times them again"
        )
