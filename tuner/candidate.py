"""A point of a task's space, as data."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from tuner.task import Instance


class CandidateKind(StrEnum):
    """The form of a candidate's payload."""

    TRACE = "trace"
    """Schedule instructions and decisions, as the JSON of a TVM trace without post-processing."""
    KNOBS = "knobs"
    """Settings of the knobs of a template, or of a declared function, as canonical JSON; the space
    names it."""
    LIBRARY = "library"
    """The name of a packed function, of the library that the space names."""
    PINNED = "pinned"
    """The hash of a hand-written function."""
    SPECIALISED = "closed"
    """A shape and a candidate: the kernel that it stands for, compiled for this shape alone."""


LIBRARIES = "library"
"""The family of the spaces whose candidates call libraries."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A schedule of a task: a tagged, canonical payload and the space it came from.

    Two traces are the same when their payloads are: the space only says who made them. Settings,
    and names of functions, mean something to their own space only, which is part of their identity.

    Attributes:
        trace: the trace that settings were written as, or the program, as a JSON object, where they
            make one that is no schedule of the task's; empty before a builder has written them, and
            for any other kind. Later builds take it, whatever has become of the template since.
    """

    kind: CandidateKind
    payload: str
    space: str
    trace: str = field(default="", compare=False, repr=False)

    @property
    def key(self) -> str:
        """Hash of the canonical payload, and of the space where that is part of the identity."""
        of = f"{self.kind}\n{self.payload}"
        if self.kind in (CandidateKind.KNOBS, CandidateKind.LIBRARY):
            of += f"\n{self.space}"
        return hashlib.sha256(of.encode()).hexdigest()[:16]

    @property
    def is_schedule(self) -> bool:
        """Whether it is a schedule of the task's program, which a trace tells; of settings that is
        known once they are built."""
        return not self.holds_program and self.kind is not CandidateKind.LIBRARY

    @property
    def holds_program(self) -> bool:
        """Whether `trace` is a program."""
        return self.trace.startswith("{")


def family(space: str) -> str:
    """The kind of a space, by its name: what comes before the colon."""
    return space.partition(":")[0]


def form_of(space: str) -> str:
    """The name of a template's space without the number of its variant: spaces of one form have the
    same knobs, which mean the same."""
    return space.partition(".")[0]


def without_version(space: str) -> str:
    """The name of a space as people know it."""
    return space.partition("@")[0]


def display_space(space: str) -> str:
    """The same, and a declared space under the name alone that its user gave it."""
    return without_version(space).removeprefix("declared:")


def library_name(space: str) -> str:
    """The name of the library that a candidate's space is of."""
    return without_version(space).partition(":")[2]


def library_space(candidate: Candidate) -> str:
    """The space of the library that a candidate calls; empty of a kernel."""
    return candidate.space if candidate.kind is CandidateKind.LIBRARY else ""


def of_knobs(knobs: Mapping[str, int], space: str) -> Candidate:
    """The candidate that the template named by `space` makes with these settings."""
    payload = json.dumps({name: int(knobs[name]) for name in sorted(knobs)}, separators=(",", ":"))
    return Candidate(CandidateKind.KNOBS, payload, space)


def knobs_of(candidate: Candidate) -> dict[str, int] | None:
    """The settings that a candidate stands for; None where it has none."""
    if candidate.kind is not CandidateKind.KNOBS:
        return None
    return {name: int(value) for name, value in json.loads(candidate.payload).items()}


def specialise_for(candidate: Candidate, instance: Instance) -> Candidate:
    """A kernel for many shapes as one that serves a single shape: the same schedule, but every
    loop's length is known when it is compiled."""
    parts: list[object] = [dict(instance), candidate.payload]
    if candidate.kind is not CandidateKind.TRACE:
        parts += [str(candidate.kind), candidate.space]
    payload = json.dumps(parts, separators=(",", ":"))
    return Candidate(CandidateKind.SPECIALISED, payload, candidate.space, candidate.trace)


def generic_of(candidate: Candidate) -> tuple[Candidate, Instance]:
    """The kernel and the shape that a specialised copy was made of; see `specialise_for`."""
    shape, payload, *more = json.loads(candidate.payload)
    kind = CandidateKind(more[0]) if more else CandidateKind.TRACE
    return Candidate(kind, payload, candidate.space, candidate.trace), tuple(shape.items())


@dataclass(frozen=True, slots=True)
class Draft:
    """A request for one candidate: mutate `parent`, or sample afresh where there is none.

    Everything random about it follows from `seed`, so a draft gives the same candidate anywhere.

    Attributes:
        instance: the shape to be good for, where the task has symbolic dimensions.
        describe: answer with `parent` itself and what the space knows of it.
        listing: answer with many settings of the task's templates in place of one candidate: those
            near `parent`, that one included, or else all that are worth a look.
        weights: factors on the odds of spaces, by their names, that the search has learned; 1 for
            any other (see `tuner.search.shares`).
        anew: run what makes a space's schedules anew for this sample, where that can be run.
    """

    task_key: str
    number: int
    seed: int
    parent: Candidate | None = None
    instance: Instance = ()
    describe: bool = False
    listing: bool = False
    weights: tuple[tuple[str, float], ...] = ()
    anew: bool = False
