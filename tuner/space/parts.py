"""The spaces that a user declares, as data."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

Schedules = Any
"""What a user's function returns: nothing, a `tvm.s_tir.Schedule`, or a list of these."""

DEFAULT_NAME = "SPACE"
"""The name in a space's file that is looked for where none is given."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One space of a union.

    Attributes:
        name: it is called so in records and reports.
        tasks: glob on the names of the tasks that it applies to.
    """

    name: str
    tasks: str = "*"


@dataclass(frozen=True, slots=True, kw_only=True)
class Template(Part):
    """A function that schedules a program and draws decisions on its way.

    It runs once for each program; the sampling instructions in the trace that it leaves span the
    space. It may return several schedules, each of which spans a part of it.

    Attributes:
        manual: it draws nothing: each schedule that it returns is a point.
        opaque: it runs for each point, and may look at what it drew (the RFC's replay of
            functions), which costs Python's time.
        postprocs: TVM's post-processors, which change or refuse each point; a function that makes
            them, as they need TVM.
        where: a predicate on draws that `named` has named, which are its parameters; only draws
            for which it holds are points. None for an opaque function, which can refuse itself.
        constants: its constants are decisions too: literal factors of splits and limits on
            unrolling, each drawn from values around it.
    """

    function: Callable[[Any], Schedules]
    manual: bool = False
    opaque: bool = False
    postprocs: Callable[[], list[Any]] = field(default=list)
    where: Callable[..., bool] | None = None
    constants: bool = False

    def __call__(self, schedule: Any) -> Schedules:
        """Schedule, as the function itself does."""
        return self.function(schedule)


@dataclass(frozen=True, slots=True, kw_only=True)
class Program(Part):
    """A function that makes a program from the task's own and from knobs, without a schedule.

    It gets the task's PrimFunc and a value for each knob by its name, with the target as the
    current one, and returns a PrimFunc of the same parameters that computes the same.

    Attributes:
        knobs: the values of each, in an order in which neighbours are alike.
        where: a predicate on knobs, by their names; only settings for which it holds are points.
    """

    function: Callable[..., Any]
    knobs: Mapping[str, tuple[int, ...]]
    where: Callable[..., bool] | None = None

    def __call__(self, program: Any, **knobs: int) -> Any:
        """Make a program, as the function itself does."""
        return self.function(program, **knobs)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """A function from a schedule and one of its blocks to one schedule or several.

    Attributes:
        blocks: glob on the names of the blocks that it applies to.
        annotation: it applies to blocks with this annotation only; empty is all of them.
    """

    name: str
    function: Callable[[Any, Any], Schedules]
    blocks: str = "*"
    annotation: str = ""

    def __call__(self, schedule: Any, block: Any) -> Schedules:
        """Apply, as the function itself does."""
        return self.function(schedule, block)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules(Part):
    """Rules that are applied to each block in turn, from a program's last to its first.

    Attributes:
        members: in order: rules, TVM's own `ScheduleRule` objects, or functions that make them.
        stock: TVM's default rules of the target come after them.
        postprocs: as in `Template`; None is TVM's default ones of the target.
        mutators: TVM's mutators with their weights; None is TVM's default ones of the target.
    """

    members: tuple[Any, ...]
    stock: bool = True
    postprocs: Callable[[], list[Any]] | None = None
    mutators: Callable[[], Mapping[Any, float]] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Stock(Part):
    """A space of TVM's own: a `SpaceGenerator`, or a function that makes one."""

    generator: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Dlight(Part):
    """TVM's dlight rules, whose constants are decisions."""

    name: str = "dlight"


@dataclass(frozen=True, slots=True, kw_only=True)
class Ours(Part):
    """What is searched where nothing else is said: micro-kernels, and TVM's rules."""

    name: str = "ours"


@dataclass(frozen=True, slots=True)
class Union:
    """Several spaces, searched jointly under one budget."""

    parts: tuple[Part, ...]
