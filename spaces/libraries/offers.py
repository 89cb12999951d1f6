"""Which programs libraries have functions for: asked before anything else is started."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from spaces.ir.lean_tvm import import_tvm_lean
from spaces.ir.schedules import InvalidCandidate, task_module
from spaces.libraries.calls import candidate_of, make_call
from spaces.libraries.registration import make_library, name_of, space_of
from tuner.candidate import Candidate
from tuner.errors import TunerError
from tuner.source import Source
from tuner.task import Task
from tuner.user_code.faults import blame


@dataclass(frozen=True, slots=True)
class Offers:
    """What libraries have.

    Attributes:
        candidates: by task key; only of tasks that have any.
        notes: lines for the user on libraries that have none of the programs.
        error: in one line, why a library cannot be used; empty if all can.
    """

    candidates: dict[str, tuple[Candidate, ...]]
    notes: tuple[str, ...] = ()
    error: str = ""


def offers(libraries: Sequence[Source], tasks: Sequence[Task]) -> Offers:
    """Ask each library for each program; those with symbolic dimensions are left out, as their
    kernels are judged on many shapes."""
    found: dict[str, dict[str, Candidate]] = {}
    notes = []
    try:
        for library in libraries:
            some = False
            for task in tasks:
                try:
                    candidate = None if task.shapes else offer(library, task)
                except InvalidCandidate as error:
                    notes.append(f"{name_of(library)} is not called for {task.name}: {error}")
                    some = True
                    continue
                if candidate is not None:
                    found.setdefault(task.key, {})[candidate.key] = candidate
                    some = True
            if not some:
                notes.append(f"{name_of(library)} has none of these programs")
    except TunerError as error:
        return Offers({}, error=str(error))
    return Offers({key: tuple(mine.values()) for key, mine in found.items()}, tuple(notes))


def offer(library: Source, task: Task) -> Candidate | None:
    """The candidate that calls a library's function for a task, if it has one.

    Raises:
        LayerFailed: the library is at fault.
        InvalidCandidate: the program cannot be a call.
    """
    program = task_module(task.module)["main"]
    symbol = symbol_for(library, program)
    if symbol is None:
        return None
    candidate = candidate_of(symbol, space_of(library))
    make_call(program, candidate)
    return candidate


def symbol_for(library: Source, program: Any) -> str | None:
    """The name of a library's function for a program; None where it has none."""
    theirs = make_library(library)
    with blame(library, "library, symbol"):
        symbol = theirs.symbol(program)
        if symbol is not None and not (isinstance(symbol, str) and symbol):
            raise TypeError(f"symbol gave {symbol!r}, which is no name")
        return symbol


class OffersChild:
    """`offers`, in a process of its own, as a user's code may do anything."""

    def __init__(self) -> None:
        import_tvm_lean()

    def offers(self, libraries: Sequence[Source], tasks: Sequence[Task]) -> Offers:
        """See `offers`."""
        return offers(libraries, tasks)
