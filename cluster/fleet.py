"""How many workers of each kind a cluster should have. Pure.

What a cluster has is asked for again and again while a run goes on: machines that join are put to
work, those that will leave get no more of it. A runner takes one device: a GPU, or for kernels on
CPUs the right to time them on a machine (Ray's custom resource `measure`). Builders and space
workers share the CPUs. Where a cluster can grow, as many workers are asked for as there is work:
Ray keeps those waiting that there is no room for, and its autoscaler starts machines for them.
Runs that share a cluster each take an equal part of it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

_TRIALS_PER_RUNNER = 32
"""Work that is worth a machine of its own."""
_CPUS_PER_SPACE_WORKER = 4
_BUILDERS_PER_RUNNER = 2
"""A kernel takes longer to compile than to measure, by about so much."""
_MOST_BUILDERS_PER_RUNNER = 16
"""More would only build what is out of date by the time it is measured."""
_BUILDERS_PER_CPU = 2
"""That Ray has room for; they are at work half of the time."""


@dataclass(frozen=True, slots=True)
class Node:
    """A machine of the cluster.

    Attributes:
        resources: that it declares, by Ray's names.
        leaves_in_s: when it will be gone; None where nothing is known of that.
    """

    id: str
    resources: Mapping[str, float] = field(default_factory=dict)
    leaves_in_s: float | None = None


@dataclass(frozen=True, slots=True)
class Cluster:
    """The machines there are, and how far their number may grow.

    Attributes:
        most: the most of each resource that an autoscaler can provide; None where there is none,
            or it does not say.
    """

    nodes: Sequence[Node] = ()
    most: Mapping[str, float] | None = None


@dataclass(frozen=True, slots=True)
class Need:
    """What a run would use.

    Attributes:
        device: Ray's name of what a runner takes.
        trials_left: of its budget.
        devices: that the user allows; None is all there are, or that can be had.
        runs: that share the cluster, this one included; `place` is this one's among them.
    """

    device: str
    trials_left: int
    devices: int | None = None
    runs: int = 1
    place: int = 0


@dataclass(frozen=True, slots=True)
class Crew:
    """Workers of each kind."""

    runners: int
    builders: int
    space_workers: int


def amount(nodes: Iterable[Node], resource: str) -> float:
    """How much of a resource the machines have that stay."""
    return sum(n.resources.get(resource, 0.0) for n in nodes if n.leaves_in_s is None)


def reachable(cluster: Cluster, resource: str) -> float:
    """How much of a resource there is, or can be."""
    here = sum(n.resources.get(resource, 0.0) for n in cluster.nodes)
    return max(here, (cluster.most or {}).get(resource, 0.0))


def fair_share(number: int, need: Need) -> int:
    """A run's part of what several share: the same for all, and one more for the first of them
    where it does not come out even."""
    return number // need.runs + (need.place < number % need.runs)


def crew(cluster: Cluster, need: Need) -> Crew:
    """The workers that a cluster should have now.

    Returns:
        At least one of each, also where there is no room for it yet.
    """
    here = fair_share(int(amount(cluster.nodes, need.device)), need)
    cpus = fair_share(int(amount(cluster.nodes, "CPU")), need)
    worth = math.ceil(need.trials_left / _TRIALS_PER_RUNNER)
    runners, builders = here, cpus
    if cluster.most is not None:
        most = fair_share(int(reachable(cluster, need.device)), need)
        runners = max(here, min(worth, most))
    elif need.devices is not None:  # it may grow, and only the user knows how far
        runners = max(here, min(worth, need.devices))
    if need.devices is not None:
        runners = min(runners, need.devices)
    runners = max(1, runners)
    if cluster.most is not None:
        room = _BUILDERS_PER_CPU * fair_share(int(reachable(cluster, "CPU")), need)
        builders = max(builders, min(_BUILDERS_PER_RUNNER * runners, room))
    return Crew(
        runners=runners,
        builders=max(1, min(builders, _MOST_BUILDERS_PER_RUNNER * runners)),
        space_workers=max(1, math.ceil(cpus / _CPUS_PER_SPACE_WORKER)),
    )
