"""The targets of a cluster's machines, asked of the machines that would measure."""

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

from cluster.app.driver.device_wait import Wait, machines_for
from cluster.scaling.scaling_policy import Node
from cluster.search.naming import device_name
from tuner.errors import TunerError, first_line
from tuner.request.target_text import kind_alone

_log = logging.getLogger(__name__)

_ASK_S = 120.0
"""The time in which the first machine must answer: it may have to import TVM first."""
_LATER_S = 60.0
"""The further time for the other machines after the first answer: a busy machine takes long to
import TVM, and a machine that is left out is not tuned for. Ray reports lost machines at once."""
_STEP_S = 0.5
"""The interval at which a wait checks whether it was stopped."""
_ASKED = 16
"""The most machines with the same resources that are asked: more would say the same."""


@dataclass(frozen=True, slots=True)
class Device:
    """A kind of device that kernels are compiled for and measured on.

    Attributes:
        target: canonical JSON of its target.
        fingerprint: fingerprint of the machines that measure.
    """

    target: str
    fingerprint: str

    @property
    def name(self) -> str:
        """The device's name for folders and labels."""
        return device_name(self.fingerprint)


@dataclass(frozen=True, slots=True)
class _Answer:
    """A machine's answer: its device, or why it does not have the one asked for."""

    device: Device | None
    refused: Exception | None = None


def devices_on_cluster(target: str, wait: Wait) -> tuple[Device, ...]:
    """The devices of a cluster for a user's target; see `spaces.targets.target.resolve_target`.

    A kind (`llvm`, `cuda`, with marks as of fast math) stands for each different device of that
    kind that the cluster has at the moment, the most frequent first; where it has none yet, for
    that of the first machine that joins. `auto` is one of the two kinds, see `machines_for`. Any
    other target is one target; if several different devices fit it, the most frequent is taken.

    Args:
        wait: rules of waiting for a machine with such a device, where there is none yet.

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
    return found if kind_alone(target) else found[:1]


def some_of_each(nodes: Sequence[Node]) -> list[Node]:
    """Machines that stay, at most `_ASKED` of those with equal resources."""
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
    """The answers of those machines that answer in time, at least one. Without machines, Ray
    chooses one to ask.

    Raises:
        TunerError: no machine answers.
        KeyboardInterrupt: `stop` was set.
    """
    import ray
    from ray.exceptions import RayError
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    there = (NodeAffinitySchedulingStrategy(node.id, soft=False) for node in machines)
    places: list[dict[str, Any]] = [{"scheduling_strategy": place} for place in there]
    # Asking takes no resources, since other runs may have taken all devices.
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
    """The references that are ready, once `number` of them are or `limit_s` has passed.

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
    """Answer on the machine that is asked."""
    from spaces.targets.target import (
        device_fingerprint,
        find_backend,
        fits_here,
        resolve_target,
    )

    visible = find_backend(text).visible
    if visible and not os.environ.get(visible):
        os.environ[visible] = "0"  # Ray hides devices from a task that takes none
    try:
        target = resolve_target(text)
        fingerprint = device_fingerprint(target)
    except TunerError as error:
        return _Answer(None, error)
    if not fits_here(target):
        return _Answer(None, TunerError(f"--target {text}: the cluster has {fingerprint}"))
    return _Answer(Device(target, fingerprint))
