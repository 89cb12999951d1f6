"""`tuner grafana FILE`: the dashboard of runs, for a Grafana that does not find it by itself."""

from __future__ import annotations

from pathlib import Path

import click

from cluster.app.console.flags import PATH, debug_flag


@click.command(short_help="Write the dashboard of runs for Grafana.")
@click.argument("file", metavar="FILE.json", type=PATH)
@debug_flag
def grafana(file: Path) -> None:
    """Write the dashboard of runs on a cluster, to be imported into Grafana, or put where it looks
    for dashboards."""
    from cluster.ray_workers.grafana import dashboard_json
    from tuner.files.atomic import output_file

    with output_file(file) as out:
        out.write(dashboard_json())
    click.echo(f"wrote {file}: import it in Grafana under Dashboards")
