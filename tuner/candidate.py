"""A point of a task's space, as data."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from enum import StrEnum

from tuner.task import Instance


class CandidateKind(StrEnum):
    """The form of a candidate's payload."""

    TRACE = "trace"
    """Schedule instructions and decisions, as the JSON of a TVM trace without post-processing."""
    LIBRARY = "library"
    """A symbol and the library that provides it."""
    PINNED = "pinned"
    """The hash of a hand-written function."""
    SPECIALISED = "closed"
    """A shape and a trace: the kernel that the trace makes, compiled for this shape alone."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A schedule of a task: a tagged, canonical payload and the space it came from.

    Two candidates are the same when their payloads are; the space only says who can read it.
    """

    kind: CandidateKind
    payload: str
    space: str

    @property
    def key(self) -> str:
        """Hash of the canonical payload."""
        return hashlib.sha256(f"{self.kind}\n{self.payload}".encode()).hexdigest()[:16]


def specialised_for(candidate: Candidate, instance: Instance) -> Candidate:
    """A kernel for many shapes as one that serves a single shape: the same schedule, but every
    loop's length is known when it is compiled."""
    payload = json.dumps([dict(instance), candidate.payload], separators=(",", ":"))
    return Candidate(CandidateKind.SPECIALISED, payload, candidate.space)


def generic_of(candidate: Candidate) -> tuple[Candidate, Instance]:
    """The kernel and the shape that a specialised copy was made of; see `specialised_for`."""
    shape, payload = json.loads(candidate.payload)
    return Candidate(CandidateKind.TRACE, payload, candidate.space), tuple(shape.items())


@dataclass(frozen=True, slots=True)
class Draft:
    """A request for one candidate: mutate `parent`, or sample afresh where there is none.

    Everything random about it follows from `seed`, so a draft gives the same candidate anywhere.

    Attributes:
        instance: the shape to be good for, where the task has symbolic dimensions.
        describe: answer with `parent` itself and what the space knows of it.
    """

    task_key: str
    number: int
    seed: int
    parent: Candidate | None = None
    instance: Instance = ()
    describe: bool = False
