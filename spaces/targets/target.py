"""The device to tune for, as canonical JSON of a TVM target, and its fingerprint."""

from __future__ import annotations

import json
import logging
from typing import Any

from spaces.targets import cuda, emulated
from spaces.targets.backends import BACKENDS, Backend, backend, backend_of
from spaces.targets.config import Config, canonical, parse_config, validate
from spaces.targets.host import Host
from tuner.errors import TunerError
from tuner.request import target_text
from tuner.request.target_text import kind_alone, marks_of

_log = logging.getLogger(__name__)


def resolve_target(text: str, *, cores: int | None = None, host: Host | None = None) -> str:
    """Canonical JSON (sorted keys) of the target that a user asked for.

    Args:
        text: `auto` (cuda where this machine has a device, else llvm), `llvm`, `cuda`, a tag
            such as `nvidia/nvidia-h100`, or the JSON of a TVM target.
        cores: threads a kernel may use on a CPU, and is measured with, where the target does not
            say; None counts this machine's. Sizes of caches are this machine's, too, where the
            target's `model` does not say: older targets without caches have an empty one.
        host: the CPU that `llvm` is; None is this machine's.

    Raises:
        UsageError: malformed JSON, an unknown kind or option.
        TunerError: a device that this machine does not have.
    """
    if text == "auto":
        if why := cuda.why_unusable():
            _log.warning("auto is not cuda, though a device is here: %s: %s", why, cuda.mend(why))
        text = next(row.kind for row in reversed(BACKENDS) if row.devices.present())
    config = parse_config(text)
    if kind_alone(text):
        return canonical({**_row(config).devices.detected(cores, host), **config})
    if "kind" in config:
        _row(config).devices.refuse_incomplete(config)
    config = _in_one_form(config)
    return canonical(_row(config).devices.completed(config, cores, host))


def emulate_target(text: str) -> str:
    """Canonical JSON of the emulated device of a CUDA target that a user names.

    Raises:
        UsageError: it is no CUDA target, malformed JSON, or an unknown option.
    """
    return resolve_target(target_text.emulate(text))


def choose_deploy_target(target_json: str) -> str:
    """The target that libraries of a run for `target_json` are for: that of the device which the
    emulated one stands for; any other as it is."""
    if not backend_of(target_json).emulated:
        return target_json
    return canonical(emulated.stands_for(json.loads(target_json)))


def _row(config: Config) -> Backend:
    return backend(config["kind"], config.get("keys"))


def _in_one_form(config: Config) -> Config:
    """A target as a user wrote it, in the one form that is kept.

    Raises:
        UsageError: TVM knows no such option or tag.
    """
    valid = validate(config)
    return _row(valid).devices.canonical(valid, config.get("tag", ""))


def find_backend(text: str) -> Backend:
    """The kind of the target that a user asks for, other than `auto`, without checking its options.

    Raises:
        UsageError: malformed JSON, or an unknown kind.
    """
    config = parse_config(text)
    if "kind" not in config:
        tag = config["tag"]
        tagged = [row for row in BACKENDS if tag.startswith(row.tags)]
        return tagged[0] if tagged else backend(validate(config)["kind"])
    return _row(config)


def asks_for(text: str, begun: str) -> bool:
    """Whether the target that a user asks for is the one that a run began with.

    It also is if the user leaves options of that target open: all of it (`auto`), all but the kind
    and its marks (`llvm`, `cuda`, a real one), or options that a machine fills in, such as the
    number of threads.

    Args:
        text: as for `resolve_target`.
        begun: canonical JSON of the run's target.

    Raises:
        UsageError: malformed JSON, an unknown kind or option.
    """
    if text in ("auto", begun):
        return True
    target = json.loads(begun)
    if kind := kind_alone(text):
        return bool(target["kind"] == kind) and marks_of(text) == marks_of(begun)
    asked = {name: value for name, value in _in_one_form(parse_config(text)).items() if value != ""}
    said = {name: target.get(name) for name in asked}
    return asked == said and (target.keys() - asked.keys() <= _row(asked).devices.FILLED_IN)


def refuse_other_features(target_json: str, host: Host | None = None) -> None:
    """Check that a machine can run code for a target that names a CPU.

    Args:
        host: the machine's CPU; None is this machine's.

    Raises:
        TunerError: the code would use instructions that this machine does not have.
    """
    if missed := backend_of(target_json).devices.missing(target_json, host):
        cpu = json.loads(target_json).get("mcpu", "CPU")
        raise TunerError(
            f"the target's {cpu} has {', '.join(missed)}, which this machine has not: "
            "kernels are timed where they run"
        )


def parse_target(target_json: str) -> Any:
    """TVM's target from canonical JSON, with a host where its device needs one.

    Raises:
        UsageError: an unknown kind.
    """
    from tvm.target import Target

    on_host = backend_of(target_json).on_host
    target = Target(json.loads(target_json))
    if on_host or target.host is not None:
        return target
    # The host only launches kernels, on whatever CPU there is beside the device.
    return Target(target, host=Target({"kind": "llvm"}))


def device_of(target_json: str) -> Any:
    """The TVM device that runs code for a target.

    Raises:
        TunerError: this machine has no such device.
    """
    row = backend_of(target_json)
    device = row.devices.device()
    if not device.exist:
        raise TunerError(f"this machine has no {row.kind} device")
    return device


def fits_here(target_json: str) -> bool:
    """Whether this machine has the device that a target names, as far as it names one."""
    return backend_of(target_json).devices.fits(target_json)


def device_fingerprint(target_json: str, host: Host | None = None) -> str:
    """The device that kernels of this target run on here: the CPU and its threads, or the GPU.

    Timings of equal fingerprints can be compared: CPUs with other features or caches have other
    ones. For a GPU that this machine lacks, it is the architecture that was asked for. A CPU with
    fewer cores than the target has threads is marked as such.

    Args:
        host: the CPU in question; None is this machine's.
    """
    return backend_of(target_json).devices.fingerprint(target_json, host)


def takes_the_same(one: str, other: str) -> bool:
    """Whether schedules found for one target can be tried on another as they are.

    See `spaces.targets.backends.Devices.alike`; never between targets of different kinds.
    """
    if one == other:
        return True
    row = backend_of(one)
    return row is backend_of(other) and row.devices.alike(one, other)
