"""Refusals of a program, by TVM or by us, after which the work goes on; told apart from mistakes.

A program that a template cannot schedule is no trouble: another template takes it, or the rules do.
A mistake in the template looks the same from outside, and would silently disable the template.
"""

from __future__ import annotations

import logging
import os

from spaces.ir import tvm_compat
from spaces.ir.schedules import InvalidCandidate
from tuner.errors import first_line

STRICT = "TUNER_STRICT"
"""Environment variable: where it is set, as in the tests, a mistake of ours is raised."""

_log = logging.getLogger(__name__)
_told: set[str] = set()
_MISTAKES = (TypeError, LookupError, AttributeError, AssertionError, ArithmeticError, NameError)
"""Errors that TVM passes on from code that calls it wrongly, or from callbacks."""


class Unsuitable(ValueError):
    """A program that a template, or one of its ways to schedule, is not made for."""


def is_refusal(error: BaseException) -> bool:
    """Whether an error says that something cannot be done with a program, by TVM or by us.

    TVM's refusals are `ScheduleError`, `tvm.error.*`, and each plain `ValueError` or `RuntimeError`
    of its C++ side, which its bindings mark. A mistake in Python that C++ called has that mark too,
    but mostly is of another kind.
    """
    if isinstance(error, (Unsuitable, InvalidCandidate, *tvm_compat.refusal_kinds())):
        return True
    marked = hasattr(error, "__tvm_ffi_error__")
    plain = isinstance(error, (RuntimeError, ValueError)) and not isinstance(error, _MISTAKES)
    return marked and plain


def note(error: Exception, what: str, *, level: int = logging.INFO) -> None:
    """Log an error after which the work goes on.

    A refusal is logged at `level`, a mistake of ours as an error; each once for each `what`.

    Args:
        what: the part that the work goes on without, and for which task.
        level: log level of a refusal.

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
    """A context that ends at a refusal and suppresses it; the work goes on after it, see `note`."""

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
