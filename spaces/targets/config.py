"""Targets as plain data: a TVM target's options, and one text for equal ones."""

from __future__ import annotations

import json
from typing import Any

from tuner.errors import UsageError

Config = dict[str, Any]
"""The options of a TVM target by name, `kind` among them."""

# Options that TVM writes into every exported target, and that mean nothing as defaults.
_NOISE = ("tag", "keys")


def canonical(config: Config) -> str:
    """One text for equal targets."""
    return json.dumps(config, sort_keys=True, separators=(",", ":"))


def parse_config(text: str) -> Config:
    """Parse a target as a user writes it: a kind, a tag with its slash, or JSON.

    Raises:
        UsageError: malformed JSON, or it names neither a kind nor a tag.
    """
    if not text.lstrip().startswith(("{", "[")):
        # A bare word is a kind or a tag; which tags exist is TVM's to say.
        return {"tag": text} if "/" in text else {"kind": text}
    try:
        config = json.loads(text)
    except json.JSONDecodeError as error:
        raise UsageError(f"target is not valid JSON: {error}") from error
    if not isinstance(config, dict) or not isinstance(config.get("kind", config.get("tag")), str):
        raise UsageError('target has no "kind" (such as {"kind": "llvm"})')
    return dict(config)


def validate(config: Config) -> Config:
    """The target in TVM's own terms, a tag written out.

    Raises:
        UsageError: TVM knows no such option or tag.
    """
    from tvm.target import Target

    given = config["tag"] if set(config) == {"tag"} else config
    try:
        return plain(Target(given), keys=config.get("keys"))
    except (ValueError, TypeError, RuntimeError) as error:
        reason = str(error).split(". Target creation")[0].split(" Known options")[0]
        raise UsageError(f"target {json.dumps(given)}: {reason.strip()}") from error


def plain(target: Any, keys: Any = None) -> Config:
    """A TVM target as plain data, without the options that TVM adds by itself."""
    config = json.loads(str(target))
    found = {name: value for name, value in config.items() if name not in _NOISE}
    if isinstance(found.get("host"), dict):
        found["host"] = {k: v for k, v in found["host"].items() if k not in _NOISE}
    if keys:
        found["keys"] = list(keys)
    return found


def target_cores(target_json: str) -> int:
    """Threads that kernels of this target use on the host; 1 where it is not a CPU target."""
    return int(json.loads(target_json).get("num-cores", 1))
