"""The command `tuner`: runs a command line, and turns errors into one line and an exit code.

Exit codes: 0 done; 1 found by looking (a broken model, a held run); 2 malformed request; 130 and
143 ended by SIGINT and SIGTERM.
"""

from __future__ import annotations

import io
import logging
import signal
import sys
import traceback
import warnings
from collections.abc import Sequence
from typing import NoReturn

import click

from cluster.app.commands.attach import attach, stop
from cluster.app.commands.completion import completion
from cluster.app.commands.doctor import doctor
from cluster.app.commands.grafana import grafana
from cluster.app.commands.restore import restore
from cluster.app.commands.results.bench import bench
from cluster.app.commands.results.best import best
from cluster.app.commands.results.diff import diff
from cluster.app.commands.results.explain import explain
from cluster.app.commands.results.export import export
from cluster.app.commands.results.report import report
from cluster.app.commands.results.reproduce import reproduce
from cluster.app.commands.results.verify import verify
from cluster.app.commands.status import status
from cluster.app.commands.tasks import tasks
from cluster.app.commands.top import top
from cluster.app.commands.train import models, train
from cluster.app.commands.tune import tune
from cluster.app.console.flags import Border, debug_flag
from spaces.ir.lean_tvm import import_tvm_lean
from tuner import __version__
from tuner.errors import TunerError, describe_error

_MOST_LINES = 3


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="tuner")
@debug_flag
def cli() -> None:
    """Tune a model's tensor programs and keep the fastest schedules."""


for command in (tune, attach, stop, tasks, status, best, explain, export, bench, restore):
    cli.add_command(command)
for command in (top, report, diff, verify, reproduce, train, models, grafana, doctor, completion):
    cli.add_command(command)


def main() -> NoReturn:
    """Entry of the console script and of `python -m tuner`."""
    import_tvm_lean()
    sys.exit(run(sys.argv[1:]))


def run(arguments: Sequence[str]) -> int:
    """Run one command line and return its exit code. The only place that catches everything."""
    border = Border()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a terminal may lack an arrow
            stream.reconfigure(errors="replace")
    with warnings.catch_warnings():
        # A user cannot act on a library's warnings; --debug brings them back.
        warnings.simplefilter("ignore")
        logging.basicConfig(level=logging.ERROR, format="tuner: %(message)s")
        try:
            code = cli.main(
                list(arguments) or ["--help"], "tuner", standalone_mode=False, obj=border
            )
        except Exception as error:
            if border.debug:
                traceback.print_exc()
            return _refuse(error)
        return int(code or 0)


def _refuse(error: Exception) -> int:
    """Print an error to standard error, in three lines at most, and return its exit code."""
    if isinstance(error, click.Abort):
        _say("tuner: interrupted")
        return 128 + signal.SIGINT
    if isinstance(error, click.ClickException):
        context = error.ctx if isinstance(error, click.UsageError) else None
        command = context.command_path if context else "tuner"
        _say(f"{command}: {error.format_message()}", f"Try '{command} --help'.")
        return error.exit_code
    if isinstance(error, TunerError):
        _say(f"tuner: {error}")
        return error.exit_code
    if isinstance(error, OSError):
        _say(f"tuner: {error}; mend that and try again")
    else:
        _say(
            f"tuner: unexpected {describe_error(error)}",
            "This is a defect of tuner; what was measured is kept. --debug shows where it is.",
        )
    return 1


def _say(*parts: str) -> None:
    lines = [line for part in parts for line in part.splitlines() if line.strip()]
    for line in lines[:_MOST_LINES]:
        click.echo(line, err=True)
