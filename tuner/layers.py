"""The layers of the tuner that a user may replace, as data."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields

from tuner.source import Source


@dataclass(frozen=True, slots=True)
class Layers:
    """What a user puts in the place of ours, or beside it; `tuner.contracts.contracts` says what
    each must be able to do.

    Attributes:
        strategy: chooses a task's next trials.
        cost_model: predicts which candidate is faster.
        features: what a cost model is told of a candidate.
        allocator: chooses the task that gets the next trials.
        builder: compiles a scheduled program.
        runner: times a kernel.
        measurer: builds and times trials, in the place of all machines.
        store: keeps the records, beside the run's own store.
        mutators: change the traces of candidates, beside those of their space.
        postprocs: change or refuse each schedule once it is written.
        observers: are told of everything, beside our own.
        libraries: have functions for some programs, which are timed beside kernels.
    """

    strategy: Source | None = None
    cost_model: Source | None = None
    features: Source | None = None
    allocator: Source | None = None
    builder: Source | None = None
    runner: Source | None = None
    measurer: Source | None = None
    store: Source | None = None
    mutators: tuple[Source, ...] = ()
    postprocs: tuple[Source, ...] = ()
    observers: tuple[Source, ...] = ()
    libraries: tuple[Source, ...] = ()

    def __iter__(self) -> Iterator[tuple[str, Source]]:
        """Each replaced layer, with its name as of the fields."""
        for field in fields(self):
            value = getattr(self, field.name)
            for source in value if isinstance(value, tuple) else (value,):
                if source is not None:
                    yield field.name, source

    def __bool__(self) -> bool:
        """Whether any is replaced."""
        return any(True for _ in self)


OURS = Layers()
"""Nothing is replaced."""


def versions(layers: Layers) -> dict[str, str]:
    """The file, name and version of each replaced layer, by its name."""
    found: dict[str, list[str]] = {}
    for name, source in layers:
        found.setdefault(name, []).append(f"{source.file}:{source.name}@{source.version}")
    return {name: ", ".join(said) for name, said in found.items()}
