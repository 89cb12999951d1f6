"""CPUs, as `spaces.targets.backends.Devices` asks for them."""

from __future__ import annotations

import os
from typing import Any

from spaces.ir import tvm_compat
from spaces.targets.config import Config, target_cores, validate
from spaces.targets.cores import usable_cores
from spaces.targets.cpu import same_but_for_caches
from spaces.targets.cpu_caches import caches_text
from spaces.targets.host import Host, this_host
from tuner.errors import TunerError, UsageError

FILLED_IN = frozenset({"num-cores", "model"})


def present() -> bool:
    """Return True, as every machine has a CPU."""
    return True


def detected(cores: int | None, host: Host | None) -> Config:
    """This machine's CPU."""
    config = validate({"kind": "llvm", **(host or this_host()).config()})
    return completed(config, cores, host)


def canonical(config: Config, tag: str) -> Config:
    """The target as it is: there is one way to name its options."""
    return config


def refuse_incomplete(config: Config) -> None:
    """Accept every target: options that are left out hold for any CPU."""


def completed(config: Config, cores: int | None, host: Host | None) -> Config:
    """A target with threads and caches, where it does not name its own.

    Raises:
        UsageError: LLVM would ignore the CPU.
        TunerError: this machine cannot be that target.
    """
    _refuse_other_cpu(config)
    config = {
        "num-cores": cores or usable_cores(),
        "model": caches_text((host or this_host()).caches),
        **config,
    }
    return {name: value for name, value in config.items() if name != "model" or value}


def missing(target_json: str, host: Host | None) -> tuple[str, ...]:
    """Instructions that the target's code uses and the machine does not have."""
    return (host or this_host()).lacks(target_json)


def fits(target_json: str) -> bool:
    """Whether this machine has the cores and the instructions."""
    return target_cores(target_json) <= usable_cores() and not missing(target_json, None)


def fingerprint(target_json: str, host: Host | None) -> str:
    """The CPU, its features and caches, and the threads."""
    return _fingerprint((host or this_host()).name, target_json)


def alike(one: str, other: str) -> bool:
    """Whether kernels have the same vectors, registers and threads; the sizes of caches decide only
    which kernels are fast."""
    return same_but_for_caches(one, other)


def device() -> Any:
    """TVM's device of the CPU."""
    import tvm

    return tvm.cpu()


def _refuse_other_cpu(config: Config) -> None:
    """Refuse a CPU that LLVM would ignore, or that this machine cannot be."""
    here = tvm_compat.host_triple()
    triple = str(config.get("mtriple", here))
    architecture, own = triple.partition("-")[0], here.partition("-")[0]
    if architecture != own:
        raise TunerError(
            f"the target's CPU is {architecture}, but this machine is {own}: kernels are timed "
            "where they run"
        )
    cores, all_cores = config.get("num-cores", 1), os.cpu_count() or 1
    if cores > all_cores:
        raise TunerError(f"the target's num-cores is {cores}, but this machine has {all_cores}")
    cpu = config.get("mcpu")
    if cpu is not None and not tvm_compat.is_known_cpu(cpu, triple):
        raise UsageError(f'the target\'s "mcpu" {cpu} is no CPU that LLVM knows')


def _fingerprint(cpu: str, target_json: str) -> str:
    threads, cores = target_cores(target_json), usable_cores()
    crowded = f" on {cores}" if cores < threads else ""
    return f"cpu {cpu} threads={threads}{crowded}"
