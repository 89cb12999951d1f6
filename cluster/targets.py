"""Which targets a cluster's machines have, asked of machines that would measure."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from cluster.fleet import Cluster, Node, amount
from cluster.search_names import device_name
from tuner.errors import TunerError

_ASK_S = 120.0
"""What a machine that is there gets to answer: it may have to import TVM first."""
_LATER_S = 20.0
"""What the others get beyond the first that answers."""
_ASKED = 16
"""Machines with the same resources that are asked, at most: more would say the same."""
_KINDS = ("auto", "llvm", "cuda")


@dataclass(frozen=True, slots=True)
class Device:
    """What kernels are compiled for and measured on.

    Attributes:
        target: canonical JSON.
        fingerprint: of the machines that measure.
    """

    target: str
    fingerprint: str

    @property
    def name(self) -> str:
        """For folders and labels."""
        return device_name(self.fingerprint)


@dataclass(frozen=True, slots=True)
class _Answer:
    """What a machine says: its device, or why it has none such."""

    device: Device | None
    refused: Exception | None = None


def devices_on_cluster(text: str, cluster: Cluster, *, wait_s: float) -> tuple[Device, ...]:
    """What a user's target is on a cluster's machines; see `spaces.target.resolve_target`.

    A kind (`llvm`, `cuda`) is each unlike device of that kind that the cluster has at the moment,
    the most frequent first; `auto` is `cuda` where it has a GPU. Anything more exact is one target,
    and of unlike devices that fit it the most frequent.

    Args:
        wait_s: how long to wait for a machine with such a device, where none is there yet.

    Raises:
        UsageError: malformed JSON, an unknown kind or option.
        TunerError: no machine has such a device, none came in time, or none answers.
    """
    if text == "auto":
        text = "cuda" if amount(cluster.nodes, "GPU") >= 1 else "llvm"
    answers = _ask(text, _places(text, cluster), wait_s)
    counted = Counter(answer.device for answer in answers if answer.device is not None)
    if not counted:
        raise next(answer.refused for answer in answers if answer.refused is not None)
    found = tuple(device for device, _ in counted.most_common())
    return found if text in _KINDS else found[:1]


def _places(text: str, cluster: Cluster) -> list[dict[str, Any]]:
    """Where the question is put: options of a Ray task for each machine that is asked."""
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    from actors.ray_actors import MEASURE

    resource = "GPU" if _is_cuda(text) else MEASURE
    asked = some_of_each([n for n in cluster.nodes if n.resources.get(resource, 0.0) >= 1])
    if asked:
        # Devices may all be taken by other runs: to be asked costs a machine nothing.
        there = (NodeAffinitySchedulingStrategy(node.id, soft=False) for node in asked)
        return [{"num_cpus": 0, "scheduling_strategy": place} for place in there]
    if resource == "GPU":
        return [{"num_cpus": 0, "num_gpus": 1}]  # for an autoscaler to see
    return [{"num_cpus": 0}]


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


def _ask(text: str, places: Sequence[dict[str, Any]], wait_s: float) -> list[_Answer]:
    """What machines say that answer in time; at least one does.

    Raises:
        TunerError: none does.
    """
    import ray
    from ray.exceptions import RayError

    here = all("num_gpus" not in options for options in places)
    refs = [ray.remote(max_retries=3)(_resolve).options(**o).remote(text) for o in places]
    timeout_s = _ASK_S if here else wait_s
    ray.wait(refs, num_returns=1, timeout=timeout_s)
    ready, late = ray.wait(refs, num_returns=len(refs), timeout=_LATER_S)
    for ref in late:
        ray.cancel(ref, force=True)
    answers, trouble = [], ""
    for ref in ready:
        try:
            answers.append(ray.get(ref, timeout=_ASK_S))
        except RayError as error:
            trouble = (str(error).strip().splitlines() or ["unknown"])[0][:200]
    if answers:
        return answers
    if trouble:
        raise TunerError(f"--target {text}: no machine could be asked: {trouble}")
    what = "no machine answered" if here else "no machine with a CUDA device joined"
    raise TunerError(f"--target {text}: {what} within {timeout_s:g} s")


def _is_cuda(text: str) -> bool:
    return text.startswith(("cuda", "nvidia/")) or '"cuda"' in text


def _resolve(text: str) -> _Answer:
    """On the machine that is asked."""
    from spaces.target import device_fingerprint, fits_here, resolve_target

    if _is_cuda(text) and not os.environ.get("CUDA_VISIBLE_DEVICES"):
        os.environ["CUDA_VISIBLE_DEVICES"] = "0"  # hidden by Ray from who takes none
    try:
        target = resolve_target(text)
        fingerprint = device_fingerprint(target)
    except TunerError as error:
        return _Answer(None, error)
    if not fits_here(target):
        return _Answer(None, TunerError(f"--target {text}: the cluster has {fingerprint}"))
    return _Answer(Device(target, fingerprint))
