"""One field of a request: what it is called, how it is read, and what is said of it.

The command line, `tuner.tune` and the request itself read it by the same function.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, get_type_hints

from tuner.errors import UsageError

_SHOWN = 60
"""The number of characters of a refused value that a message shows."""


@dataclass(frozen=True, slots=True)
class Setting:
    """One field of a request.

    Attributes:
        flag: of the command line.
        read: takes a value, or the text that a user types, and gives the value, checked. None of a
            flag that stands for a value of its own: that which is not the default.
        help: what it is for, in a line.
        metavar: what stands for the value in the help.
        words: values that a shell completes to.
        files: whether a shell completes to files.
        repeated: whether it is given any number of times.
        default: as it is typed, where it differs from the field's.
        keyword: in Python; empty where it is the field's name.
        name: of the field.
        optional: whether it may be None.
    """

    flag: str
    read: Callable[[Any], Any] | None
    help: str
    metavar: str = ""
    words: tuple[str, ...] = ()
    files: bool = False
    repeated: bool = False
    default: str = ""
    keyword: str = ""
    name: str = ""
    optional: bool = True

    def check(self, value: Any) -> Any:
        """The value of the field, checked.

        Raises:
            UsageError: it is refused; the message names the field.
        """
        if self.read is None or (value is None and self.optional):
            return value
        if self.repeated:
            given = value if isinstance(value, list | tuple) else (value,)
            return tuple(check(self.name, each, self.read) for each in given)
        return check(self.name, value, self.read)


def check(name: str, value: Any, read: Callable[[Any], Any]) -> Any:
    """The value that is read; the error of a refused one names its field."""
    try:
        return read(value)
    except UsageError as error:
        raise UsageError(f"{name}={repr(value)[:_SHOWN]}: {error}") from error


def settings_of(request: Any) -> Mapping[str, Setting]:
    """The settings of a dataclass by the names of their fields, in their order: the fields whose
    types are annotated with one."""
    hints = get_type_hints(request, include_extras=True)
    return {
        each.name: replace(known, name=each.name, optional=each.default is None)
        for each in fields(request)
        for known in getattr(hints[each.name], "__metadata__", ())
        if isinstance(known, Setting)
    }
