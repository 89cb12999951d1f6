"""The machines that measure for a target: resolved from the cluster as it is, or waited for."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from typing import Protocol

from cluster.scaling.scaling_policy import Cluster, Node, amount
from spaces.targets.backends import BACKENDS, GPU
from spaces.targets.target import find_backend
from tuner.errors import TunerError
from tuner.request.options import DEVICE_WAIT_S

_LOOK_EVERY_S = 1.0


class Autoscaler(Protocol):
    """Starts machines for requests that wait, as Ray's autoscaler does."""

    def asked(self, resource: str) -> AbstractContextManager[None]:
        """Request one unit of a resource for the length of a `with` block."""

    def in_vain(self, resource: str) -> bool:
        """Whether the autoscaler reports that it can start no machine with a resource."""


class NoMachine(TunerError):
    """No machine has the device that is asked for, and no autoscaler starts one."""


@dataclass(frozen=True, slots=True)
class Wait:
    """The rules of waiting for machines.

    Attributes:
        look: gives the cluster as it is now.
        limit_s: the user's `--device-wait`; None is `DEVICE_WAIT_S` if the cluster starts machines,
            else no wait. A limit that the user gave applies even where nothing starts machines:
            people add machines by hand, and a fleet at its largest size may make room.
        stop: set it to end the wait.
    """

    look: Callable[[], Cluster]
    autoscaler: Autoscaler
    limit_s: float | None
    stop: threading.Event
    clock: Callable[[], float] = time.monotonic


def machines_for(target: str, wait: Wait) -> tuple[str, Sequence[Node]]:
    """The machines that could measure for a target.

    `auto` is `cuda` where the cluster has a GPU or starts a machine with one, else `llvm`.

    Returns:
        The target, which is not `auto` any more, and its machines; no machines for a CPU in a
        cluster of fixed size without the resource for timing kernels, where any machine will do.

    Raises:
        UsageError: malformed JSON, or an unknown kind.
        TunerError: there are none, and none is started or none came in time.
        KeyboardInterrupt: the wait was stopped.
    """
    patient = wait.limit_s is not None
    if target == "auto":
        for row in reversed(BACKENDS):
            if row.everywhere:
                target = row.kind
                break
            with suppress(NoMachine):
                return row.kind, _machines_with(row.resource, wait, patient=False)
    row = find_backend(target)
    if row.everywhere:
        cluster = wait.look()
        if not (cluster.grows or _having(row.resource, cluster)):
            return target, ()
    return target, _machines_with(row.resource, wait, patient=patient)


def _machines_with(resource: str, wait: Wait, *, patient: bool) -> Sequence[Node]:
    """The machines that have a resource and stay; where there are none, the first that join.

    Args:
        patient: wait even where nothing starts a machine.

    Raises:
        NoMachine: there is none, and none is started.
    """
    cluster = wait.look()
    if found := _having(resource, cluster):
        return found
    what = "a GPU" if resource == GPU else f"the resource `{resource}`"
    none = NoMachine(
        f"the cluster has no machine with {what} and starts none; --device-wait 10m waits for one"
    )
    if not (cluster.grows or patient):
        raise none
    limit_s = DEVICE_WAIT_S if wait.limit_s is None else wait.limit_s
    until_s = wait.clock() + limit_s
    with wait.autoscaler.asked(resource):
        while wait.clock() < until_s:
            in_vain = wait.autoscaler.in_vain(resource)  # before the look: one may just have come
            if found := _having(resource, wait.look()):
                return found
            if in_vain and not patient:
                raise none
            if wait.stop.wait(_LOOK_EVERY_S):
                raise KeyboardInterrupt
    raise TunerError(f"no machine with {what} joined within {limit_s:g} s")


def _having(resource: str, cluster: Cluster) -> list[Node]:
    return [node for node in cluster.nodes if amount([node], resource) >= 1]
