"""`tuner doctor`: what on this machine would spoil a run, what it lacks, and what to do then."""

from __future__ import annotations

import os
from dataclasses import asdict

import click

from cluster.app.console.flags import debug_flag, json_flag
from cluster.app.console.output import nothing_on_stdout, print_json


@click.command(short_help="Check this machine and its versions.")
@click.option("--full", is_flag=True, help="Start a Ray cluster on loopback as well.")
@json_flag
@debug_flag
def doctor(full: bool, as_json: bool) -> int:
    """Check versions, the compiler, the target, disk, Ray and MLflow. Exit 1 if one fails.

    After that it lists the features, with what each lacks here and the command that brings it. What
    a feature lacks is no failure.
    """
    from cluster.app.console.doctor_checks import examine
    from cluster.app.console.doctor_features import features

    with nothing_on_stdout(as_json):
        findings = []
        for finding in examine(tracking_uri=os.environ.get("MLFLOW_TRACKING_URI"), full=full):
            findings.append(finding)
            if not as_json:
                click.echo(finding.text())
        offered = list(features(findings))
    failed = [finding for finding in findings if finding.level == "fail"]
    if as_json:
        shown = {"checks": [*map(asdict, findings)], "features": [*map(asdict, offered)]}
        print_json({"ok": not failed, **shown})
        return 1 if failed else 0
    click.echo("\nFeatures:")
    for feature in offered:
        click.echo(feature.text())
    if failed:
        click.echo(f"\n{len(failed)} of {len(findings)} checks failed: tuning here will not work.")
    return 1 if failed else 0
