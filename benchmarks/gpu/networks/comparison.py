"""A network tuned for a target, and run on the emulated device beside PyTorch."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.gpu.networks.networks import NETWORKS, Network, Sizes
from spaces.codegen.executable import Array, LoadedModel, compile_module
from spaces.deploy.bench import errors
from spaces.ir.element_types import numpy_dtype
from spaces.targets.target import emulate_target

_ALLOWED = 3.0
"""How many times as far from float32 as PyTorch in halves a right result is, at most."""


def compare(name: str, arch: str, run: Path, *, trials: int, only: str = "*") -> dict[str, Any]:
    """Tune a network with a budget of trials, and compare it at all of its sizes.

    Args:
        arch: of NVIDIA's, such as `sm_90a`.
        run: the folder of the run.
        trials: of the whole run.
        only: of its tasks, as `--only`.

    Returns:
        What was tuned and how long it took, and for each of its sizes the errors.
    """
    import tuner

    network = NETWORKS[name]
    small, wide = network.draw()
    target = f'{{"kind":"cuda","arch":"{arch}"}}'
    started_s = time.perf_counter()
    result = tuner.tune(
        network.export(small),
        dims={dim: [*sizes] for dim, sizes in network.dims.items()},
        target=target,
        measure="emulated",
        precision=network.precision,
        trials=trials,
        only=only,
        run=run,
    )
    tuned_s = time.perf_counter() - started_s
    compiled = compile_module(result.apply(), emulate_target(target))
    rows = [_row(network, sizes, small, wide, compiled) for sizes in network.sizes]
    return {
        "network": name,
        "arch": arch,
        "tasks": len(result.best),
        "tuned": sorted(row["name"] for row in result.best if row["trace"] or row["kernel_set"]),
        "trials": trials,
        "tuned_s": tuned_s,
        "sizes": rows,
        "right": all(row["right"] for row in rows),
    }


def _row(
    network: Network, sizes: Sizes, small: torch.nn.Module, wide: torch.nn.Module, compiled: Any
) -> dict[str, Any]:
    feeds = network.inputs(sizes)
    with torch.no_grad():
        exact = _arrays(wide(*(x.float() if x.is_floating_point() else x for x in feeds)))
        theirs = _arrays(small(*feeds))
    ours = [
        a.astype("float32") for a in LoadedModel(compiled, [_given(x) for x in feeds]).outputs()
    ]
    error, their_error = (errors(found, exact)[1] for found in (ours, theirs))
    least = torch.finfo(network.dtype).eps
    return {
        "sizes": list(sizes),
        "error": error,
        "error_of_torch": their_error,
        "right": error <= _ALLOWED * max(their_error, least),
    }


def _arrays(found: torch.Tensor | Sequence[torch.Tensor]) -> list[Array]:
    tensors = [found] if isinstance(found, torch.Tensor) else found
    return [tensor.float().numpy() for tensor in tensors]


def _given(x: torch.Tensor) -> Array:
    if x.dtype != torch.bfloat16:
        return np.asarray(x.numpy())
    return np.asarray(x.float().numpy().astype(numpy_dtype("bfloat16")))
