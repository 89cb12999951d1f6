"""Checks of a request's values: the same, in the same words, from Python and the command line.

`cluster.console.parse` applies them to what was typed, `tuner.options` to what a program gives.
Each raises `UsageError` with one line, which shows the value as `shown`: as a user would write it.
"""

from __future__ import annotations

import json
import math
import operator
import re
from collections.abc import Collection, Iterable, Sequence
from functools import cache
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, TypeGuard

from tuner.errors import UsageError, first_line

TARGET_KINDS = ("llvm", "cuda")
"""Kinds of target that have a space: the rows of `spaces.targets.backends`."""
MEASURES = ("device", "emulated")
"""What kernels are timed on: devices, or a model of a CUDA device that runs on a CPU."""
STRATEGIES = ("evolutionary", "random", "replay-function")
"""Names of the search strategies, see `tuner.search.registry`."""
CUDA_KEYS = ("cuda", "gpu")
"""The `keys` of each CUDA target."""
EMULATED = "emulated"
"""Among the `keys` of a CUDA target: it is the emulated device."""
EMULATED_ARCH = "sm_80"
"""Of the emulated device, where nobody says which."""
FAST_MATH, COLD_L2 = "fast-math", "cold-l2"
"""Among the `keys` of a CUDA target: kernels are compiled with fast math; a timed run finds other
data in the L2 cache."""
L2_POLICIES = ("warm", "cold")
"""What a timed run finds in the L2 cache: what the run before left there, or other data."""
LARGEST = 2**31 - 1
MOST_VALUES = 1 << 16
"""The most values that one symbolic dimension may have."""
DIMENSIONS = "write for example T=1..128, M=16..2048:16 or T=5,24,43"
LIBRARY_ENDINGS = (".so", ".tar", ".dylib", ".dll")
"""Endings of a library's name: the linker goes by them."""
INPUTS = "write NAME=FILE.npy or NAME=int:LO..HI"
_KINDS = " or ".join(TARGET_KINDS)
_MARKS = frozenset({EMULATED, FAST_MATH, COLD_L2})
_LONGEST_S = 366 * 86400.0
_ENTRY_POINTS = "elastic_tuner"
_ENTRY_POINT = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")
_HOST_PORT = re.compile(r"(?P<host>[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\]):(?P<port>[0-9]{1,5})")
_OF_A_CLIENT = "ray://"


def whole(value: object, *, at_least: int) -> int:
    """Check a whole number from `at_least` up to 2147483647, and return it."""
    number = _integer(value)
    if number is None or not at_least <= number <= LARGEST:
        raise UsageError(f"{str(value)!r} is not a whole number from {at_least} to {LARGEST}")
    return number


def seconds(value: object, shown: str) -> float:
    """Check a duration: more than 0 s, at most 366 days."""
    if not _number(value) or not 0 <= value < math.inf:
        raise UsageError(f"{shown!r} is not a duration: write for example 90s, 20m, 1h30m or 2d")
    if not 0 < value <= _LONGEST_S:
        raise UsageError(f"{shown!r} is out of range: a duration is more than 0s and at most 366d")
    return float(value)


def one_of(what: str, value: object, known: Collection[str]) -> str:
    """Check that a value is one of the known names."""
    if not isinstance(value, str) or value not in known:
        *most, last = known
        raise UsageError(f"unknown {what} {short(value)}: write {', '.join(most)} or {last}")
    return value


def measure(text: object) -> str:
    """Check what kernels are to be timed on."""
    return one_of("measure", text, MEASURES)


def l2_policy(text: object) -> str:
    """Check what a timed run is to find in the L2 cache."""
    return one_of("L2 policy", text, L2_POLICIES)


def emulated(target_text: str) -> str:
    """The emulated device in the place of a CUDA device that a target, checked, names.

    A target that names no architecture stands for `EMULATED_ARCH`.
    """
    config = _of_cuda(target_text, "--measure emulated")
    return _marked({"arch": EMULATED_ARCH, **config}, EMULATED)


def fast_math(target_text: str) -> str:
    """A CUDA target, checked, for which kernels are compiled with fast math."""
    return _marked(_of_cuda(target_text, "--fast-math"), FAST_MATH)


def l2(target_text: str, policy: object) -> str:
    """A CUDA target, checked, on which kernels are timed with an L2 cache as a policy says."""
    config = _of_cuda(target_text, f"--l2 {l2_policy(policy)}")
    # The emulated device is refused either policy.
    cold, warm = (_marked(config, COLD_L2, marked=marked) for marked in (True, False))
    return cold if policy == "cold" else warm


def _of_cuda(target_text: str, flag: str) -> dict[str, Any]:
    """The options of a CUDA target, checked, which a flag is for."""
    if target_text in ("auto", "cuda"):
        return {"kind": "cuda"}
    config: dict[str, Any] = json.loads(target_text) if target_text.startswith("{") else {}
    if config.get("kind") != "cuda":
        raise UsageError(f"{flag} is for CUDA targets, and the target is {short(target_text)}")
    return config


def _marked(config: dict[str, Any], mark: str, *, marked: bool = True) -> str:
    """The text of a CUDA target with a key more, or without it."""
    rest = {name: value for name, value in config.items() if name != "keys"}
    given = config.get("keys")
    more = {mark, *map(str, given if isinstance(given, list) else ())}
    more -= {*CUDA_KEYS, *(() if marked else (mark,))}
    if not more and rest == {"kind": "cuda"}:
        return "cuda"
    keys = {"keys": [*CUDA_KEYS, *sorted(more)]} if more else {}
    return _checked_marks(json.dumps({**rest, **keys}, sort_keys=True))


def _checked_marks(target_text: str, kind: str = "cuda") -> str:
    """A target, unless it asks of another device what only CUDA devices have."""
    marks = marks_of(target_text)
    if marks and kind != "cuda":
        raise UsageError(
            f"the key {min(marks)} is for CUDA targets, and the target's kind is {kind}"
        )
    if is_emulated(target_text) and len(marks) > 1:
        raise UsageError(
            "--fast-math and --l2 are for devices: the emulated one computes functions in full, "
            "and its times are those of a model that knows no cold L2 cache"
        )
    return target_text


@cache
def marks_of(target_text: str) -> frozenset[str]:
    """What is said of a target by its keys: the emulated device's, `FAST_MATH`, `COLD_L2`."""
    try:
        return _MARKS.intersection(json.loads(target_text).get("keys") or ())
    except (ValueError, AttributeError, TypeError):
        return frozenset()


def is_emulated(target_json: str) -> bool:
    """Whether a target, as canonical JSON, is the emulated device, whose times are a model's."""
    return EMULATED in marks_of(target_json)


def is_fast_math(target_json: str) -> bool:
    """Whether kernels for a target are compiled with CUDA's fast math."""
    return FAST_MATH in marks_of(target_json)


def is_cold(target_json: str) -> bool:
    """Whether timed runs on a target find other data in the L2 cache."""
    return COLD_L2 in marks_of(target_json)


def kind_alone(target_text: str) -> str:
    """The kind of a target that leaves everything else to the device that is there, but for marks
    of `fast_math` and `l2`; empty of any other, and of `auto`."""
    if target_text in TARGET_KINDS:
        return target_text
    if not marks_of(target_text) or is_emulated(target_text):
        return ""
    config = json.loads(target_text)
    return str(config["kind"]) if config.keys() == {"kind", "keys"} else ""


def target(text: object) -> str:
    """Check a target: `auto`, a kind with a space, or the JSON of a TVM target of such a kind."""
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
    return _checked_marks(json.dumps(raw, sort_keys=True), kind)


def target_kind(kind: object) -> str:
    """Check that a target's kind is one of those with a space."""
    if not isinstance(kind, str) or kind not in TARGET_KINDS:
        raise UsageError(f"the target's kind is {short(kind)}; it must be {_KINDS}")
    return kind


def address(text: object) -> str:
    """Check an address: `auto`, `local`, or `HOST:PORT` of a Ray cluster."""
    word = text.strip() if isinstance(text, str) else ""
    if word in ("auto", "local"):
        return word
    match = _HOST_PORT.fullmatch(word)
    if not match or not 1 <= int(match["port"]) <= 65535:
        if word.startswith(_OF_A_CLIENT):
            host = word.removeprefix(_OF_A_CLIENT).rpartition(":")[0] or "HOST"
            raise UsageError(
                f"{word} is the address of Ray's client server: name the cluster itself, as a rule "
                f"{host}:6379, on a machine of the cluster or by `ray job submit`"
            )
        raise UsageError(
            f"{str(text)!r} is no address: write auto, local or HOST:PORT of a Ray cluster"
        )
    return word


def library_file(path: Path) -> Path:
    """Check the name of a library's file, and return its path."""
    if path.suffix not in LIBRARY_ENDINGS:
        raise UsageError(f"{path}: a library's name ends in {' or '.join(LIBRARY_ENDINGS[:2])}")
    return path


def nonempty(text: object) -> str:
    """Check a text that must not be empty, such as a glob, a path or a name."""
    if not isinstance(text, str):
        raise UsageError(f"{short(text)} is no text")
    if not text.strip() or "\0" in text:
        raise UsageError("it is empty; leave it out or give it a value")
    if any("\ud800" <= letter <= "\udfff" for letter in text):
        raise UsageError(f"{text!r} is not valid UTF-8")
    return text


def extents(name: str, sizes: Sequence[object], shown: str) -> tuple[int, ...]:
    """Check the shape of an input."""
    numbers = [_integer(size) for size in sizes]
    if not name.strip() or not numbers or None in numbers:
        raise UsageError(f"{shown!r} is not a shape: write for example INPUT=1,3,224,224")
    shape = tuple(number for number in numbers if number is not None)
    if not all(1 <= size <= LARGEST for size in shape):
        raise UsageError(f"{shown!r} has an extent outside 1 to {LARGEST}")
    return shape


def dimension(name: str, values: Sequence[object], shown: str) -> tuple[int, ...]:
    """Check the sizes of a symbolic dimension; return each once, ascending."""
    numbers = [_integer(value) for value in values]
    if not name.strip() or not numbers or None in numbers:
        raise UsageError(f"{shown!r} is no dimension: {DIMENSIONS}")
    sizes = tuple(sorted({number for number in numbers if number is not None}))
    if not 1 <= sizes[0] <= sizes[-1] <= LARGEST:
        raise UsageError(f"{shown!r} has a size outside 1 to {LARGEST}")
    if len(sizes) > MOST_VALUES:
        raise UsageError(f"{shown!r} has more than {MOST_VALUES} values: give it a step")
    return sizes


def input_name(name: str, shown: str) -> str:
    """Check the name of an input that a value is given for."""
    if not name.strip():
        raise UsageError(f"{shown!r} is not an input: {INPUTS}")
    return name


def integers(name: str, low: object, high: object, shown: str) -> tuple[int, int]:
    """Check the range that an input's integers are drawn from."""
    least, most = _integer(low), _integer(high)
    input_name(name, shown)
    if least is None or most is None or least > most:
        raise UsageError(f"{shown!r} is not a range of integers: write NAME=int:LO..HI, LO <= HI")
    return least, most


def array_file(name: str, path: object, shown: str) -> Path:
    """Check the file with an input's value."""
    input_name(name if str(path) else "", shown)
    if not isinstance(path, str | Path) or not str(path).endswith(".npy"):
        raise UsageError(f"{shown!r} names no .npy file: {INPUTS}")
    return Path(path)


def argument(name: str, shown: str) -> str:
    """Check the name of a function's argument."""
    if not name.strip().isidentifier():
        raise UsageError(f"{shown!r} is not an argument: write for example m=512")
    return name.strip()


def code_name(text: object, what: str) -> tuple[str, str]:
    """Check what names an object of a user's code: a Python file with a name in it or none, or a
    module with a name in it.

    Args:
        what: it should be, for the message.
    """
    where, colon, name = str(text).rpartition(":")
    where, name = (where, name) if colon else (name, "")
    in_file = where.endswith(".py") and (name.isidentifier() or not colon)
    in_module = name.isidentifier() and all(part.isidentifier() for part in where.split("."))
    if not (in_file or in_module):
        raise UsageError(
            f"{short(text)} is no {what}: give FILE.py, FILE.py:NAME or package.module:NAME"
        )
    return where, name


def layer_name(text: object, name: str) -> str:
    """Check what names a layer of a user's, and return it: as `code_name`, or the name of an entry
    point of an installed package, which stands for one.

    Args:
        name: of the layer, as in `tuner.layers.Layers`.
    """
    word = text if isinstance(text, str) else ""
    if not _ENTRY_POINT.fullmatch(word):
        code_name(text, name)
        return word
    group = f"{_ENTRY_POINTS}.{name}"
    for entry in entry_points(group=group, name=word):
        return entry.value
    raise UsageError(
        f"unknown {name} {short(text)}: no installed package has it as an entry point of "
        f"{group}; a file's is named as FILE.py:NAME"
    )


def strategy(text: object) -> str:
    """Check the name of a search strategy: one of `STRATEGIES`, or what names a user's own."""
    try:
        return str(text) if text in STRATEGIES else layer_name(text, "strategy")
    except UsageError as error:
        raise UsageError(f"{error}; ours are {', '.join(STRATEGIES)}") from error


def space_arguments(given: object) -> str:
    """The arguments of a space, a dictionary or the JSON of one, as canonical JSON; empty for
    none."""
    if given == "":
        return ""
    try:
        known = json.loads(given) if isinstance(given, str) else given
        text = json.dumps(known, sort_keys=True)
    except (TypeError, ValueError) as error:
        raise UsageError(f"{short(given)} is no JSON: {first_line(error)}") from error
    if not isinstance(known, dict) or not all(str(name).isidentifier() for name in known):
        raise UsageError(f'{short(given)} are no arguments: write for example {{"most": 64}}')
    return text


def each_once(named: Iterable[tuple[str, str]]) -> None:
    """Check that no name is given twice, since one of the two values would be lost.

    Args:
        named: each name, and the text that a message shows for it.
    """
    seen: set[str] = set()
    for name, shown in named:
        if name in seen:
            raise UsageError(f"{name!r} is given twice; the second is {shown!r}")
        seen.add(name)


def share(value: object) -> float:
    """Check a part of a whole: from 0 to 1."""
    if not _number(value) or not 0 <= value <= 1:
        raise UsageError(f"{short(value)} is no share: it is from 0 to 1")
    return float(value)


def short(value: object) -> str:
    """A value as a message shows it."""
    text = str(value)
    return repr(text if len(text) <= 60 else f"{text[:60]}...")


def _number(value: object) -> TypeGuard[int | float]:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _integer(value: Any) -> int | None:
    """The `int` of a value of any integer type; None for anything else."""
    if isinstance(value, bool | str):
        return None
    try:
        return operator.index(value)
    except TypeError:
        return None
