"""The number of workers of each kind that a cluster should have. Pure.

The cluster is looked at again and again while a run goes on: machines that join are put to work,
machines that will leave get no more of it. A runner takes one device: a GPU, or for kernels on CPUs
the right to time them on a machine (Ray's custom resource `measure`). Builders and space workers
share the CPUs. Where a cluster can grow, more workers are requested than it has room for: Ray keeps
these waiting, and its autoscaler starts machines for them, up to its limit. On such a cluster no
more workers are kept than the work that is left justifies: a machine without workers is taken back.
Runs that share a cluster each take an equal part of it.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass, field
from statistics import median

_TRIALS_PER_RUNNER = 32
"""The number of trials that justifies a further runner."""
_TRIALS_PER_BUILDER = 8
"""The number of trials that justifies a further builder, however many a runner could use: it takes
longer to start a machine than to build a few."""
_CPUS_PER_SPACE_WORKER = 4
LEAST_BUILDERS = 2
"""The builders that keep one runner busy, where nothing is known of how long both take."""
_MOST_BUILDERS_PER_RUNNER = 16
"""Further builders would build candidates that are out of date by the time they are measured,
unless a measurement takes that much less than a build."""
_MOST_RATIO = 64
_RATIO_OF = 64
"""The last builds and measurements that tell the ratio of their times, and the least that do."""
_RATIO_OF_AT_LEAST = 8
_PATIENCE_S = 180.0
"""The time in which a cluster that grows should have started a machine."""
_FULL_S = 900.0
"""The time for which a cluster that started none is assumed to be at its largest size."""
_LET_GO_S = 30.0
"""The time for which workers are kept after they were needed: they may be needed again."""
_HEAD = "node:__internal_head__"
"""Ray's name of a resource that only the head has."""


@dataclass(frozen=True, slots=True)
class Node:
    """A machine of the cluster.

    Attributes:
        resources: amounts of its resources, by Ray's names.
        leaves_in_s: seconds until it will be gone; None where it is not known to leave.
    """

    id: str
    resources: Mapping[str, float] = field(default_factory=dict)
    leaves_in_s: float | None = None


@dataclass(frozen=True, slots=True)
class Cluster:
    """The machines of a cluster.

    Attributes:
        grows: whether it starts machines for waiting workers and takes back unused machines; its
            largest size is not known.
        full: whether it starts no machine at the moment, whatever waits.
    """

    nodes: Sequence[Node] = ()
    grows: bool = False
    full: bool = False


@dataclass(frozen=True, slots=True)
class Share:
    """A run's share of a resource: it is number `place` of `runs` runs that share it."""

    runs: int = 1
    place: int = 0

    def of(self, number: int) -> int:
        """The run's part of `number` units: an equal part, and one of the remainder for each of the
        first runs."""
        return number // self.runs + (self.place < number % self.runs)


@dataclass(frozen=True, slots=True)
class Demand:
    """The resources that a run would use.

    Attributes:
        device: Ray's name of the resource that a runner takes.
        trials_left: trials still to be measured, re-timings included.
        devices: the most devices that the user allows; None is all that can be had.
        builders: those that keep one runner busy: the ratio of the time of a build to that of a
            measurement. A CPU's kernel takes about as long to build as to measure; nvcc takes
            seconds, and a GPU some hundredths of one.
        of_devices: its share of the devices among the runs that measure on such devices.
        of_cpus: its share of the CPUs among all runs.
    """

    device: str
    trials_left: int
    devices: int | None = None
    builders: int = LEAST_BUILDERS
    of_devices: Share = Share()
    of_cpus: Share = Share()


@dataclass(frozen=True, slots=True)
class WorkerCounts:
    """A number of workers of each kind."""

    runners: int
    builders: int
    space_workers: int


def amount(nodes: Iterable[Node], resource: str) -> float:
    """The total of a resource over the machines that stay."""
    return sum(n.resources.get(resource, 0.0) for n in nodes if n.leaves_in_s is None)


def worker_counts(cluster: Cluster, demand: Demand) -> WorkerCounts:
    """The workers that a cluster should have now.

    Returns:
        At least one of each kind, even where there is no room for it yet.
    """
    runners = demand.of_devices.of(int(amount(cluster.nodes, demand.device)))
    cpus = demand.of_cpus.of(int(amount(cluster.nodes, "CPU")))
    if cluster.grows:
        most = runners if cluster.full else 2 * runners + 1
        runners = min(most, math.ceil(demand.trials_left / _TRIALS_PER_RUNNER))
        cpus = min(cpus, math.ceil(demand.trials_left * demand.builders / _TRIALS_PER_RUNNER))
    if demand.devices is not None:
        runners = min(runners, demand.devices)
    runners = max(1, runners)
    builders = cpus
    if cluster.grows and not cluster.full:
        builders = max(builders, demand.builders * runners)
    most = max(_MOST_BUILDERS_PER_RUNNER, demand.builders) * runners
    if cluster.grows:
        worth = math.ceil(demand.trials_left / _TRIALS_PER_BUILDER)
        most = min(most, max(LEAST_BUILDERS, worth))
    return WorkerCounts(
        runners=runners,
        builders=max(1, min(builders, most)),
        space_workers=max(1, math.ceil(cpus / _CPUS_PER_SPACE_WORKER)),
    )


def keeping_order(nodes: Sequence[Node], demand: Demand, runners: int) -> list[str]:
    """Machines in the order in which they keep their workers when there are too many workers.

    First the head, which stays anyway, and as many machines as the runners need; then machines that
    only build; last the other machines with devices. Workers of all kinds then leave the same
    machines, so that these can be taken back.
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


class BuildRatio:
    """The builders that keep one runner busy, by the times that the last trials took."""

    def __init__(self) -> None:
        self._builds_s: deque[float] = deque(maxlen=_RATIO_OF)
        self._runs_s: deque[float] = deque(maxlen=_RATIO_OF)

    def built(self, build_s: float) -> None:
        """Take in the seconds of a build."""
        self._builds_s.append(build_s)

    def ran(self, run_s: float) -> None:
        """Take in the seconds that a runner worked on a trial."""
        self._runs_s.append(run_s)

    @property
    def builders(self) -> int:
        """At least as many as are assumed where nothing is known."""
        known = min(len(self._builds_s), len(self._runs_s))
        if known < _RATIO_OF_AT_LEAST or not median(self._runs_s) > 0:
            return LEAST_BUILDERS
        ratio = math.ceil(median(self._builds_s) / median(self._runs_s))
        return max(LEAST_BUILDERS, min(ratio, _MOST_RATIO))


class Growth:
    """Whether a cluster still grows, judged by whether it starts machines that are asked for.

    A cluster that starts no machine for waiting workers is as large as it may be. To go on asking
    would keep workers waiting for devices that other runs should have.
    """

    def __init__(self) -> None:
        self._devices = 0.0
        self._asked_s: float | None = None
        self._full_until_s = -math.inf

    def observe(self, devices: float, runners: int, now_s: float) -> None:
        """Take in the number of devices there are, and of runners that were asked for."""
        if devices > self._devices or runners <= devices:
            self._asked_s = None
        if runners > devices:
            self._asked_s = now_s if self._asked_s is None else self._asked_s
            if devices > 0 and now_s - self._asked_s >= _PATIENCE_S:
                self._full_until_s = now_s + _FULL_S
                self._asked_s = None
        self._devices = devices

    def goes_on(self, now_s: float) -> bool:
        """Whether to ask for more machines than there are."""
        return now_s >= self._full_until_s


class Reserve:
    """Keeps workers for a while after they were needed, where there is room for them.

    So a need that goes up and down does not start and stop workers and machines each time.
    """

    def __init__(self) -> None:
        self._needed: deque[tuple[float, WorkerCounts]] = deque()

    def keep(self, needed: WorkerCounts, fits: WorkerCounts, now_s: float) -> WorkerCounts:
        """The workers there should be: those needed now, and those needed lately as far as they
        fit."""
        self._needed.append((now_s, needed))
        while now_s - self._needed[0][0] >= _LET_GO_S:
            self._needed.popleft()
        lately = _each(max, *(worker_counts for _, worker_counts in self._needed))
        return _each(max, needed, _each(min, lately, fits))


def _each(pick: Callable[[Iterable[int]], int], *counts: WorkerCounts) -> WorkerCounts:
    """Apply `pick` to the counts of each kind of worker."""
    return WorkerCounts(*(pick(numbers) for numbers in zip(*map(astuple, counts), strict=True)))
