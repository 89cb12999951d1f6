"""`tuner attach DIR` and `tuner stop DIR`: the search of a run that is at work on a cluster."""

from __future__ import annotations

import os
import shlex
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from cluster.app.commands.tune import Onward, Watch, before, show_tuning
from cluster.app.console.flags import address_flag, debug_flag, json_flag, run_argument
from cluster.app.console.output import nothing_on_stdout, print_json
from tuner.errors import TunerError, UsageError
from tuner.run_location import RunLocation

if TYPE_CHECKING:
    from cluster.app.driver.tune_result import TuneResult
    from cluster.search.job import SearchState

_LOOKING = "looking for the search"


@click.command(short_help="Watch a run that is at work on a cluster.")
@run_argument
@address_flag
@click.option("--details", is_flag=True, help="Show every task.")
@json_flag
@debug_flag
def attach(run: RunLocation, address: str, details: bool, as_json: bool) -> int:
    """Watch the search of the run in DIR, whose driver is gone, until it ends.

    Ctrl-C ends the search in order, as in `tuner tune`; to leave it at work, end this command by
    a second Ctrl-C.
    """

    def work(watch: Watch, stop: threading.Event, on_ready: Callable[[], None]) -> TuneResult:
        from cluster.app.driver.tune_result import result_of
        from cluster.search.client import watch_search

        uri = os.environ.get("MLFLOW_TRACKING_URI") or ""
        with _search_of(run, address) as (search, known):
            on_ready()
            return result_of(run, watch_search(search, watch, stop, known=known), uri)

    def again(run: str, trials: int) -> str:
        at = () if address == "auto" else ("--address", address)
        return shlex.join(("tuner", "tune", "--run", run, "--trials", str(trials), *at))

    onward = Onward.of(click.get_current_context(), again)
    return show_tuning(work, before(_LOOKING), onward, details=details, as_json=as_json)


@click.command(short_help="End a run that is at work on a cluster, in order.")
@run_argument
@address_flag
@json_flag
@debug_flag
def stop(run: RunLocation, address: str, as_json: bool) -> None:
    """End the search of the run in DIR in order: what was measured is kept."""
    from cluster.search.client import stop_search
    from tuner.view.words import amount

    with nothing_on_stdout(as_json), _search_of(run, address) as (search, known):
        state = stop_search(search, known)
    if state.error:
        raise TunerError(state.error)
    trials = state.snapshot.trials if state.snapshot is not None else 0
    if as_json:
        print_json({"run": str(run), "ended": state.ended, "trials": trials})
    else:
        click.echo(
            f"stopped after {amount(trials, 'trial')}; `tuner tune` with --run {run} goes on"
        )


@contextmanager
def _search_of(run: RunLocation, address: str) -> Iterator[tuple[Any, SearchState]]:
    """The search that works on a run, and its state.

    Raises:
        UsageError: the address names no cluster that others could use.
        TunerError: there is no cluster, or nothing works on this run there.
    """
    from cluster.ray_workers.ray_cluster import is_embedded, ray_cluster
    from cluster.search.client import answering_search
    from tuner.runs.folder import folder_of_runs, runs_below

    if is_embedded(address):
        raise UsageError(
            "--address: name the cluster as HOST:PORT; a search on a cluster of its own ends with "
            "the command that started it"
        )
    with ray_cluster(address):
        found = answering_search(run)
        if found is None and not run.is_url and (below := runs_below(run.folder)):
            raise folder_of_runs(run, below)
        if found is None:
            raise TunerError(
                f"no search is at work on {run}: `tuner status {run}` says how far it came"
            )
        yield found
