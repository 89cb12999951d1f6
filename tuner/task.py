"""A tensor program to tune, as data."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field, fields

from tuner.source import Source

Instance = tuple[tuple[str, int], ...]
"""Values of the symbolic dimensions, sorted by name; empty when static."""

Shapes = tuple[tuple[Instance, float], ...]
"""Instances to be fast for, each with its weight. Weights are above zero."""


DECLARED = "declared"
"""The family of the spaces that users declare."""


@dataclass(frozen=True, slots=True)
class SpaceSource(Source):
    """A user's file that says what to search.

    Attributes:
        parts: names of those of its spaces that apply to a task; empty is not known yet.
    """

    parts: tuple[str, ...] = ()

    @staticmethod
    def of(source: Source) -> SpaceSource:
        """The space that a source names."""
        return SpaceSource(**{each.name: getattr(source, each.name) for each in fields(source)})

    def space_name(self, part: str) -> str:
        """The name of the space that candidates of a part carry; it changes with the file."""
        return f"{DECLARED}:{part}@{self.version}"


@dataclass(frozen=True, slots=True)
class Task:
    """One tensor program on one target.

    Attributes:
        key: content hash of the program and its target; equal programs share it.
        name: where it came from, for people; unique within a run.
        module: the IRModule as TVM JSON, its one function normalised to the name "main".
        target: canonical JSON of the TVM target.
        weight: how many times it runs in the model.
        flops: floating point operations of one run; 0 where they are not counted.
        shapes: the instances that a program with symbolic dimensions is tuned for; its kernels
            compute any other shape too. Empty when static.
        space: what its user says to search; None is everything that we know. It is no part of
            what the task is.
    """

    key: str
    name: str
    module: str
    target: str
    weight: float = 1.0
    flops: float = 0.0
    shapes: Shapes = ()
    space: SpaceSource | None = field(default=None, compare=False, repr=False)


def task_key(program_hash: str, target: str) -> str:
    """Key of a task from the structural hash of its program and its target's canonical JSON."""
    return hashlib.sha256(f"{program_hash}\n{target}".encode()).hexdigest()[:16]
