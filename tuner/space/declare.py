"""The words with which a user's file declares its spaces."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tuner.errors import UsageError
from tuner.space.parts import Dlight, Ours, Part, Program, Rule, Rules, Stock, Template, Union


def manual(function: Any = None, *, tasks: str = "*", name: str = "") -> Any:
    """Declare one schedule: a function on a `tvm.s_tir.Schedule` that draws nothing."""
    return _declare(
        function, lambda f: Template(name=name or f.__name__, tasks=tasks, function=f, manual=True)
    )


def template(
    function: Any = None,
    *,
    tasks: str = "*",
    name: str = "",
    opaque: bool = False,
    postprocs: Callable[[], list[Any]] = list,
    where: Callable[..., bool] | None = None,
    constants: bool = False,
) -> Any:
    """Declare a template: a function on a `tvm.s_tir.Schedule` that draws its decisions.

    Args:
        opaque, postprocs, where, constants: see `tuner.space.parts.Template`.

    Raises:
        UsageError: of opaque, where and constants, more than one is given.
    """
    if opaque and where is not None:
        raise UsageError("where= is of a template that is not opaque: return [] in its place")
    if constants and (opaque or where is not None):
        raise UsageError("constants= is of a template without opaque= and where=")
    return _declare(
        function,
        lambda f: Template(
            name=name or f.__name__,
            tasks=tasks,
            function=f,
            opaque=opaque,
            postprocs=postprocs,
            where=where,
            constants=constants,
        ),
    )


def program(
    function: Any = None,
    *,
    knobs: Mapping[str, Sequence[int]],
    tasks: str = "*",
    name: str = "",
    where: Callable[..., bool] | None = None,
) -> Any:
    """Declare a function that makes a program from the task's own and from knobs.

    Args:
        knobs, where: see `tuner.space.parts.Program`.

    Raises:
        UsageError: a knob has no values, or one that is no integer.
    """
    for knob, values in knobs.items():
        if not values or not all(type(value) is int for value in values):
            raise UsageError(f"knobs: {knob} has to have values, all of them integers")
    choices = {knob: tuple(values) for knob, values in knobs.items()}
    return _declare(
        function,
        lambda f: Program(
            name=name or f.__name__, tasks=tasks, function=f, knobs=choices, where=where
        ),
    )


def rule(function: Any = None, *, blocks: str = "*", annotation: str = "", name: str = "") -> Any:
    """Declare a rule: a function on a schedule and one of its blocks. Returning nothing, or the
    schedule untouched, says that it does not apply."""
    return _declare(
        function,
        lambda f: Rule(name=name or f.__name__, function=f, blocks=blocks, annotation=annotation),
    )


def rules(
    *members: Any,
    tasks: str = "*",
    name: str = "rules",
    stock: bool = True,
    postprocs: Callable[[], list[Any]] | None = None,
    mutators: Callable[[], Mapping[Any, float]] | None = None,
) -> Rules:
    """The space that rules span, with TVM's own unless `stock` is False; see `Rules`."""
    if not members and not stock:
        raise UsageError(f"{name}: a space of no rules")
    return Rules(
        name=name,
        tasks=tasks,
        members=members,
        stock=stock,
        postprocs=postprocs,
        mutators=mutators,
    )


def generator(space_generator: Any, *, tasks: str = "*", name: str = "generator") -> Stock:
    """A `SpaceGenerator` of TVM's, or a function that makes one, as it is."""
    return Stock(name=name, tasks=tasks, generator=space_generator)


def dlight(*, tasks: str = "*", name: str = "dlight") -> Dlight:
    """TVM's dlight rules for the target, the constants in what they do being decisions."""
    return Dlight(name=name, tasks=tasks)


def ours() -> Ours:
    """The micro-kernels and TVM's rules, which are searched where nothing else is said."""
    return Ours()


def union(*parts: Any) -> Union:
    """Several spaces at once. Plain functions are templates.

    Raises:
        UsageError: a part is no space, or two have one name.
    """
    found = tuple(part for given in parts for part in parts_of(given))
    names = [part.name for part in found]
    for part in found:
        if names.count(part.name) > 1:
            raise UsageError(f"two spaces are called {part.name}: give one another name=")
    return Union(found)


def parts_of(value: Any) -> tuple[Part, ...]:
    """The spaces that a value declares.

    Raises:
        UsageError: it declares none.
    """
    if isinstance(value, Part):
        return (value,)
    if isinstance(value, Union):
        return value.parts
    if isinstance(value, Rule):
        return (rules(value, name=value.name),)
    if inspect.isfunction(value):
        return (Template(name=value.__name__, function=value),)
    if any(c.__name__ == "SpaceGenerator" for c in type(value).__mro__):
        return (generator(value, name=type(value).__name__),)
    raise UsageError(
        f"{_show(value)} is no space: it should be a function, one declared with space.manual, "
        "space.template, space.program or space.rule, or space.rules(), space.generator(), "
        "space.dlight(), space.ours(), space.union() of such"
    )


def _declare(function: Any, make: Callable[[Any], Any]) -> Any:
    """What a decorator returns, used with arguments or without."""
    if function is None:
        return make
    if not callable(function):
        raise UsageError(f"{_show(function)} is no function to declare as a space")
    return make(function)


def _show(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
