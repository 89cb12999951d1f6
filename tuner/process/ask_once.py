"""One question to a process of its own."""

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
    log: Path | None = None,
) -> Outcome:
    """Start a `Child`, call one method of what its factory makes, and end it.

    Args:
        factory: with `args`, `env` and `log` as for `Child`.
        arguments: of the method.
        ready_s: seconds until the factory must be done.
        deadline_s: seconds for the call.

    Returns:
        What came of the call; what came of the start where that did not go well.
    """
    with Child(factory, args, env=env, log=log) as child:
        outcome = child.ready(ready_s)
        if isinstance(outcome, Returned):
            outcome = child.call(method, *arguments, deadline_s=deadline_s)
    return outcome
