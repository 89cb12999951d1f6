"""Client of a run's search actor: start it, find it, watch it, stop it.

On a shared cluster the actor is detached: it outlives its driver, and a second driver of the same
run watches the search that is there. For a run

    find_search       gives the actor that Ray knows, in whatever state
    answering_search  gives the actor and its state, once it answers, ended or not
    search_at_work    gives the actor if it has not ended; waits until an ended one is gone
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

from cluster.search.naming import NAMESPACE, search_of, searches
from tuner.errors import TunerError, first_line
from tuner.run_location import RunLocation
from tuner.view.progress import Snapshot

if TYPE_CHECKING:
    from cluster.search.job import SearchJob, SearchState

_WATCH_S = 0.5
_ANSWER_S = 10.0
_UNREACHABLE_S = 60.0
"""The time for which a search may be silent: Ray starts it again within a few seconds, on another
machine within some twenty."""
_GONE_S = 30.0
"""The time for which a search that has ended may stay on the cluster's list."""
END_GRACE_S = 90.0
"""The time that a search may take to end in order, after its deadline or a request to stop."""

Search: TypeAlias = Any
"""Ray's handle of a `cluster.search.host.SearchActor`."""


def find_search(run: RunLocation) -> Search | None:
    """The search that works on a run now; None where none does."""
    import ray

    name = search_of(run, searches())
    try:
        return None if name is None else ray.get_actor(name, namespace=NAMESPACE)
    except ValueError:  # it has just ended
        return None


def answering_search(run: RunLocation) -> tuple[Search, SearchState] | None:
    """The search of a run and its state, ended or not; None where there is none.

    A search that has just died stays on the cluster's list for a moment.

    Raises:
        TunerError: it is silent, or dead and still on the list.
    """
    until_s = time.monotonic() + _GONE_S
    while (actor := find_search(run)) is not None:
        try:
            return actor, _state(actor)
        except TunerError:
            if time.monotonic() > until_s:
                raise
        time.sleep(_WATCH_S)
    return None


def search_at_work(run: RunLocation) -> Search | None:
    """The search of a run that has not ended; None where there is none.

    A search that has ended still answers for some seconds. This waits until it is gone, so that
    another can start in its place.

    Raises:
        TunerError: it is silent, or has ended and stays.
    """
    until_s = time.monotonic() + _GONE_S
    while (found := answering_search(run)) is not None:
        actor, state = found
        if not state.ended:
            return actor
        if time.monotonic() > until_s:
            raise TunerError(f"the search of {run} has ended, but does not go")
        time.sleep(_WATCH_S)
    return None


def start_search(job: SearchJob) -> Search:
    """Start a search on this machine, whose files and clock its job refers to.

    It is detached unless its job names a driver that it ends with.
    """
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    from cluster.search.host import SearchActor
    from cluster.search.job import save

    here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
    alone = {"lifetime": "detached"} if job.driver_pid is None else {}
    actor = SearchActor.options(
        name=job.name, namespace=NAMESPACE, scheduling_strategy=here, **alone
    )
    return actor.remote(save(job))


def watch_search(
    actor: Search,
    watch: Callable[[Snapshot], None] | None,
    stop: threading.Event,
    *,
    known: SearchState | None = None,
    ours: bool = False,
) -> SearchState:
    """Watch a search until it ends.

    Args:
        watch: called with its progress about twice a second.
        stop: set it to end the search in order.
        known: its state a moment ago; if that has ended, the search is not asked again.
        ours: whether it is on this machine and is killed where it does not end by itself.

    Raises:
        TunerError: it is gone, or does not end when it should.
    """
    import ray

    stopped_s = math.inf
    state = known or _state(actor)
    while True:
        if state.snapshot is not None and watch is not None:
            watch(state.snapshot)
        if state.ended:
            return state  # left alive, since others may watch it too: it goes by itself
        if stop.is_set():
            stopped_s = min(stopped_s, time.monotonic())
            actor.stop.remote()  # each time: a restarted actor has forgotten it
        latest_s = min(stopped_s, state.deadline_s if ours else math.inf)
        if time.monotonic() > latest_s + END_GRACE_S:
            ray.kill(actor)
            raise TunerError("the search does not end; results so far are in the run folder")
        if stop.is_set():
            time.sleep(_WATCH_S)
        else:
            stop.wait(_WATCH_S)
        state = _state(actor)


def stop_search(actor: Search, known: SearchState | None = None) -> SearchState:
    """End a search in order and wait for it; `known` as in `watch_search`.

    Raises:
        TunerError: it is gone, or has not ended within `END_GRACE_S`.
    """
    stop = threading.Event()
    stop.set()
    return watch_search(actor, None, stop, known=known)


def _state(actor: Search) -> SearchState:
    """The state of a search; asks again while Ray restarts it.

    Raises:
        TunerError: it is gone for good, or silent for too long.
    """
    import ray
    from ray.exceptions import ActorUnavailableError, GetTimeoutError, RayError

    until_s = time.monotonic() + _UNREACHABLE_S
    while True:
        try:
            state: SearchState = ray.get(actor.state.remote(), timeout=_ANSWER_S)
            return state
        except (ActorUnavailableError, GetTimeoutError):
            pass  # it is being started again
        except RayError as error:
            raise TunerError(
                f"the search process is gone ({first_line(error)[:120]}); "
                "run the same command again to go on"
            ) from error
        if time.monotonic() > until_s:
            raise TunerError(
                f"the search has not answered for {_UNREACHABLE_S:g} s; "
                "run the same command again to go on"
            )
        time.sleep(_WATCH_S)
