"""Errors a user can cause or meet, each with the exit code of the command line.

    TunerError              exit 1: found by looking (a broken model, a held run folder)
      UsageError            exit 2: refused without opening anything (bad syntax)

Failures of trials are not exceptions: they are values, see `tuner.record.Status`.
"""

from __future__ import annotations


class TunerError(Exception):
    """An error that the user can mend. Its text is one line: what is wrong, and what to do."""

    exit_code = 1


class UsageError(TunerError):
    """The request itself is malformed: no file or device had to be looked at to see it."""

    exit_code = 2


def first_line(error: BaseException) -> str:
    """The first line of an error that says something, at most 200 characters."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return (lines[0] if lines else type(error).__name__)[:200]


def describe_error(error: BaseException) -> str:
    """The class of an error and its first line that says something, if there is one."""
    name = type(error).__name__
    return f"{name}: {first_line(error)}" if str(error).strip() else name
