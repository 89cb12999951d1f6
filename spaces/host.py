"""This machine's CPU as something to compile for, and how it is told from others."""

from __future__ import annotations

import hashlib
import json
from functools import lru_cache
from pathlib import Path
from typing import Any

from spaces import names
from spaces.cpu_caches import caches_here, caches_text
from tuner.cpu_features import Processor, lacking, of_kernels, processor

_BY_VENDOR = {
    "intel": (
        *("nehalem", "westmere", "sandybridge", "ivybridge", "haswell", "broadwell", "skylake"),
        *("skylake-avx512", "cascadelake", "cooperlake", "cannonlake", "icelake-client"),
        *("icelake-server", "tigerlake", "rocketlake", "sapphirerapids", "graniterapids"),
        *("graniterapids-d", "diamondrapids", "tremont", "gracemont", "alderlake", "arrowlake"),
        *("lunarlake", "pantherlake", "sierraforest", "clearwaterforest"),
    ),
    "amd": ("znver1", "znver2", "znver3", "znver4", "znver5"),
}
"""What a CPU may be whose model is hidden, in LLVM's words, oldest first. Only for x86: elsewhere
LLVM reports too few features to tell one by them, and hypervisors pass the model through."""
_CPUINFO = Path("/proc/cpuinfo")


def host_config() -> dict[str, Any]:
    """This machine's CPU as part of a TVM target: `mcpu`, and `mattr` where that is not all."""
    found = host_processor()
    return {"mcpu": found.mcpu} | ({"mattr": list(found.mattr)} if found.mattr else {})


@lru_cache(maxsize=1)
def host_processor() -> Processor:
    """What to compile for on this machine."""
    return processor(names.host_cpu(), names.host_features(), _believed, _candidates())


def lacking_here(target_json: str) -> tuple[str, ...]:
    """Features that code for an llvm target uses and that this machine does not have."""
    from tvm.target import Target

    config = json.loads(target_json)
    missed = lacking(names.cpu_features(Target(config)), names.host_features())
    if "mattr" in config:
        return missed
    # Targets of earlier versions say nothing of what a hypervisor hides. Their runs go on: no
    # compiler uses the tile registers by itself.
    return tuple(feature for feature in missed if not feature.startswith("amx"))


def host_name() -> str:
    """What kernels' timings depend on, for fingerprints: the CPU's own name where the system tells
    it, LLVM's name for its kind, and a hash of its features and caches."""
    facts = (*of_kernels(names.host_features()), caches_text(caches_here()))
    digest = hashlib.sha256(" ".join(facts).encode()).hexdigest()[:8]
    return _called(f"{host_processor().mcpu} {digest}")


def former_host_name() -> str:
    """What fingerprints said of this machine's CPU before they told of its features."""
    return _called(names.host_cpu())


def _called(kind: str, cpuinfo: Path = _CPUINFO) -> str:
    try:
        lines = cpuinfo.read_text().splitlines()
    except OSError:
        lines = []
    model = next((n.split(":", 1)[1].strip() for n in lines if n.startswith("model name")), "")
    return f"{model} ({kind})" if model else kind


def _candidates() -> tuple[str, ...]:
    triple = names.host_triple()
    if not triple.startswith("x86_64"):
        return ()
    every = tuple(name for known in _BY_VENDOR.values() for name in known)
    some = _BY_VENDOR.get(names.host_vendor(), every)
    return tuple(name for name in some if names.is_known_cpu(name, triple))


def _believed(mcpu: str) -> frozenset[str]:
    from tvm.target import Target

    return names.cpu_features(Target({"kind": "llvm", "mcpu": mcpu}))
