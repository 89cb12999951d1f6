"""Targets as text: what users may ask for, and the marks that a CUDA target's `keys` carry. TVM is
not known here.

Each check raises `UsageError` with one line.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from tuner.checks import LARGEST, one_of, short
from tuner.errors import UsageError

TARGET_KINDS = ("llvm", "cuda")
"""Kinds of target that have a space: the rows of `spaces.targets.backends`."""
MEASURES = ("device", "emulated")
"""What kernels are timed on: devices, or a model of a CUDA device that runs on a CPU."""
CUDA_KEYS = ("cuda", "gpu")
"""The `keys` of each CUDA target."""
EMULATED = "emulated"
"""Among the `keys` of a CUDA target: it is the emulated device."""
EMULATED_ARCH = "sm_80"
"""Of the emulated device, where nobody says which."""
FAST_MATH, TF32, COLD_L2 = "fast-math", "tf32", "cold-l2"
"""Among the `keys` of a CUDA target: kernels are compiled with fast math; they may multiply float32
in TF32; a timed run finds other data in the L2 cache."""
L2_POLICIES = ("warm", "cold")
"""What a timed run finds in the L2 cache: what the run before left there, or other data."""
_KINDS = " or ".join(TARGET_KINDS)
_MARKS = frozenset({EMULATED, FAST_MATH, TF32, COLD_L2})
_OF_DEVICES = frozenset({FAST_MATH, COLD_L2})
"""Marks of devices, which the emulated one cannot have."""


@dataclass(frozen=True, slots=True)
class Arithmetic:
    """What kernels for a target may lose besides what any order of operations does.

    Attributes:
        fast_math: whether they are compiled with CUDA's fast math.
        tf32: whether they may multiply float32 in TF32.
    """

    fast_math: bool = False
    tf32: bool = False


EXACT = Arithmetic()


def measure(text: object) -> str:
    """Check what kernels are to be timed on."""
    return one_of("measure", text, MEASURES)


def l2_policy(text: object) -> str:
    """Check what a timed run is to find in the L2 cache."""
    return one_of("L2 policy", text, L2_POLICIES)


def emulate(target_text: str) -> str:
    """The emulated device in the place of a CUDA device that a target, checked, names.

    A target that names no architecture stands for `EMULATED_ARCH`.
    """
    config = _of_cuda(target_text, "--measure emulated")
    return _mark({"arch": EMULATED_ARCH, **config}, EMULATED)


def fast_math(target_text: str) -> str:
    """A CUDA target, checked, for which kernels are compiled with fast math."""
    return _mark(_of_cuda(target_text, "--fast-math"), FAST_MATH)


def tf32(target_text: str) -> str:
    """A CUDA target, checked, for which kernels may multiply float32 in TF32."""
    return _mark(_of_cuda(target_text, "--tf32"), TF32)


def l2(target_text: str, policy: object) -> str:
    """A CUDA target, checked, on which kernels are timed with an L2 cache as a policy says."""
    config = _of_cuda(target_text, f"--l2 {l2_policy(policy)}")
    # The emulated device is refused either policy.
    cold, warm = (_mark(config, COLD_L2, marked=marked) for marked in (True, False))
    return cold if policy == "cold" else warm


def _of_cuda(target_text: str, flag: str) -> dict[str, Any]:
    """The options of a CUDA target, checked, which a flag is for."""
    if target_text in ("auto", "cuda"):
        return {"kind": "cuda"}
    config: dict[str, Any] = json.loads(target_text) if target_text.startswith("{") else {}
    if config.get("kind") != "cuda":
        raise UsageError(f"{flag} is for CUDA targets, and the target is {short(target_text)}")
    return config


def _mark(config: dict[str, Any], mark: str, *, marked: bool = True) -> str:
    """The text of a CUDA target with a key more, or without it."""
    rest = {name: value for name, value in config.items() if name != "keys"}
    given = config.get("keys")
    more = {mark, *map(str, given if isinstance(given, list) else ())}
    more -= {*CUDA_KEYS, *(() if marked else (mark,))}
    if not more and rest == {"kind": "cuda"}:
        return "cuda"
    keys = {"keys": [*CUDA_KEYS, *sorted(more)]} if more else {}
    return _check_marks(json.dumps({**rest, **keys}, sort_keys=True))


def _check_marks(target_text: str, kind: str = "cuda") -> str:
    """A target, unless it asks of another device what only CUDA devices have."""
    marks = marks_of(target_text)
    if marks and kind != "cuda":
        raise UsageError(
            f"the key {min(marks)} is for CUDA targets, and the target's kind is {kind}"
        )
    if is_emulated(target_text) and marks & _OF_DEVICES:
        raise UsageError(
            "--fast-math and --l2 are for devices: the emulated one computes functions in full, "
            "and its times are those of a model that knows no cold L2 cache"
        )
    return target_text


@cache
def marks_of(target_text: str) -> frozenset[str]:
    """What is said of a target by its keys: the emulated device's, `FAST_MATH`, `TF32`,
    `COLD_L2`."""
    try:
        return _MARKS.intersection(json.loads(target_text).get("keys") or ())
    except (ValueError, AttributeError, TypeError):
        return frozenset()


def is_emulated(target_json: str) -> bool:
    """Whether a target, as canonical JSON, is the emulated device, whose times are a model's."""
    return EMULATED in marks_of(target_json)


def arithmetic_of(target_json: str) -> Arithmetic:
    """What kernels for a target may lose."""
    marks = marks_of(target_json)
    return Arithmetic(FAST_MATH in marks, TF32 in marks)


def is_cold(target_json: str) -> bool:
    """Whether timed runs on a target find other data in the L2 cache."""
    return COLD_L2 in marks_of(target_json)


def kind_alone(target_text: str) -> str:
    """The kind of a target that leaves everything else to the device that is there, but for marks
    of `fast_math`, `tf32` and `l2`; empty of any other, and of `auto`."""
    if target_text in TARGET_KINDS:
        return target_text
    if not marks_of(target_text) or is_emulated(target_text):
        return ""
    config = json.loads(target_text)
    return str(config["kind"]) if config.keys() == {"kind", "keys"} else ""


def target(given: object) -> str:
    """Check a target: `auto`, a kind with a space, or a TVM target of such a kind as JSON, as a
    dictionary or as an object of TVM's. Return its text."""
    text = json.dumps(dict(given)) if isinstance(given, Mapping) else given
    text = str(text) if type(text).__module__.startswith("tvm.") else text
    word = text.strip() if isinstance(text, str) else ""
    if word == "auto" or word in TARGET_KINDS:
        return word
    if not word.startswith("{"):
        raise UsageError(f"unknown target {short(text)}: write auto, {_KINDS}, or a target as JSON")
    try:
        raw = json.loads(word)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"the target is not JSON ({error}): {short(text)}") from error
    kind = target_kind(raw.get("kind", "missing"))
    cores = raw.get("num-cores", 1)
    if type(cores) is not int or not 1 <= cores <= LARGEST:
        raise UsageError(f"the target's num-cores is {short(cores)}; it must be 1 or more")
    return _check_marks(json.dumps(raw, sort_keys=True), kind)


def target_kind(kind: object) -> str:
    """Check that a target's kind is one of those with a space."""
    if not isinstance(kind, str) or kind not in TARGET_KINDS:
        raise UsageError(f"the target's kind is {short(kind)}; it must be {_KINDS}")
    return kind
