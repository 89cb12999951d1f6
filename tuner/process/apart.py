"""A function's work in a process of its own: what runs a user's kernels may crash it, and must not
crash the command."""

from __future__ import annotations

import importlib
import os
import signal
import sys
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from tuner.errors import TunerError
from tuner.process.ask_once import ask_once
from tuner.process.outcome import Died, Outcome, Raised, Returned

T = TypeVar("T")

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
    log = new_log()
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
    if isinstance(outcome, Returned | Raised):
        sys.stderr.write(log.read_text(errors="replace"))
        log.unlink()
    return take_value(outcome, f"the process that {what}", log, _hint(outcome))


def new_log() -> Path:
    """An empty file for what a process prints."""
    descriptor, name = tempfile.mkstemp(".log", "tuner-")
    os.close(descriptor)
    return Path(name)


def take_value(outcome: Outcome, who: str, log: Path, hint: str = "") -> Any:
    """What a call of `give_value` gave.

    Args:
        who: the process, as a message calls it; `hint` follows how it was lost.

    Raises:
        TunerError: the call's own, or the process was lost.
        OSError: the call's own.
        RuntimeError: a defect of ours; its note is the traceback.
    """
    if isinstance(outcome, Raised):
        error = RuntimeError(str(outcome))
        error.add_note(outcome.traceback)
        raise error
    if not isinstance(outcome, Returned):
        raise TunerError(f"{who} was lost ({outcome}{hint}); what it printed is in {log}")
    if isinstance(outcome.value, Exception):
        raise outcome.value
    return outcome.value


def give_value(call: Callable[[], T]) -> T | Exception:
    """In the process: the result of a call, or an error of a user's, which is no defect."""
    try:
        return call()
    except (TunerError, OSError) as error:
        return error
    finally:
        sys.stdout.flush()  # to the log


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
        return give_value(lambda: getattr(importlib.import_module(module), name)(*args, **named))
