"""Which targets a cluster's machines have, asked of machines that would measure."""

from __future__ import annotations

import json
import logging
import os
import threading
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from cluster.driver.device_wait import Wait, machines_for
from cluster.scaling.scaling_policy import Node
from cluster.search.naming import device_name
from tuner.checks import TARGET_KINDS
from tuner.errors import TunerError, first_line

_log = logging.getLogger(__name__)

_ASK_S = 120.0
"""What a machine that is there gets to answer: it may have to import TVM first."""
_LATER_S = 60.0
"""What the others get beyond the first that answers: a busy machine takes long to import TVM, and
one that is left out is not tuned for. Ray tells at once of those that are gone."""
_STEP_S = 0.5
"""So often a wait looks whether it was stopped."""
_ASKED = 16
"""Machines with the same resources that are asked, at most: more would say the same."""


@dataclass(frozen=True, slots=True)
class Device:
    """What kernels are compiled for and measured on.

    Attributes:
        target: canonical JSON.
        fingerprint: of the machines that measure.
        former: what the fingerprint was before it told of a CPU's features.
    """

    target: str
    fingerprint: str
    former: str = ""

    @property
    def name(self) -> str:
        """For folders and labels."""
        return device_name(self.fingerprint)

    @property
    def former_name(self) -> str:
        """What runs on this device were called before."""
        return device_name(self.former)


@dataclass(frozen=True, slots=True)
class _Answer:
    """What a machine says: its device, or why it has none such."""

    device: Device | None
    refused: Exception | None = None


def devices_on_cluster(target: str, wait: Wait) -> tuple[Device, ...]:
    """What a user's target is on a cluster's machines; see `spaces.targets.target.resolve_target`.

    A kind (`llvm`, `cuda`) is each unlike device of that kind that the cluster has at the moment,
    the most frequent first; where it has none yet, that of the first machine that comes. `auto` is
    one of the two, see `machines_for`. Anything more exact is one target, and of unlike devices
    that fit it the most frequent.

    Args:
        wait: for a machine with such a device, where none is there yet.

    Raises:
        UsageError: malformed JSON, an unknown kind or option.
        TunerError: no machine has such a device, none came in time, or none answers.
        KeyboardInterrupt: the wait was stopped.
    """
    target, machines = machines_for(target, wait)
    answers = _ask(target, some_of_each(machines), wait.stop)
    counted = Counter(answer.device for answer in answers if answer.device is not None)
    if not counted:
        raise next(answer.refused for answer in answers if answer.refused is not None)
    found = tuple(device for device, _ in counted.most_common())
    return found if target in TARGET_KINDS else found[:1]


def some_of_each(nodes: Sequence[Node]) -> list[Node]:
    """Machines that stay, `_ASKED` at most of those that look the same from outside."""
    seen: Counter[str] = Counter()
    chosen = []
    for node in nodes:
        # Ray names each machine, and its GPU's model, among its resources.
        looks = json.dumps({k: v for k, v in node.resources.items() if "node:" not in k})
        seen[looks] += 1
        if node.leaves_in_s is None and seen[looks] <= _ASKED:
            chosen.append(node)
    return chosen


def _ask(target: str, machines: Sequence[Node], stop: threading.Event) -> list[_Answer]:
    """What machines say that answer in time; at least one does. Of none, any is asked.

    Raises:
        TunerError: none does.
        KeyboardInterrupt: `stop` was set.
    """
    import ray
    from ray.exceptions import RayError
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    there = (NodeAffinitySchedulingStrategy(node.id, soft=False) for node in machines)
    places: list[dict[str, Any]] = [{"scheduling_strategy": place} for place in there]
    # Devices may all be taken by other runs: to be asked costs a machine nothing.
    question = ray.remote(num_cpus=0, max_retries=3)(_resolve)
    refs = [question.options(**place).remote(target) for place in places or [{}]]
    ready: Sequence[Any] = ()
    try:
        ready_of(refs, 1, _ASK_S, stop)
        ready = ready_of(refs, len(refs), _LATER_S, stop)
    finally:
        for ref in set(refs).difference(ready):
            ray.cancel(ref, force=True)
    answers, trouble = [], ""
    for ref in ready:
        try:
            answers.append(ray.get(ref, timeout=_ASK_S))
        except RayError as error:
            trouble = first_line(error)
    if len(answers) < len(refs):
        _log.warning(
            "%d of %d machines did not say what they are", len(refs) - len(answers), len(refs)
        )
    if answers:
        return answers
    if trouble:
        raise TunerError(f"--target {target}: no machine could be asked: {trouble}")
    raise TunerError(f"--target {target}: no machine answered within {_ASK_S:g} s")


def ready_of(
    refs: Sequence[Any], number: int, limit_s: float, stop: threading.Event
) -> Sequence[Any]:
    """Ray's references that are ready as soon as `number` of them are, or after a while.

    Raises:
        KeyboardInterrupt: `stop` was set.
    """
    import ray

    until_s = time.monotonic() + limit_s
    while True:
        ready, _ = ray.wait(list(refs), num_returns=number, timeout=_STEP_S)
        if len(ready) >= number or time.monotonic() >= until_s:
            return list(ready)
        if stop.is_set():
            raise KeyboardInterrupt


def _resolve(text: str) -> _Answer:
    """On the machine that is asked."""
    from spaces.targets.target import (
        asked_backend,
        device_fingerprint,
        fits_here,
        former_fingerprint,
        resolve_target,
    )

    visible = asked_backend(text).visible
    if visible and not os.environ.get(visible):
        os.environ[visible] = "0"  # hidden by Ray from who takes none
    try:
        target = resolve_target(text)
        fingerprint = device_fingerprint(target)
    except TunerError as error:
        return _Answer(None, error)
    if not fits_here(target):
        return _Answer(None, TunerError(f"--target {text}: the cluster has {fingerprint}"))
    return _Answer(Device(target, fingerprint, former_fingerprint(target)))
