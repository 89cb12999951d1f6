"""The names of searches in Ray.

A name is made from the run's folder or URL, so that the search can be found by the run, and from
the device it measures on, so that searches know which others share their devices.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence

from cluster.scaling.scaling_policy import Share
from tuner.run_location import RunLocation

NAMESPACE = "tuner"
_PREFIX = "search-"
_DEVICE = "@"


def run_name(run: RunLocation) -> str:
    """A name of the run that is the same on every machine."""
    return _PREFIX + hashlib.sha256(run.resolved().text.encode()).hexdigest()[:16]


def search_name(run: RunLocation, device: str) -> str:
    """The name of a run's search in Ray.

    Args:
        device: fingerprint of the devices it measures on, or as much of its beginning as is known.
    """
    return f"{run_name(run)}{_DEVICE}{device_name(device)}"


def device_name(device: str) -> str:
    """A fingerprint as a part of names: in small letters, without characters to quote."""
    return re.sub(r"[^a-z0-9]+", "-", device.lower()).strip("-")


def search_of(run: RunLocation, names: Sequence[str]) -> str | None:
    """The name, among those of all searches, of the one that works on a run; None if none does."""
    return next((name for name in names if name.partition(_DEVICE)[0] == run_name(run)), None)


def share_of_cpus(mine: str, names: Sequence[str]) -> Share:
    """A search's share of the CPUs, which all searches share."""
    return Share(len(names), list(names).index(mine)) if mine in names else Share()


def share_of_devices(mine: str, names: Sequence[str]) -> Share:
    """A search's share of the devices that it measures on."""
    return share_of_cpus(mine, [name for name in names if _same_device(mine, name)])


def on_same_devices(mine: str, names: Sequence[str]) -> list[str]:
    """The names of the other searches that measure on the same devices."""
    return [name for name in names if name != mine and _same_device(mine, name)]


def _same_device(one: str, other: str) -> bool:
    """Whether two searches measure on the same devices, as far as their names say."""
    devices = (f"{name.partition(_DEVICE)[2]}-" for name in (one, other))
    short, long = sorted(devices, key=len)
    return long.startswith(short)


def searches() -> list[str]:
    """Names of all searches at work on the cluster, in order."""
    from ray.util import list_named_actors

    names = (actor["name"] for actor in list_named_actors(all_namespaces=True))
    return sorted(name for name in names if name and name.startswith(_PREFIX))
