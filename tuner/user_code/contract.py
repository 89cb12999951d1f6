"""Whether a user's class can do what its layer must."""

from __future__ import annotations

import inspect
from typing import Any

from tuner.errors import UsageError


def methods_of(contract: type) -> tuple[str, ...]:
    """The public methods and properties that a protocol asks for, in its order."""
    return tuple(
        name
        for name, value in vars(contract).items()
        if not name.startswith("_") and (callable(value) or isinstance(value, property))
    )


def check(made: Any, contract: type, what: str) -> None:
    """Check that a class has all that a contract asks for; a function that makes an object is
    believed until it is called.

    Args:
        made: the class, or an object of it.
        what: it should be, for the message.

    Raises:
        UsageError: it lacks a method, or a method takes too few arguments; or it is neither class
            nor function.
    """
    if inspect.isfunction(made):
        return
    kind = made if inspect.isclass(made) else type(made)
    if kind.__module__ == "builtins":
        raise UsageError(f"{made!r} is no {what}: a class is wanted, or a function that makes it")
    for name in methods_of(contract):
        if not hasattr(kind, name):
            asked = ", ".join(methods_of(contract))
            raise UsageError(f"{kind.__name__} has no {name}: a {what} has {asked}")
        _check_arguments(kind, name, contract, what)


def _check_arguments(kind: type, name: str, contract: type, what: str) -> None:
    """Refuse a method that cannot be called as its contract says."""
    theirs, ours = getattr(kind, name), vars(contract)[name]
    if not (inspect.isfunction(theirs) and inspect.isfunction(ours)):
        return
    wanted = list(inspect.signature(ours).parameters.values())
    positional = [object() for p in wanted if p.kind is p.POSITIONAL_OR_KEYWORD]
    named = {p.name: object() for p in wanted if p.kind is p.KEYWORD_ONLY}
    try:
        inspect.signature(theirs).bind(*positional, **named)
    except TypeError as error:
        shown = ", ".join(p.name for p in wanted[1:])
        raise UsageError(
            f"{kind.__name__}.{name} cannot be called with ({shown}), as a {what} is: {error}"
        ) from error
