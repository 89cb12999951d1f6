"""The emulated CUDA device, as `spaces.targets.backends.Devices` asks for it.

It is a CUDA target with a key of its own, and so another target than the device that it stands for:
nothing that was found on one is taken for found on the other.
"""

from __future__ import annotations

import json
from typing import Any

from spaces.targets import cuda
from spaces.targets.config import Config
from spaces.targets.host import Host
from tuner.errors import TunerError
from tuner.request.target_text import CUDA_KEYS, EMULATED

FILLED_IN = cuda.FILLED_IN


def emulated(config: Config) -> Config:
    """A CUDA target's options with the emulated device in the place of a real one."""
    return {**config, "keys": [*CUDA_KEYS, *sorted({*_marks(config), EMULATED})]}


def stands_for(config: Config) -> Config:
    """An emulated target's options, of the device that it stands for."""
    plain = {name: value for name, value in config.items() if name != "keys"}
    marks = sorted(_marks(config) - {EMULATED})
    return {**plain, "keys": [*CUDA_KEYS, *marks]} if marks else plain


def _marks(config: Config) -> set[str]:
    """The keys that not each CUDA target has."""
    return {*map(str, config.get("keys") or ())} - {*CUDA_KEYS}


def is_emulated(keys: Any) -> bool:
    """Whether the keys of a target, if it has any, are the emulated device's."""
    return EMULATED in (keys or ())


def present() -> bool:
    """True: it is asked for by name, and what it needs is said where it is missing."""
    return True


def detected(cores: int | None, host: Host | None) -> Config:
    """Refuse: there is nothing to detect.

    Raises:
        TunerError: always.
    """
    raise TunerError("the emulated device has no architecture of its own: name one to emulate")


def canonical(config: Config, tag: str) -> Config:
    """See `spaces.targets.cuda.canonical`."""
    return cuda.canonical(config, tag)


def refuse_incomplete(config: Config) -> None:
    """Refuse a target without an architecture.

    Raises:
        TunerError: it names none.
    """
    if "arch" not in config:
        raise TunerError(
            'the emulated device needs an "arch" (such as "sm_90") or a tag, such as '
            "--target nvidia/nvidia-h100"
        )


def completed(config: Config, cores: int | None, host: Host | None) -> Config:
    """See `spaces.targets.cuda.completed`; a device that is here is not asked."""
    return emulated(cuda.complete_as_usual(config))


def missing(target_json: str, host: Host | None) -> tuple[str, ...]:
    """Return nothing: what runs on the CPU is compiled for any."""
    return ()


def fits(target_json: str) -> bool:
    """True: each machine has it."""
    return True


def fingerprint(target_json: str, host: Host | None) -> str:
    """Its own, whatever the machine: its times come from a model."""
    return f"{EMULATED} {json.loads(target_json).get('arch', '')}".strip()


def alike(one: str, other: str) -> bool:
    """Return False, as nothing is known of unequal targets."""
    return False


def device() -> Any:
    """The CPU, where its tensors lie."""
    import tvm

    return tvm.cpu()
