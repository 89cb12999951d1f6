"""One call to a child process that is started for it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tuner.process.child import Child
from tuner.process.outcome import Outcome, Returned


def ask_once(
    factory: str,
    args: tuple[Any, ...],
    method: str,
    *arguments: Any,
    ready_s: float,
    deadline_s: float,
    env: Mapping[str, str] | None = None,
    memory_limit_bytes: int | None = None,
    log: Path | None = None,
) -> Outcome:
    """Start a `Child`, call one method of its object, and end it.

    Args:
        factory, args, env, memory_limit_bytes, log: see `Child`.
        arguments: arguments of the method.
        ready_s: seconds until the factory must be done.
        deadline_s: seconds for the call.

    Returns:
        The outcome of the call; that of the start where it failed.
    """
    with Child(factory, args, env=env, memory_limit_bytes=memory_limit_bytes, log=log) as child:
        outcome = child.ready(ready_s)
        if isinstance(outcome, Returned):
            outcome = child.call(method, *arguments, deadline_s=deadline_s)
    return outcome
