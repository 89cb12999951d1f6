"""The main job, wired: a model goes in, a run folder with the best schedules comes out."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from cluster.app.driver.declared_space import refuse_pickled
from cluster.app.driver.layers import refuse_pickled_layers
from cluster.app.driver.preparation import Preparation
from cluster.app.driver.prepare import check_cheaply, new_run
from cluster.app.driver.tune_result import TuneResult, result_of, together
from cluster.ray_workers.submitted import refuse_copied_folder
from tuner.errors import TunerError
from tuner.request.options import TuneOptions
from tuner.run_location import RunLocation
from tuner.runs.remote import refuse_network_disk
from tuner.view.progress import Snapshot

if TYPE_CHECKING:
    from cluster.scaling.scaling_policy import Cluster
    from cluster.search.job import SearchState

Watch = Callable[[Snapshot], None]
"""Called with the progress of a run, on the thread that waits for it."""

_WATCH_S = 0.5
_PATIENCE_S = 2.0


def tune(
    options: TuneOptions,
    *,
    watch: Watch | None = None,
    stop: threading.Event | None = None,
    tracking_uri: str | None = None,
    on_ready: Callable[[], None] | None = None,
) -> TuneResult:
    """Tune a model until its budget is spent, on an embedded Ray cluster or a given one.

    Args:
        options: the request.
        watch: called with the run's progress about twice a second, on the calling thread.
        stop: set it to end the run in order.
        tracking_uri: URI of an MLflow server; None keeps a database in the run folder.
        on_ready: called once Ray has started: the moment to install signal handlers, since Ray
            replaces those set before.

    Raises:
        TunerError: the request cannot be met; the text says why, in one line.
    """
    from cluster.ray_workers.ray_cluster import is_embedded
    from tuner.tracking.tracker import check_uri, lasting_uri

    warning = check_uri(tracking_uri or "")
    tracking_uri = lasting_uri(tracking_uri or "")
    named = options.run
    run = new_run(options.model.source) if named is None else RunLocation.of(named)
    if not run.is_url:
        refuse_network_disk(run.folder)
        refuse_copied_folder(run.folder, os.environ)
    on_ready = on_ready or (lambda: None)
    stop = stop or threading.Event()
    tune_on = _tune_here if is_embedded(options.address) else _tune_there
    ended = tune_on(options, run, tracking_uri, watch, stop, on_ready)
    results = [result_of(at, state, tracking_uri) for at, state in ended]
    return together(run, results, warning)


def _tune_here(
    options: TuneOptions,
    run: RunLocation,
    tracking_uri: str,
    watch: Watch | None,
    stop: threading.Event,
    on_ready: Callable[[], None],
) -> list[tuple[RunLocation, SearchState]]:
    """Tune on an embedded cluster, which starts while the model is read, and ends with us."""
    from cluster.ray_workers.nodes import NodeWatch
    from cluster.ray_workers.ray_cluster import ray_cluster
    from cluster.search.client import start_search, watch_search

    with Preparation(
        options,
        run,
        tracking_uri=tracking_uri,
        driver_pid=os.getpid(),
    ) as preparation:
        preparation.fail_fast(_PATIENCE_S)
        with ray_cluster(options.address):
            on_ready()
            job = preparation.finish(stop)
            _refuse_missing_device(job.options.target, NodeWatch().look())
            actor = start_search(job)
            try:
                state = watch_search(actor, watch, stop, ours=True)
            finally:
                _let_go(actor)
    return [(run, _add_note(state, job.note))]


def _tune_there(
    options: TuneOptions,
    run: RunLocation,
    tracking_uri: str,
    watch: Watch | None,
    stop: threading.Event,
    on_ready: Callable[[], None],
) -> list[tuple[RunLocation, SearchState]]:
    """Tune on a shared cluster, for each different device of it. Where a search of such a run is
    already at work there, whose driver is gone, watch that search."""
    from cluster.app.driver.begun import read_begun_target
    from cluster.app.driver.device_wait import Wait
    from cluster.app.driver.devices import devices_on_cluster
    from cluster.app.driver.multi_device import parts, watch_all
    from cluster.ray_workers.autoscaler import RayAutoscaler
    from cluster.ray_workers.nodes import NodeWatch
    from cluster.ray_workers.ray_cluster import ray_cluster
    from cluster.search.client import search_at_work, start_search, watch_search

    refuse_pickled(options)
    refuse_pickled_layers(options)
    with ray_cluster(options.address):
        on_ready()
        if (actor := search_at_work(run)) is not None:
            return [(run, watch_search(actor, watch, stop))]
        check_cheaply(options)
        wait = Wait(NodeWatch().look, RayAutoscaler(), options.device_wait_s, stop)
        begun = read_begun_target(run, options.target)
        devices = devices_on_cluster(begun or options.target, wait)
        jobs, searches, places = {}, {}, {}
        for part in parts(options.target, run, devices):
            name = part.device.name
            places[name] = part.run
            if (actor := search_at_work(part.run)) is not None:
                searches[name] = (actor, False)
                continue
            with Preparation(
                options,
                part.run,
                tracking_uri=tracking_uri,
                target=part.target,
                device=part.device.fingerprint,
            ) as preparation:
                jobs[name] = preparation.finish(stop)
        searches |= {n: (start_search(job), True) for n, job in jobs.items()}
        states = watch_all(searches, watch, stop)
    told = _drop_repeated({name: job.note for name, job in jobs.items()})
    return [(places[name], _add_note(state, told.get(name, ""))) for name, state in states.items()]


def _drop_repeated(notes: dict[str, str]) -> dict[str, str]:
    """Notes by device, without those that repeat an earlier device's."""
    first = {note: name for name, note in reversed(notes.items())}
    return {name: note for note, name in first.items()}


def _add_note(state: SearchState, note: str) -> SearchState:
    """The state of a search, with a note from before its start among the warnings."""
    return replace(state, warnings=(note, *state.warnings)) if note else state


def _let_go(actor: Any) -> None:
    """Kill a search that nobody watches any more."""
    import ray

    ray.kill(actor)


def _refuse_missing_device(target: str, cluster: Cluster) -> None:
    """Refuse at once a target that no machine here can measure, instead of waiting for a runner.

    Raises:
        TunerError: the cluster has no such device.
    """
    from cluster.scaling.scaling_policy import amount
    from spaces.targets.backends import backend_of

    row = backend_of(target)
    if not row.everywhere and amount(cluster.nodes, row.resource) < 1:
        raise TunerError(f"this machine has no {row.kind.upper()} device to measure on")
