"""`tuner tune MODEL`: search for schedules until the budget is spent."""

from __future__ import annotations

import os
import shlex
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cluster.app.console.again import Remembering, again, read_words
from cluster.app.console.flags import (
    FILE_TEXT,
    debug_flag,
    json_flag,
    model_flags,
    model_spec,
    tune_flags,
)
from cluster.app.console.layer_flags import layer_flags, layers_named
from cluster.app.console.output import nothing_on_stdout, print_json
from cluster.app.driver.kept_model import check_kept, load_kept_model
from tuner.request.options import TuneOptions
from tuner.view.phase import Phase
from tuner.view.progress import Snapshot

if TYPE_CHECKING:
    from cluster.app.driver.tune_result import TuneResult
    from tuner.view.outcome import Step

_READING = "reading the model, finding its tasks, starting workers"
_OF_THE_MODEL = ("--shape", "--input", "--arg", "--dim", "--weights")
_KEPT = "model"
"""Stands for the model of a run until it is read."""


@click.command(cls=Remembering, short_help="Search for faster schedules of a model.")
@click.argument("model", metavar="[MODEL]", required=False, type=FILE_TEXT)
@model_flags
@tune_flags
@layer_flags
@click.option("--details", is_flag=True, help="Show every task.")
@json_flag
@debug_flag
def tune(
    model: str | None,
    shapes: tuple[str, ...],
    inputs: tuple[str, ...],
    arguments: tuple[str, ...],
    dims: tuple[str, ...],
    weights: Path | None,
    details: bool,
    as_json: bool,
    **rest: Any,
) -> int:
    """Tune MODEL: a .onnx or .pt2 file, path.py:function or package.module:function.

    Tuning again with the same --run goes on where it was; that run keeps its model, which need not
    be named again. Ctrl-C ends a run in order: what was measured is kept. On a cluster named by
    --address the search outlives this command if that is killed: `tuner attach` watches it, and so
    does the same command again.
    """
    if model is None:
        of_model = zip(_OF_THE_MODEL, (shapes, inputs, arguments, dims, weights), strict=True)
        check_kept(rest["run"], [flag for flag, value in of_model if value])
    spec = model_spec(model or _KEPT, shapes, inputs, arguments, dims, weights)
    options = TuneOptions(model=spec, layers=layers_named(rest), **rest)

    def work(watch: Watch, stop: threading.Event, on_ready: Callable[[], None]) -> TuneResult:
        from cluster.app.tune import tune as tune_model

        uri = os.environ.get("MLFLOW_TRACKING_URI") or None
        asked = replace(options, model=load_kept_model(rest["run"])) if model is None else options
        return tune_model(asked, watch=watch, stop=stop, tracking_uri=uri, on_ready=on_ready)

    first = before(_READING, trials=options.trials or 0, time_budget_s=options.limit_s)
    context = click.get_current_context()
    words = read_words(context)
    onward = Onward.of(context, lambda run, trials: again(context.command, words, run, trials))
    return show_tuning(work, first, onward, details=details, as_json=as_json)


Watch = Callable[[Snapshot], None]
Work = Callable[[Watch, threading.Event, Callable[[], None]], "TuneResult"]
"""Tunes a model: reports its progress to the first argument, ends when the second is set, and calls
the third once it is ready for signals."""


@dataclass(frozen=True, slots=True)
class Onward:
    """The commands that people may run next.

    Attributes:
        commands: names of all that `tuner` has.
        again: the command that goes on with the run of a name, to a total of so many trials.
    """

    commands: frozenset[str]
    again: Callable[[str, int], str]

    @classmethod
    def of(cls, context: click.Context, again: Callable[[str, int], str]) -> Onward:
        """With the commands beside the one that is being run."""
        group = context.find_root().command
        names = group.commands if isinstance(group, click.Group) else ()
        return cls(frozenset(names), again)


def show_tuning(
    work: Work, first: Snapshot, onward: Onward, *, details: bool, as_json: bool
) -> int:
    """Watch a run on standard output and sum it up.

    Args:
        first: snapshot to show until the run has one.

    Returns:
        The exit code.
    """
    with nothing_on_stdout(as_json):
        result, code = _watch(work, first, details=details)
    if result is None:
        click.echo("tuner: interrupted before the search began; the run folder is intact", err=True)
        return code
    for warning in result.warnings:
        click.echo(f"tuner: warning: {warning}", err=True)
    if as_json:
        print_json(_report(result, onward))
    else:
        _summary(result, onward)
    return code


def _watch(work: Work, first: Snapshot, *, details: bool) -> tuple[TuneResult | None, int]:
    """Tune, shown on standard output as it is now; None if a signal came before the search."""
    from cluster.app.console.signals import StopSignals
    from cluster.app.console.terminal import screen_for

    stop = threading.Event()
    with StopSignals(stop) as signals, closing(screen_for(sys.stdout, details=details)) as screen:
        screen.show(first)
        try:
            result = work(
                lambda snapshot: screen.show(snapshot, note=signals.note), stop, signals.install
            )
        except KeyboardInterrupt:
            return None, signals.exit_code
        except SystemExit:  # Ray turns SIGTERM into this from its start until `install`
            return None, 128 + signal.SIGTERM
        screen.show(result.snapshot)
    signalled = result.ended == "signal" or signals.received is not None
    return result, signals.exit_code if signalled else 0


def before(message: str, *, trials: int = 0, time_budget_s: float = 0.0) -> Snapshot:
    """A snapshot to show until the run has one."""
    return Snapshot(
        phase=Phase.STARTING,
        time_budget_s=time_budget_s,
        trials_budget=trials,
        message=message,
    )


def _report(result: TuneResult, onward: Onward) -> dict[str, Any]:
    from tuner.view.as_json import outcome_json, snapshot_json

    return {
        "run": str(result.run),
        "ended": result.ended,
        **snapshot_json(result.snapshot),
        "warnings": list(result.warnings),
        "mlflow_command": result.mlflow_command,
        "closing": outcome_json(result.snapshot),
        "next": [asdict(step) for step in _steps(result, onward)],
        **({"parts": [_report(part, onward) for part in result.parts]} if result.parts else {}),
    }


def _summary(result: TuneResult, onward: Onward) -> None:
    from cluster.app.console.closing_text import closing_lines

    for part in result.parts:
        click.echo(f"\n{part.run}", nl=False)
        _summary(part, onward)
    if result.parts:
        return
    steps, page = _steps(result, onward), _page_of(result)
    click.echo()
    lines = closing_lines(result.snapshot, result.ended, steps, result.mlflow_command, page)
    click.echo("\n".join(lines))


def _page_of(result: TuneResult) -> str:
    """The file that shows a run; empty where it is on another machine, or was not written."""
    from tuner.runs.folder import RunFolder

    file = RunFolder(Path(result.run)).report
    return str(file) if not isinstance(result.run, str) and file.is_file() else ""


def _steps(result: TuneResult, onward: Onward) -> Sequence[Step]:
    """What to do next with a run; nothing where it has parts, for each of which there is more."""
    from tuner.view.outcome import next_steps

    if result.parts:
        return ()
    snapshot = result.snapshot
    spent = snapshot.trials >= snapshot.trials_budget
    run = str(result.run)
    again = onward.again(run, 2 * max(snapshot.trials, 1) if spent else snapshot.trials_budget)
    return next_steps(snapshot, shlex.quote(run), again, onward.commands, result.ended)
