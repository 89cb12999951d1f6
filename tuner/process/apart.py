"""A function's work in a process of its own: what runs a user's kernels may crash it, and must not
crash the command."""

from __future__ import annotations

import importlib
import os
import signal
import sys
import tempfile
import warnings
from pathlib import Path
from typing import Any

from tuner.errors import TunerError
from tuner.process.ask_once import ask_once
from tuner.process.outcome import Died, Outcome, Raised, Returned

_CHILD = "tuner.process.apart:Caller"
_START_S, _DEADLINE_S = 120.0, 3600.0


def apart(function: str, *args: Any, what: str, **named: Any) -> Any:
    """Call `module:function` in a process of its own, and return what it returns.

    What the process prints is shown, but not where it crashes: then a file has it.

    Args:
        what: it does, for the message about a crash: "runs its kernels".

    Raises:
        TunerError: the function's own, or the process crashed, or took an hour.
        OSError: the function's own.
    """
    descriptor, name = tempfile.mkstemp(".log", "tuner-")
    os.close(descriptor)
    log = Path(name)
    outcome = ask_once(
        _CHILD,
        (),
        "call",
        function,
        args,
        named,
        ready_s=_START_S,
        deadline_s=_DEADLINE_S,
        log=log,
    )
    if not isinstance(outcome, Returned | Raised):
        raise TunerError(
            f"the process that {what} was lost ({outcome}{_hint(outcome)}); what it printed is in "
            f"{log}"
        )
    sys.stderr.write(log.read_text(errors="replace"))
    log.unlink()
    if isinstance(outcome, Raised):  # a defect of ours
        error = RuntimeError(str(outcome))
        error.add_note(outcome.traceback)
        raise error
    if isinstance(outcome.value, Exception):
        raise outcome.value
    return outcome.value


def _hint(outcome: Outcome) -> str:
    if isinstance(outcome, Died) and outcome.signal == signal.SIGFPE:
        return ", as by a division by zero: give values with --input when the model is tuned"
    return ""


class Caller:
    """Runs in the process."""

    def __init__(self) -> None:
        warnings.simplefilter("ignore")  # as in commands: a user cannot act on a library's

    def call(self, function: str, args: tuple[Any, ...], named: dict[str, Any]) -> Any:
        """The function's result, or an error of a user's."""
        module, _, name = function.partition(":")
        try:
            return getattr(importlib.import_module(module), name)(*args, **named)
        except (TunerError, OSError) as error:
            return error
        finally:
            sys.stdout.flush()  # to the log
