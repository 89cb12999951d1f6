"""The search strategies a user can name."""

from __future__ import annotations

from collections.abc import Callable

from tuner.evolution import Evolution
from tuner.search import RandomReplay, SearchMaker
from tuner.similar import Seeds
from tuner.task import Task


def no_seeds(task: Task) -> Seeds:
    """Nothing is known of similar tasks."""
    return Seeds()


def search_maker(strategy: str, seeds: Callable[[Task], Seeds] = no_seeds) -> SearchMaker:
    """The maker of a strategy by its name: `evolutionary` or `random`.

    Args:
        seeds: what a task's search may begin with; `random` begins with nothing.
    """
    makers: dict[str, SearchMaker] = {
        "evolutionary": lambda task, seed: Evolution(task, seed, seeds=seeds(task)),
        "random": lambda task, seed: RandomReplay(task, seed),
    }
    return makers[strategy]
