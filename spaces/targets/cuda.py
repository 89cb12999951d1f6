"""CUDA devices, as `spaces.targets.backends.Devices` asks for them."""

from __future__ import annotations

import json
from typing import Any

from spaces.targets.config import Config, plain
from spaces.targets.host import Host
from tuner.errors import TunerError

# What every CUDA device since sm_50 allows a block. A bare target says nothing of it, and the
# schedule rules cannot do without.
_LIMITS = {
    "max_num_threads": 1024,
    "max_threads_per_block": 1024,
    "max_shared_memory_per_block": 49152,
    "registers_per_block": 65536,
    "thread_warp_size": 32,
}
FILLED_IN = frozenset(_LIMITS)


def present() -> bool:
    """Whether this machine has a CUDA device that TVM can use."""
    return bool(device().exist)


def detected(cores: int | None, host: Host | None) -> Config:
    """This machine's first device, which says its limits itself.

    Raises:
        TunerError: it has none.
    """
    if not present():
        raise TunerError(
            "this machine has no CUDA device; to tune for one elsewhere, give --target "
            '\'{"kind":"cuda","arch":"sm_90"}\''
        )
    from tvm.target import Target

    return plain(Target.from_device(device()))


def refuse_incomplete(config: Config) -> None:
    """Without an architecture TVM would take that of a device.

    Raises:
        TunerError: it is left out, and there is none here.
    """
    if "arch" not in config and not present():
        raise TunerError(
            'the cuda target names no "arch" (such as "sm_90"), and this machine has no device '
            "to ask"
        )


def completed(config: Config, cores: int | None, host: Host | None) -> Config:
    """With the limits that all devices keep, where the target says nothing of them."""
    return {**_LIMITS, **config}


def missing(target_json: str, host: Host | None) -> tuple[str, ...]:
    """Nothing: the code does not run on the machine's CPU."""
    return ()


def fits(target_json: str) -> bool:
    """Whether there is a device here, of the target's architecture where it says one."""
    if not present():
        return False
    found = str(device().compute_version).replace(".", "")
    digits = "".join(c for c in str(json.loads(target_json).get("arch", "")) if c.isdigit())
    return digits in ("", found)


def fingerprint(target_json: str, host: Host | None) -> str:
    """The device's name; where there is none here, the architecture that was asked for."""
    if not present():
        return f"cuda {json.loads(target_json).get('arch', '')}".strip()
    here = device()
    return f"cuda {here.device_name} cc={here.compute_version}"


def former_fingerprint(target_json: str) -> str:
    """It never was another."""
    return fingerprint(target_json, None)


def alike(one: str, other: str) -> bool:
    """Unknown, of unlike targets."""
    return False


def device() -> Any:
    """TVM's first CUDA device, which need not exist."""
    import tvm

    return tvm.cuda()
