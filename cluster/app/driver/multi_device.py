"""One request on a cluster of different devices: a search for each, with records of its own."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cluster.app.driver.begun import read_begun_target
from cluster.search.client import watch_search
from tuner.errors import TunerError
from tuner.run_location import RunLocation
from tuner.runs.remote import begun_as
from tuner.view.progress import Snapshot, side_by_side

if TYPE_CHECKING:
    from cluster.app.driver.devices import Device
    from cluster.search.job import SearchState


@dataclass(frozen=True, slots=True)
class Part:
    """The part of a request that is for one device.

    Attributes:
        target: canonical JSON.
    """

    device: Device
    run: RunLocation
    target: str


def parts(asked: str, run: RunLocation, devices: Sequence[Device]) -> list[Part]:
    """The parts of a request, one for each device.

    A single device takes the run as the user named it. Of several, each has its own run below that,
    named after the device. A run that began on one device stays with it, and with its target.

    Args:
        asked: the target, as the user named it.

    Raises:
        TunerError: trouble with the place of the run, or its content is not a run.
    """
    begun = begun_as(run)
    if begun is not None:
        devices = [d for d in devices if d.target == begun.target][:1] or devices[:1]
    return [_part(asked, run, device, alone=len(devices) == 1) for device in devices]


def _part(asked: str, run: RunLocation, device: Device, *, alone: bool) -> Part:
    target = read_begun_target(run, asked)
    if target is None:
        below = run.below(device.name)
        begun = begun_as(below) is not None
        if begun or not alone:
            run = below
        if begun:
            target = read_begun_target(run, asked)
    return Part(device, run, target or device.target)


def watch_all(
    searches: Mapping[str, tuple[Any, bool]],
    watch: Callable[[Snapshot], None] | None,
    stop: threading.Event,
) -> dict[str, SearchState]:
    """Watch searches until all have ended.

    Args:
        searches: actors by name, each with whether it is ours, as in `watch_search`.
        watch: is called with their progress, merged into one.
        stop: set it to end all of them in order.

    Raises:
        TunerError: a search is gone, or did not end when it should; raised after all others' end.
    """
    if len(searches) == 1:
        ((name, (actor, ours)),) = searches.items()
        return {name: watch_search(actor, watch, stop, ours=ours)}
    seen: dict[str, Snapshot] = {}
    telling = threading.Lock()

    def follow(name: str, actor: Any, ours: bool) -> SearchState:
        def tell(snapshot: Snapshot) -> None:
            with telling:
                seen[name] = snapshot
                if watch is not None:
                    watch(side_by_side(seen))

        return watch_search(actor, tell, stop, ours=ours)

    with ThreadPoolExecutor(len(searches), "watch") as threads:
        futures = {name: threads.submit(follow, name, *it) for name, it in searches.items()}
    failed = {name: error for name, f in futures.items() if (error := f.exception()) is not None}
    for name, error in failed.items():
        raise TunerError(f"{name}: {error}") from error
    return {name: future.result() for name, future in futures.items()}
