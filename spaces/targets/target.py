"""Which device to tune for, as canonical JSON of a TVM target, and its fingerprint."""

from __future__ import annotations

import json
import os
from typing import Any

from spaces.ir import tvm_compat
from spaces.targets.cores import usable_cores
from spaces.targets.cpu_caches import caches_text
from spaces.targets.host import Host, this_host
from tuner.errors import TunerError, UsageError

# What TVM writes into every exported target, and what says nothing where it is the default.
_NOISE = ("tag", "keys")
# What every CUDA device since sm_50 allows a block. A bare target says nothing of it, and the
# schedule rules cannot do without.
_CUDA_LIMITS = {
    "max_num_threads": 1024,
    "max_threads_per_block": 1024,
    "max_shared_memory_per_block": 49152,
    "registers_per_block": 65536,
    "thread_warp_size": 32,
}
# What `resolve_target` adds to what a user wrote.
_FILLED_IN = {"num-cores", "model", *_CUDA_LIMITS}


def resolve_target(text: str, *, cores: int | None = None, host: Host | None = None) -> str:
    """Canonical JSON (sorted keys) of what a user asked for.

    Args:
        text: `auto` (cuda where this machine has a device, else llvm), `llvm`, `cuda`, a tag
            such as `nvidia/nvidia-h100`, or the JSON of a TVM target.
        cores: threads a kernel may use on a CPU, where the target does not say; None counts
            this machine's. It is also how many threads kernels are measured with. Sizes of caches
            are this machine's, too, where the target's `model` does not say: a target of before
            they were in it has an empty one.
        host: the CPU that `llvm` is; None is this machine's.

    Raises:
        UsageError: malformed JSON, an unknown kind or option.
        TunerError: a device that this machine does not have.
    """
    if text == "auto":
        text = "cuda" if cuda_device_exists() else "llvm"
    if text == "llvm":
        config: dict[str, Any] = {"kind": "llvm", **(host or this_host()).config()}
    elif text == "cuda":
        return _detected_cuda()
    else:
        config = _parse(text)
    if config.get("kind") == "cuda" and "arch" not in config and not cuda_device_exists():
        raise TunerError(
            'the cuda target names no "arch" (such as "sm_90"), and this machine has no device '
            "to ask"
        )
    config = _validated(config)
    if config["kind"] == "llvm":
        _refuse_other_cpu(config)
        config.setdefault("num-cores", cores or usable_cores())
        config.setdefault("model", caches_text((host or this_host()).caches))
        config = {name: value for name, value in config.items() if name != "model" or value}
    if config["kind"] == "cuda":
        config = {**_CUDA_LIMITS, **config}
    return canonical(config)


def asks_for(text: str, begun: str) -> bool:
    """Whether what a user asks for is the target that a run began with.

    It is where the user leaves open what that target says: all of it (`auto`), all but the kind
    (`llvm`, `cuda`), or what a machine fills in, such as the number of threads.

    Args:
        text: as for `resolve_target`.
        begun: canonical JSON of the run's target.

    Raises:
        UsageError: malformed JSON, an unknown kind or option.
    """
    if text in ("auto", begun):
        return True
    target = json.loads(begun)
    if text in ("llvm", "cuda"):
        return bool(target["kind"] == text)
    asked = {name: value for name, value in _validated(_parse(text)).items() if value != ""}
    said = {name: target.get(name) for name in asked}
    return asked == said and target.keys() - asked.keys() <= _FILLED_IN


def refuse_other_features(target_json: str, host: Host | None = None) -> None:
    """See that a machine can run code for a target that names a CPU.

    Args:
        host: its CPU; None is this machine's.

    Raises:
        TunerError: the code would use instructions that this machine does not have.
    """
    if target_kind(target_json) != "llvm":
        return
    if missed := (host or this_host()).lacks(target_json):
        cpu = json.loads(target_json).get("mcpu", "CPU")
        raise TunerError(
            f"the target's {cpu} has {', '.join(missed)}, which this machine has not: "
            "kernels are timed where they run"
        )


def _refuse_other_cpu(config: dict[str, Any]) -> None:
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


def canonical(config: dict[str, Any]) -> str:
    """One text for equal targets."""
    return json.dumps(config, sort_keys=True, separators=(",", ":"))


def parse_target(target_json: str) -> Any:
    """TVM's target of canonical JSON, with a host where its device needs one."""
    from tvm.target import Target

    config = json.loads(target_json)
    target = Target(config)
    if config["kind"] == "llvm" or target.host is not None:
        return target
    # It only launches kernels, on whatever CPU there is beside the device.
    return Target(target, host=Target({"kind": "llvm"}))


def target_kind(target_json: str) -> str:
    """`llvm`, `cuda`, ... of canonical JSON."""
    return str(json.loads(target_json)["kind"])


def target_cores(target_json: str) -> int:
    """Threads that kernels of this target use on the host; 1 where it is not a CPU target."""
    return int(json.loads(target_json).get("num-cores", 1))


def device_of(target_json: str) -> Any:
    """The TVM device that runs code for a target.

    Raises:
        TunerError: this machine has no such device.
    """
    import tvm

    kind = target_kind(target_json)
    device = tvm.cpu() if kind in ("llvm", "c") else tvm.runtime.device(kind)
    if not device.exist:
        raise TunerError(f"this machine has no {kind} device")
    return device


def cuda_device_exists() -> bool:
    """Whether this machine has a CUDA device that TVM can use."""
    import tvm

    return bool(tvm.cuda().exist)


def fits_here(target_json: str) -> bool:
    """Whether this machine has the device that a target names, as far as it names one."""
    config = json.loads(target_json)
    if config["kind"] == "llvm":
        return target_cores(target_json) <= usable_cores() and not this_host().lacks(target_json)
    try:
        found = str(device_of(target_json).compute_version).replace(".", "")
    except TunerError:
        return False
    digits = "".join(c for c in str(config.get("arch", "")) if c.isdigit())
    return digits in ("", found)


def device_fingerprint(target_json: str, host: Host | None = None) -> str:
    """What kernels of this target run on here: the CPU and its threads, or the GPU's name.

    Timings of equal fingerprints can be compared: CPUs with other features or caches have others.
    Where the target is a GPU that this machine lacks, it is the architecture that was asked for. A
    CPU with fewer cores than the target has threads says so.

    Args:
        host: the CPU that it is about; None is this machine's.
    """
    config = json.loads(target_json)
    if config["kind"] == "llvm":
        return _cpu_fingerprint((host or this_host()).name, target_json)
    try:
        device = device_of(target_json)
    except TunerError:
        return f"{config['kind']} {config.get('arch', '')}".strip()
    return f"{config['kind']} {device.device_name} cc={device.compute_version}"


def former_fingerprint(target_json: str) -> str:
    """What `device_fingerprint` was before it told of a CPU's features; runs are called so."""
    if target_kind(target_json) == "llvm":
        return _cpu_fingerprint(this_host().former_name, target_json)
    return device_fingerprint(target_json)


def _cpu_fingerprint(cpu: str, target_json: str) -> str:
    threads, cores = target_cores(target_json), usable_cores()
    crowded = f" on {cores}" if cores < threads else ""
    return f"cpu {cpu} threads={threads}{crowded}"


def _detected_cuda() -> str:
    if not cuda_device_exists():
        raise TunerError(
            "this machine has no CUDA device; to tune for one elsewhere, give --target "
            '\'{"kind":"cuda","arch":"sm_90"}\''
        )
    import tvm
    from tvm.target import Target

    return canonical(_plain(Target.from_device(tvm.cuda())))


def _parse(text: str) -> dict[str, Any]:
    if not text.lstrip().startswith(("{", "[")):
        # A bare word is a kind or a tag; which ones exist is TVM's to say.
        return {"tag": text} if "/" in text else {"kind": text}
    try:
        config = json.loads(text)
    except json.JSONDecodeError as error:
        raise UsageError(f"target is not valid JSON: {error}") from error
    if not isinstance(config, dict) or not isinstance(config.get("kind", config.get("tag")), str):
        raise UsageError('target has no "kind" (such as {"kind": "llvm"})')
    return dict(config)


def _validated(config: dict[str, Any]) -> dict[str, Any]:
    from tvm.target import Target

    given = config["tag"] if set(config) == {"tag"} else config
    try:
        return _plain(Target(given), keys=config.get("keys"))
    except (ValueError, TypeError, RuntimeError) as error:
        reason = str(error).split(". Target creation")[0].split(" Known options")[0]
        raise UsageError(f"target {json.dumps(given)}: {reason.strip()}") from error


def _plain(target: Any, keys: Any = None) -> dict[str, Any]:
    """A TVM target as plain data, without what TVM adds by itself."""
    config = json.loads(str(target))
    plain = {name: value for name, value in config.items() if name not in _NOISE}
    if isinstance(plain.get("host"), dict):
        plain["host"] = {k: v for k, v in plain["host"].items() if k not in _NOISE}
    if keys:
        plain["keys"] = list(keys)
    return plain
