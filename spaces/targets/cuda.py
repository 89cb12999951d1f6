"""CUDA devices, as `spaces.targets.backends.Devices` asks for them."""

from __future__ import annotations

import json
import re
from typing import Any

from spaces.ir.cuda_runtime import CUDART, why_no_runtime
from spaces.targets.config import Config, plain
from spaces.targets.gpu import REGISTERS, STATIC_SHARED_BYTES, THREADS, WARP, numbers_of
from spaces.targets.host import Host
from spaces.targets.nvidia.board import read_board
from spaces.targets.nvidia.driver import LIBRARY, read_device, why_no_device
from spaces.targets.nvidia.numbers import Numbers, architecture_of, numbers_of_tag
from tuner.errors import TunerError
from tuner.request.target_text import arithmetic_of, is_cold

_SUFFIX = re.compile(r"(?<=\d)[af]$")
_NO_DEVICE = (LIBRARY, "CUDA_ERROR_NO_DEVICE", "CUDA_ERROR_INVALID_DEVICE")
"""In what the driver and the loader say where there is no device."""
_LIMITS = {
    "max_num_threads": THREADS,
    "max_threads_per_block": THREADS,
    # What a kernel may declare, which is what TVM's checks and rules take it for.
    "max_shared_memory_per_block": STATIC_SHARED_BYTES,
    "registers_per_block": REGISTERS,
    "thread_warp_size": WARP,
}
"""Limits of a block on every device. A bare target does not name them, and the schedule rules need
them."""
FILLED_IN = frozenset({*_LIMITS, "l2_cache_size_bytes", "model"})


def present() -> bool:
    """Whether this machine has a CUDA device that TVM can use."""
    return not why_no_runtime() and bool(device().exist)


def why_absent() -> str:
    """Why TVM can use no CUDA device here, in one line that names the library that is missing, if
    one is; empty where it can."""
    if present():
        return ""
    return why_no_runtime() or why_no_device() or "TVM sees no device, though the driver shows one"


def why_unusable() -> str:
    """Why TVM cannot use a device that the driver shows; empty where it can, or where none is."""
    return "" if read_device() is None else why_absent()


def mend(why: str) -> str:
    """What helps against what `why_absent` said; empty where a machine simply has no device."""
    if CUDART in why:
        return "python -m pip install 'elastic-tuner[cuda]' brings it"
    if any(word in why for word in _NO_DEVICE):
        return ""
    return "see that NVIDIA's driver is 580 or newer, and that this process may use the device"


def detected(cores: int | None, host: Host | None) -> Config:
    """This machine's first device, with the limits that it reports.

    Raises:
        TunerError: it has no device, or TVM cannot use it; it says why.
    """
    if why := why_absent():
        remedy = f": {mend(why)}" if mend(why) else ""
        raise TunerError(
            f"this machine has no CUDA device ({why}{remedy}); to tune for one elsewhere, give "
            '--target \'{"kind":"cuda","arch":"sm_90"}\''
        )
    from tvm.target import Target

    return completed(canonical(plain(Target.from_device(device())), ""), cores, host)


def canonical(config: Config, tag: str) -> Config:
    """A target by its architecture alone: `sm_90a` names the same devices as `sm_90`. The compiler
    is told the first where a kernel needs it (`spaces.codegen.cuda.nvcc.architecture`)."""
    numbers = numbers_of_tag(tag)
    known = {} if numbers is None else _fill(numbers)
    return {**known, **config, "arch": _SUFFIX.sub("", str(config["arch"]))}


def refuse_incomplete(config: Config) -> None:
    """Refuse a target without an architecture where TVM could not take a device's.

    Raises:
        TunerError: the architecture is left out, and there is no device here.
    """
    if "arch" not in config and not present():
        raise TunerError(
            'the cuda target names no "arch" (such as "sm_90"), and this machine has no device '
            "to ask"
        )


def completed(config: Config, cores: int | None, host: Host | None) -> Config:
    """A target with the limits that all devices keep and the numbers of one device, where it does
    not name its own: those of the device here if it is of that architecture, else the usual."""
    numbers = numbers_of(config)
    here = read_device()
    if here is not None and here.architecture == architecture_of(str(config["arch"])):
        numbers = here.numbers.or_else(numbers)
    return {**_LIMITS, **_fill(numbers), **config}


def complete_as_usual(config: Config) -> Config:
    """A target with the limits and numbers of the usual device of its architecture, where it does
    not name its own."""
    return {**_LIMITS, **_fill(numbers_of(config)), **config}


def _fill(numbers: Numbers) -> Config:
    return {"model": numbers.to_text(), "l2_cache_size_bytes": numbers.l2_bytes}


def missing(target_json: str, host: Host | None) -> tuple[str, ...]:
    """Return nothing, as the code does not run on the machine's CPU."""
    return ()


def fits(target_json: str) -> bool:
    """Whether there is a device here, of the target's architecture if it names one."""
    if not present():
        return False
    found = architecture_of(str(device().compute_version).replace(".", ""))
    return architecture_of(str(json.loads(target_json).get("arch", ""))) in (0, found)


def fingerprint(target_json: str, host: Host | None) -> str:
    """The device's name with what changes its times: driver, power limit, MIG, cold caches. Where
    there is no device here, the architecture that was asked for in place of all but the last."""
    plain_name = _plain_name(target_json)
    l2 = " l2=cold" if is_cold(target_json) else ""
    here = read_device() if present() else None
    if here is None:
        return f"{plain_name}{l2}"
    board = read_board(here.bus_id)
    return f"{plain_name} {f'cuda={here.cuda}' if board is None else board.to_text()}{l2}"


def _plain_name(target_json: str) -> str:
    """The device's name; where there is no device here, the architecture that was asked for."""
    if not present():
        return f"cuda {json.loads(target_json).get('arch', '')}".strip()
    here = device()
    return f"cuda {here.device_name} cc={here.compute_version}"


def alike(one: str, other: str) -> bool:
    """Whether they differ in marks alone that are not the schedule's: fast math and cold caches. A
    program that multiplies in TF32 is of no target that has it not."""
    said = [{**json.loads(each), "keys": arithmetic_of(each).tf32} for each in (one, other)]
    return said[0] == said[1]


def device() -> Any:
    """TVM's first CUDA device, which need not exist."""
    import tvm

    return tvm.cuda()
