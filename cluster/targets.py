"""Which target a cluster's machines have, asked of a machine that would measure."""

from __future__ import annotations

import os
from typing import Any

from cluster.fleet import Cluster, amount
from tuner.errors import TunerError

_ASK_S = 120.0
"""What a machine that is there gets to answer: it may have to import TVM first."""


def resolve_on_cluster(text: str, cluster: Cluster, *, wait_s: float) -> str:
    """Canonical JSON of what a user asked for; see `spaces.target.resolve_target`.

    `auto` is `cuda` where the cluster has a GPU at the moment.

    Args:
        wait_s: how long to wait for a machine with such a device, where none is there yet.

    Raises:
        UsageError: malformed JSON, an unknown kind or option.
        TunerError: no machine has such a device, none came in time, or none answers.
    """
    import ray
    from ray.exceptions import GetTimeoutError, RayError

    if text == "auto":
        text = "cuda" if amount(cluster.nodes, "GPU") >= 1 else "llvm"
    options = _place(text, cluster)
    here = "num_gpus" not in options
    ref = ray.remote(max_retries=3)(_resolve).options(**options).remote(text)
    timeout_s = _ASK_S if here else wait_s
    try:
        return str(ray.get(ref, timeout=timeout_s))
    except GetTimeoutError as error:
        ray.cancel(ref, force=True)
        what = "no machine answered" if here else "no machine with a CUDA device joined"
        raise TunerError(f"--target {text}: {what} within {timeout_s:g} s") from error
    except RayError as error:
        cause = getattr(error, "cause", None)
        if isinstance(cause, TunerError):
            raise cause from None
        first = (str(error).strip().splitlines() or ["unknown"])[0]
        raise TunerError(f"--target {text}: no machine could be asked: {first[:200]}") from error


def _place(text: str, cluster: Cluster) -> dict[str, Any]:
    """Where the question is put: options of a Ray task."""
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    from actors.ray_actors import MEASURE

    resource = "GPU" if _is_cuda(text) else MEASURE
    for node in cluster.nodes:
        if node.resources.get(resource, 0.0) >= 1 and node.leaves_in_s is None:
            # Devices may all be taken by other runs: to be asked costs a machine nothing.
            there = NodeAffinitySchedulingStrategy(node.id, soft=False)
            return {"num_cpus": 0, "scheduling_strategy": there}
    if resource == "GPU":
        return {"num_cpus": 0, "num_gpus": 1}  # for an autoscaler to see
    return {"num_cpus": 0}


def _is_cuda(text: str) -> bool:
    return text.startswith(("cuda", "nvidia/")) or '"cuda"' in text


def _resolve(text: str) -> str:
    """On the machine that is asked."""
    from spaces.target import resolve_target

    if _is_cuda(text) and not os.environ.get("CUDA_VISIBLE_DEVICES"):
        os.environ["CUDA_VISIBLE_DEVICES"] = "0"  # hidden by Ray from who takes none
    return resolve_target(text)
