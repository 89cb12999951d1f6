"""The toolchains that a run's times were taken with: times of two cannot be compared."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypedDict

from tuner.storage.base import RecordStore
from tuner.task import Task


class ToolchainStatus(TypedDict):
    """One toolchain of `StatusReport`.

    Keys:
        toolchain: versions of TVM, its ffi, LLVM and the passes.
        trials: search trials that gave a time with it.
        won: names of the tasks whose fastest trial in the search was timed with it.
    """

    toolchain: str
    trials: int
    won: list[str]


def toolchain_rows(store: RecordStore, tasks: Sequence[Task]) -> list[ToolchainStatus]:
    """The toolchains of a run; the one that was used last is the last."""
    counts = store.toolchains()
    won: dict[str, list[str]] = {}
    for task in tasks:
        # With a single one, as nearly always, who won with it need not be looked up.
        for used in counts if len(counts) == 1 else _of_fastest(store, task):
            if task.key in counts.get(used, {}):
                won.setdefault(used, []).append(task.name)
    return [
        ToolchainStatus(toolchain=used, trials=sum(mine.values()), won=won.get(used, []))
        for used, mine in counts.items()
    ]


def _of_fastest(store: RecordStore, task: Task) -> list[str]:
    return [record.provenance.toolchain for record in store.best(task.key, 1)]


def of_an_older(winners: Mapping[str, str], toolchains: Sequence[str]) -> list[str]:
    """The tasks whose winner was timed with another toolchain than the newest.

    Args:
        winners: toolchain of each task's winner, by its name; empty where it is not known.
        toolchains: the one that was used last is the last.
    """
    newest = toolchains[-1] if toolchains else ""
    return [name for name, used in winners.items() if used and newest and used != newest]
