"""The search strategies a user can name."""

from __future__ import annotations

from tuner.evolution import Evolution
from tuner.search import RandomReplay, SearchMaker


def search_maker(strategy: str) -> SearchMaker:
    """The maker of a strategy by its name: `evolutionary` or `random`."""
    makers: dict[str, SearchMaker] = {
        "evolutionary": lambda task, seed: Evolution(task, seed),
        "random": lambda task, seed: RandomReplay(task, seed),
    }
    return makers[strategy]
