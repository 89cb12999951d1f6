"""Which tasks have a run of their own in MLflow, below the model's.

All of a few tasks. Of many, those that take most of the model's time, as the default schedules say
once every task has a time: a page with hundreds of runs shows nothing. What is known of the others
is in the table of all tasks.

The choice only grows. A run that an older version tracked keeps the child runs that it has.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from collections.abc import Set as AbstractSet

from tuner.storage.facts import Defaults
from tuner.tracking.spool import Metrics, TaskEntry, TrackingPaths, read_lines
from tuner.tracking.stored_records import StoredRecords
from tuner.view.progress import TaskProgress, fold

MOST_CHILDREN = 20
TRIED = 8
"""Trials without any time, failed builds among them, after which a choice no longer waits for a
task: each task has as many before some get more."""
_PATIENCE = 40
"""Records, on the average of all tasks, after which it waits for none: one that was given up may
have no record at all."""
_PAGE = 500


def all_tried(progress: Iterable[TaskProgress]) -> bool:
    """Whether the choice can be made: every task has a time, or had its first trials, or most had
    so many that those that had none will have none."""
    tasks = list(progress)
    tried = [sum(p.statuses.values()) for p in tasks]
    waited = sum(tried) >= _PATIENCE * len(tasks)
    return waited or all(
        p.best_s is not None or n >= TRIED for p, n in zip(tasks, tried, strict=True)
    )


def heaviest(
    progress: Mapping[str, TaskProgress], had: AbstractSet[str], most: int = MOST_CHILDREN
) -> frozenset[str]:
    """The tasks to have a run: those that have one, and others with a time up to `most` in all,
    first those with the largest share of the model's time."""
    share = {
        key: p.task.weight * (p.default_s or p.best_s)
        for key, p in progress.items()
        if key not in had and p.best_s is not None
    }
    free = max(0, most - len(had))
    return frozenset(had) | frozenset(sorted(share, key=lambda k: -share[k])[:free])


class ChildRuns(StoredRecords):
    """The choice for one run, made from its records.

    Args:
        knows: whether a task has a run already.
    """

    def __init__(self, paths: TrackingPaths, knows: Callable[[str], bool]) -> None:
        super().__init__(paths.store)
        self._spool = paths.spool
        self._knows = knows
        self._read = 0
        self._announced: set[str] = set()
        self._chosen: frozenset[str] = frozenset()
        self._settled = False
        self._progress: dict[str, TaskProgress] = {}
        self._at = 0

    def read_spool(self) -> None:
        """Learn what tasks were announced since the last call. Raises OSError."""
        if self._spool.exists() and self._spool.stat().st_size < self._read:
            self._read = 0  # it was replaced
        for line in read_lines(self._spool, self._read):
            self._read = line.end
            if isinstance(line.entry, TaskEntry):
                self._announced.add(line.entry.task)
                self._settled &= line.entry.task in self._progress

    @property
    def few(self) -> bool:
        """Whether each task may have a run."""
        return len(self._announced) <= MOST_CHILDREN

    def has_run(self, task: str) -> bool:
        """Whether a task has a run, or shall have one."""
        return self.few or task in self._chosen or self._knows(task)

    def left_out(self, task: str) -> bool:
        """Whether a task shall have no run; False while that is open."""
        decided = self._settled or self._chosen or any(map(self._knows, self._announced))
        return bool(decided) and task in self._announced and not self.has_run(task)

    def takes(self, entry: object) -> bool:
        """Whether an entry of the spool is for a run that there is, or shall be."""
        match entry:
            case TaskEntry():
                return self.has_run(entry.task)
            case Metrics() if entry.task is not None:
                return self.has_run(entry.task) or entry.task not in self._announced
        return True

    def look(self) -> bool:
        """Choose, where it can be done now; return True if tasks were added to the choice.

        Raises:
            OSError, TunerError: the spool or the store cannot be read.
        """
        self.read_spool()
        had = {key for key in self._announced if self._knows(key)} | self._chosen
        if self.few or self._settled or len(had) >= MOST_CHILDREN:
            return False
        self._take_in()
        tried = all_tried(self._progress[k] for k in self._announced if k in self._progress)
        self._settled = (tried and self._announced <= self._progress.keys()) or self.over
        if not self._settled:
            return False
        chosen = heaviest(self._progress, had)
        grown = not chosen <= had
        self._chosen |= chosen
        return grown

    def _take_in(self) -> None:
        """Fold the records since the last time; a new task means all of them again."""
        with self._opened() as store:
            if store is None:
                return
            tasks = store.tasks()
            if {t.key for t in tasks} != self._progress.keys():
                self._progress, self._at = fold(tasks, store.get(Defaults).by_task, ()), 0
            while page := store.after(self._at, _PAGE):
                for self._at, record in page:
                    self._progress[record.trial.task_key].observe(record)
