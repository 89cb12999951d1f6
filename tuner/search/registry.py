"""The search strategies a user can name."""

from __future__ import annotations

from collections.abc import Callable

from tuner.cost_models.prior import NO_PRIORS, Priors
from tuner.request.options import MAX_KERNELS
from tuner.search.base import Search, SearchMaker
from tuner.search.dynamic.kernel_search import KernelSearch
from tuner.search.pool.rules import Improvement
from tuner.search.pool.static_search import StaticSearch
from tuner.search.random_search import RandomSearch
from tuner.search.transfer import Seeds
from tuner.task import Task


def no_seeds(task: Task) -> Seeds:
    """No seeds, for any task."""
    return Seeds()


def search_maker(
    strategy: str | SearchMaker,
    seeds: Callable[[Task], Seeds] = no_seeds,
    *,
    max_kernels: int = MAX_KERNELS,
    priors: Priors = NO_PRIORS,
) -> SearchMaker:
    """The maker of a strategy by its name, one of `tuner.checks.STRATEGIES`; or a user's own.

    Tasks with symbolic dimensions have a search of their own.

    Args:
        seeds: the seeds of a task's search; those that draw at random take none.
        priors: what is known of the settings of other tasks.
        max_kernels: most kernels in the set for a task with symbolic dimensions.
    """
    makers: dict[str, SearchMaker] = {
        "evolutionary": lambda task, seed: StaticSearch(
            task, seed, Improvement(seed), seeds(task), priors
        ),
        "random": lambda task, seed: RandomSearch(task, seed),
        "replay-function": lambda task, seed: RandomSearch(task, seed, anew=True),
    }
    static = makers[strategy] if isinstance(strategy, str) else strategy

    def make(task: Task, seed: int) -> Search:
        return KernelSearch(task, seed, max_kernels) if task.shapes else static(task, seed)

    return make
