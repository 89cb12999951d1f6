"""Where TVM may refuse a program and the work goes on without: its refusals and our own, told apart
from our mistakes.

A program that a template cannot write down is no trouble: another template takes it, or the rules
do. A mistake in the template looks the same from outside, and would make it vanish without a word.
"""

from __future__ import annotations

import logging
import os

from spaces.ir import tvm_compat
from spaces.ir.schedules import InvalidCandidate
from tuner.errors import first_line

STRICT = "TUNER_STRICT"
"""Environment variable: where it is set, as in the tests, a mistake of ours ends what it is in."""

_log = logging.getLogger(__name__)
_told: set[str] = set()
_MISTAKES = (TypeError, LookupError, AttributeError, AssertionError, ArithmeticError, NameError)
"""What TVM hands on of code that calls it wrongly, or that it calls."""


class Unsuitable(ValueError):
    """A program is not what a template, or one of its ways to write a program down, is for."""


def is_refusal(error: BaseException) -> bool:
    """Whether an error says of a program that it cannot be done, by TVM's word or by ours.

    TVM's are `ScheduleError`, `tvm.error.*`, and what its C++ side throws as a plain `ValueError`
    or `RuntimeError`, which its bindings leave a mark on. A mistake in Python that C++ called has
    that mark too, but mostly is of another kind.
    """
    if isinstance(error, (Unsuitable, InvalidCandidate, *tvm_compat.refusal_kinds())):
        return True
    marked = hasattr(error, "__tvm_ffi_error__")
    plain = isinstance(error, (RuntimeError, ValueError)) and not isinstance(error, _MISTAKES)
    return marked and plain


def note(error: Exception, what: str, *, level: int = logging.INFO) -> None:
    """Take note of an error that the work goes on without.

    A refusal is logged for those who ask for it, a mistake of ours for everybody; either once for
    each `what`.

    Args:
        what: was not to be had, and for which task.
        level: of the log, for a refusal.

    Raises:
        Exception: it is a mistake of ours, and `STRICT` is set.
    """
    if not is_refusal(error):
        if os.environ.get(STRICT):
            raise error
        _tell(logging.ERROR, f"{what}: a defect of tuner, {type(error).__name__}", error)
        return
    _tell(level, what, error)


class refusals:
    """A block that a refusal ends; what comes after it goes on without, see `note`."""

    def __init__(self, what: str) -> None:
        self._what = what

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: object
    ) -> bool:
        if not isinstance(error, Exception):
            return False
        note(error, self._what)
        return True


def _tell(level: int, what: str, error: Exception) -> None:
    if what in _told:
        return
    _told.add(what)
    _log.log(level, "%s: %s", what, first_line(error), exc_info=_log.isEnabledFor(logging.DEBUG))
