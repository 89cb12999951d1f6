"""How many workers of each kind a cluster should have. Pure.

What a cluster has is asked for again and again while a run goes on: machines that join are put to
work, those that will leave get no more of it. A runner takes one device: a GPU, or for kernels on
CPUs the right to time them on a machine (Ray's custom resource `measure`). Builders and space
workers share the CPUs. Where a cluster can grow, more workers are asked for than there is room:
Ray keeps those waiting, and its autoscaler starts machines for them, as far as it may. Nor are more
kept there than the work that is left is worth: a machine without workers is taken back. Runs that
share a cluster each take an equal part of it.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass, field

_TRIALS_PER_RUNNER = 32
"""Work that is worth a machine of its own."""
_CPUS_PER_SPACE_WORKER = 4
_BUILDERS_PER_RUNNER = 2
"""A kernel takes longer to compile than to measure, by about so much."""
_MOST_BUILDERS_PER_RUNNER = 16
"""More would only build what is out of date by the time it is measured."""
_TRIALS_PER_BUILDER = _TRIALS_PER_RUNNER // _BUILDERS_PER_RUNNER
_PATIENCE_S = 180.0
"""So long a cluster may take to start a machine."""
_FULL_S = 900.0
"""So long it is taken to be as large as it may be, when it did not."""
_LET_GO_S = 30.0
"""So long workers are kept that are not needed any more: they may be again."""
_HEAD = "node:__internal_head__"
"""Ray's name of what only the head has."""


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
    """The machines there are.

    Attributes:
        grows: whether machines are started for what waits and taken back where nothing is done;
            nobody says how many at most.
        full: whether none is started at the moment, whatever waits.
    """

    nodes: Sequence[Node] = ()
    grows: bool = False
    full: bool = False


@dataclass(frozen=True, slots=True)
class Share:
    """A run's part of something: it is the run at `place` of `runs` that share it."""

    runs: int = 1
    place: int = 0

    def of(self, number: int) -> int:
        """The same part for all, and one more for the first of them where it does not come out
        even."""
        return number // self.runs + (self.place < number % self.runs)


@dataclass(frozen=True, slots=True)
class Demand:
    """What a run would use.

    Attributes:
        device: Ray's name of what a runner takes.
        trials_left: still to be measured, re-timings included.
        devices: that the user allows; None is all that can be had.
        of_devices: with runs that measure on such devices, too.
        of_cpus: with all runs.
    """

    device: str
    trials_left: int
    devices: int | None = None
    of_devices: Share = Share()
    of_cpus: Share = Share()


@dataclass(frozen=True, slots=True)
class WorkerCounts:
    """Workers of each kind."""

    runners: int
    builders: int
    space_workers: int


def amount(nodes: Iterable[Node], resource: str) -> float:
    """How much of a resource the machines have that stay."""
    return sum(n.resources.get(resource, 0.0) for n in nodes if n.leaves_in_s is None)


def worker_counts(cluster: Cluster, demand: Demand) -> WorkerCounts:
    """The workers that a cluster should have now.

    Returns:
        At least one of each, also where there is no room for it yet.
    """
    runners = demand.of_devices.of(int(amount(cluster.nodes, demand.device)))
    cpus = demand.of_cpus.of(int(amount(cluster.nodes, "CPU")))
    if cluster.grows:
        most = runners if cluster.full else 2 * runners + 1
        runners = min(most, math.ceil(demand.trials_left / _TRIALS_PER_RUNNER))
        cpus = min(cpus, math.ceil(demand.trials_left / _TRIALS_PER_BUILDER))
    if demand.devices is not None:
        runners = min(runners, demand.devices)
    runners = max(1, runners)
    builders = cpus
    if cluster.grows and not cluster.full:
        builders = max(builders, _BUILDERS_PER_RUNNER * runners)
    return WorkerCounts(
        runners=runners,
        builders=max(1, min(builders, _MOST_BUILDERS_PER_RUNNER * runners)),
        space_workers=max(1, math.ceil(cpus / _CPUS_PER_SPACE_WORKER)),
    )


def keeping_order(nodes: Sequence[Node], demand: Demand, runners: int) -> list[str]:
    """Machines in the order in which they keep their workers, when there are too many of these.

    The head, which stays anyway, and as many machines as so many runners take; then those that
    only build; last the other ones with devices. Workers of all kinds then leave the same machines,
    so that these have none.
    """
    ordered = sorted(nodes, key=lambda node: (_HEAD not in node.resources, node.id))
    measuring = set()
    for node in ordered:
        if runners > 0 and (devices := int(amount([node], demand.device))):
            runners -= devices
            measuring.add(node.id)

    def rank(node: Node) -> int:
        if _HEAD in node.resources or node.id in measuring:
            return 0
        return 2 if amount([node], demand.device) >= 1 else 1

    return [node.id for node in sorted(ordered, key=rank)]


class Growth:
    """Whether a cluster still grows: what nobody says shows in what it does when it is asked.

    One that does not start a machine for what waits is as large as it may be. To go on asking
    would keep workers waiting for devices that other runs should have.
    """

    def __init__(self) -> None:
        self._devices = 0.0
        self._asked_s: float | None = None
        self._full_until_s = -math.inf

    def observe(self, devices: float, runners: int, now_s: float) -> None:
        """Take in how many devices there are, and how many runners were asked for."""
        if devices > self._devices or runners <= devices:
            self._asked_s = None
        if runners > devices:
            self._asked_s = now_s if self._asked_s is None else self._asked_s
            if devices > 0 and now_s - self._asked_s >= _PATIENCE_S:
                self._full_until_s = now_s + _FULL_S
                self._asked_s = None
        self._devices = devices

    def goes_on(self, now_s: float) -> bool:
        """Whether it is worth asking for more."""
        return now_s >= self._full_until_s


class Reserve:
    """Keeps workers a while after they were needed, where there is room for them.

    A need that goes up and down does not start and stop workers each time, nor machines.
    """

    def __init__(self) -> None:
        self._needed: deque[tuple[float, WorkerCounts]] = deque()

    def keep(self, needed: WorkerCounts, fits: WorkerCounts, now_s: float) -> WorkerCounts:
        """The workers there should be: those that are needed now, and those that were a while ago
        and fit in."""
        self._needed.append((now_s, needed))
        while now_s - self._needed[0][0] >= _LET_GO_S:
            self._needed.popleft()
        lately = _each(max, *(worker_counts for _, worker_counts in self._needed))
        return _each(max, needed, _each(min, lately, fits))


def _each(pick: Callable[[Iterable[int]], int], *counts: WorkerCounts) -> WorkerCounts:
    """The crew of what is picked for each kind of worker."""
    return WorkerCounts(*(pick(numbers) for numbers in zip(*map(astuple, counts), strict=True)))
