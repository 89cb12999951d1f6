"""A machine's CPU: the target to compile for, and its name in fingerprints."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from spaces.ir import tvm_compat
from spaces.targets.cpu_caches import SYSFS, cache_bytes, caches_text
from spaces.targets.cpu_features import Processor, Reported, lacking, of_kernels, processor

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
"""LLVM's names of the CPUs that a hidden model may be, oldest first. Only for x86: elsewhere LLVM
reports too few features to tell CPUs by them, and hypervisors pass the model through."""
_CPUINFO = Path("/proc/cpuinfo")


@dataclass(frozen=True, slots=True)
class Host:
    """The facts that a machine reports about its CPU.

    Attributes:
        named: LLVM's guess of its name, by its model number.
        reported: its features, see `spaces.targets.cpu_features.Reported`.
        caches: bytes of its data caches by level.
        triple: LLVM's triple of the machine.
        model: its own name, where the system tells it.
        vendor: the maker of an x86: `intel`, `amd` or another word.
    """

    named: str
    reported: Reported
    caches: Mapping[int, int]
    triple: str
    model: str = ""
    vendor: str = ""

    def processor(self) -> Processor:
        """The processor to compile for."""

        def features(cpu: str, more: tuple[str, ...]) -> frozenset[str]:
            return self._used({"kind": "llvm", "mcpu": cpu} | ({"mattr": [*more]} if more else {}))

        return processor(self.named, self.reported, features, self._others())

    def config(self) -> dict[str, Any]:
        """The processor as part of a TVM target: `mcpu`, and `mattr` where features differ."""
        found = self.processor()
        return {"mcpu": found.mcpu} | ({"mattr": list(found.mattr)} if found.mattr else {})

    def lacks(self, target_json: str) -> tuple[str, ...]:
        """Features that code for an llvm target uses and that this CPU does not have."""
        config = json.loads(target_json)
        missed = lacking(self._used(config), self.reported)
        if "mattr" in config:
            return missed
        # Targets that name only a CPU do not tell which features a hypervisor hides. Their runs go
        # on: no compiler uses the tile registers by itself.
        return tuple(feature for feature in missed if not feature.startswith("amx"))

    @property
    def name(self) -> str:
        """Name for fingerprints, of all that timings depend on: its names, features and caches.

        Features and caches are hashed, since such names are those of folders, too.
        """
        facts = (*of_kernels(self.reported), caches_text(self.caches))
        digest = hashlib.sha256(" ".join(facts).encode()).hexdigest()[:8]
        return self._called(f"{self.processor().mcpu} {digest}")

    def _used(self, config: Mapping[str, Any]) -> frozenset[str]:
        """The features that LLVM uses in code for a target on such a machine."""
        from tvm.target import Target

        return tvm_compat.cpu_features(Target({"mtriple": self.triple, **config}))

    def _called(self, kind: str) -> str:
        return f"{self.model} ({kind})" if self.model else kind

    def _others(self) -> tuple[str, ...]:
        if not self.triple.startswith("x86_64"):
            return ()
        every = tuple(name for known in _BY_VENDOR.values() for name in known)
        some = _BY_VENDOR.get(self.vendor, every)
        return tuple(name for name in some if tvm_compat.is_known_cpu(name, self.triple))


@lru_cache(maxsize=1)
def this_host() -> Host:
    """The machine that this process runs on."""
    triple = tvm_compat.host_triple()
    return Host(
        named=tvm_compat.host_cpu(),
        reported=tvm_compat.host_features(),
        caches=cache_bytes(SYSFS),
        triple=triple,
        model=cpu_model(_CPUINFO),
        vendor=tvm_compat.host_vendor() if triple.startswith("x86_64") else "",
    )


def cpu_model(cpuinfo: Path) -> str:
    """The CPU's own name where the system tells it, else an empty text."""
    try:
        lines = cpuinfo.read_text().splitlines()
    except OSError:
        return ""
    return next((n.split(":", 1)[1].strip() for n in lines if n.startswith("model name")), "")
