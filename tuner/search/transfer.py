"""Transfer from similar tasks: candidates to begin a search with.

Two tasks are similar when their programs are made of the same parts, whatever their sizes: the
kinds of statements and expressions are counted, and the lengths of loops compared. The best
candidates of a similar task become parents: the space carries their decisions over as far as they
fit, and everything that follows is checked as any other candidate is.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tuner.candidate import Candidate, CandidateKind
from tuner.storage.base import RecordStore
from tuner.storage.facts import Defaults
from tuner.task import Task

_LEAST = 0.5
_TASKS = 4
_EACH = 4
_LOOP = ".For"
_NOT_COUNTED = ("ffi.", "relax.", "ir.IntImm", "ir.FloatImm", "ir.Range", "ir.SourceMap")


@dataclass(frozen=True, slots=True)
class Seeds:
    """Candidates that a search begins with.

    Attributes:
        known: the best candidates of the very same program, measured elsewhere for a target like
            this task's; each is worth a trial.
        parents: the best candidates of similar tasks; each is worth some drafts.
    """

    known: tuple[Candidate, ...] = ()
    parents: tuple[Candidate, ...] = ()


@dataclass(frozen=True, slots=True)
class Signature:
    """The traits of a program by which programs are compared.

    Attributes:
        parts: number of statements and expressions of each kind.
        loops: lengths of its loops, longest first.
    """

    parts: Counter[str]
    loops: tuple[int, ...]


def signature(module: str) -> Signature:
    """The signature of a module.

    Args:
        module: TVM's JSON of the module. Any other text has an empty signature.
    """
    try:
        nodes: list[dict[str, Any]] = json.loads(module)["nodes"]
        parts = Counter(
            kind
            for node in nodes
            if "." in (kind := str(node["type"])) and not kind.startswith(_NOT_COUNTED)
        )
        loops = [_length(nodes, node["data"]) for node in nodes if node["type"].endswith(_LOOP)]
    except (ValueError, KeyError, TypeError, IndexError, AttributeError):
        return Signature(Counter(), ())
    return Signature(parts, tuple(sorted(loops, reverse=True)))


def _length(nodes: Sequence[dict[str, Any]], loop: Mapping[str, int]) -> int:
    """A loop's length; 1 where not constant. A constant is a node that names its value's node."""
    extent = nodes[loop["extent"]].get("data")
    value = nodes[extent["value"]].get("data") if isinstance(extent, dict) else None
    return value if isinstance(value, int) and value > 0 else 1


def similarity(a: Signature, b: Signature) -> float:
    """Similarity from 0 (nothing in common) to 1 (equal but for names); symmetric."""
    all_parts = sum((a.parts | b.parts).values())
    if not all_parts:
        return 0.0
    shape = sum((a.parts & b.parts).values()) / all_parts
    if len(a.loops) != len(b.loops) or not a.loops:
        return shape / 2  # another number of loops: another computation
    apart = [abs(math.log2(x / y)) for x, y in zip(a.loops, b.loops, strict=True)]
    return shape / (1 + math.fsum(apart) / len(apart) / 8)


@dataclass(frozen=True, slots=True)
class Entry:
    """The best candidates of one task in one store; `elsewhere` if the store is another run's."""

    task: Task
    signature: Signature
    best: tuple[Candidate, ...]
    elsewhere: bool = True


def gather(tasks: Iterable[Task], own: RecordStore | None, others: Sequence[RecordStore]) -> Known:
    """Collect the best candidates of all tasks in the stores, for `Known.seeds`.

    Args:
        tasks: tasks about to be tuned.
        own: their run's store: its candidates can be parents for other tasks, but are not proposed
            again for their own.
        others: stores of other runs.
    """
    wanted = {task.key: task for task in tasks}
    entries: list[Entry] = []
    for store in (own, *others):
        if store is None:
            continue
        defaults = store.get(Defaults).by_task
        for task in store.tasks():
            fastest = [r.trial.candidate for r in store.scan(task.key, fastest=2 * _EACH + 1)]
            # The default schedule is every run's first trial anyway.
            # A library's function is no parent, and a run that names the library tries it anyway.
            kernels = [c for c in fastest if c.kind is not CandidateKind.LIBRARY]
            best = tuple(c for c in kernels if c.key != defaults.get(task.key))[:_EACH]
            if best and (store is not own or task.key in wanted):
                entries.append(
                    Entry(task, signature(task.module), best, elsewhere=store is not own)
                )
    return Known(tuple(entries))


@dataclass(frozen=True, slots=True)
class Known:
    """The best candidates of many tasks."""

    entries: tuple[Entry, ...]

    def seeds(self, task: Task, same: Collection[str] = ()) -> Seeds:
        """The seeds of a task's search, from tasks of the same kind of target only.

        Args:
            same: keys of the same program for other targets whose candidates can be tried as they
                are.
        """
        mine = signature(task.module)
        kind = _target_kind(task)
        known: dict[str, Candidate] = {}
        ranked: list[tuple[float, int]] = []
        for number, entry in enumerate(self.entries):
            if _target_kind(entry.task) != kind:
                continue
            if entry.task.key == task.key or entry.task.key in same:
                if entry.elsewhere:
                    known.update((c.key, c) for c in entry.best)
                continue
            alike = similarity(mine, entry.signature)
            if alike >= _LEAST:
                ranked.append((-alike, number))
        ranked.sort()
        parents = {c.key: c for _, n in ranked[:_TASKS] for c in self.entries[n].best}
        return Seeds(tuple(known.values()), tuple(parents.values()))


def _target_kind(task: Task) -> str:
    try:
        return str(json.loads(task.target).get("kind"))
    except (ValueError, AttributeError):
        return task.target
