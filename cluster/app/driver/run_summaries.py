"""Where the runs that `tuner top` shows are looked for: folders and URLs, this machine, a cluster.

Whoever looks takes no lock of a run and writes nothing into it. A run by URL has a local copy of
what it says, which is brought up to date for a look, less often than a folder is looked at.
"""

from __future__ import annotations

import contextlib
import threading
import time
import zlib
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path

from cluster.app.driver.kernel_sets import read_latencies_s
from tuner.errors import TunerError, describe_error, first_line
from tuner.report.summary import RunSummary, StoreSummaries, of_snapshot, unreadable
from tuner.run_location import RunLocation
from tuner.runs.folder import RunFolder, read_run, runs_below
from tuner.runs.remote import local, runs_at
from tuner.storage.sqlite_store import SqliteStore

Source = Callable[[float], Sequence[RunSummary]]
"""Gives the runs of one place as they are now; takes the time in seconds since the epoch."""

_BUSY_S = 1.0
_ANSWER_S = 3.0
_FIND_S = 5.0
_FETCH_S = 10.0
_LOCK = RunFolder(Path()).lock.name
_RUNS = "runs"
"""The folder that new runs are made in."""


class OneRun:
    """A `Source` of one run, by its folder or URL."""

    def __init__(self, location: RunLocation, clock: Callable[[], float] = time.monotonic) -> None:
        self._location = location
        self._summaries = StoreSummaries(str(location))
        self._clock = clock
        self._fetched: tuple[Path, float] | None = None

    def __call__(self, now_s: float) -> Sequence[RunSummary]:
        """The run, or a line that says why it cannot be read."""
        try:
            folder, manifest = read_run(self._folder())
            if not folder.store.exists():
                return [RunSummary(name=str(self._location), state="not begun")]
            store = SqliteStore(folder.store, read_only=True, busy_timeout_s=_BUSY_S)
            with contextlib.closing(store):
                known = partial(read_latencies_s, most=manifest.max_kernels)
                return [self._summaries.look(store, now_s, known)]
        except TunerError as error:
            why = first_line(error)
        except (OSError, ValueError, zlib.error) as error:
            why = f"damaged: {describe_error(error)}"
        return [unreadable(str(self._location), why)]

    def _folder(self) -> Path:
        """The folder of the run, or of its copy, which is not fetched anew at every look."""
        now_s = self._clock()
        if self._fetched is None or now_s - self._fetched[1] >= _FETCH_S:
            self._fetched = local(self._location), now_s
        return self._fetched[0]


class Runs:
    """A `Source` of several runs, one after the other."""

    def __init__(self, sources: Sequence[Source]) -> None:
        self._sources = sources

    def __call__(self, now_s: float) -> Sequence[RunSummary]:
        """All of them."""
        return [summary for source in self._sources for summary in source(now_s)]


def find_runs(location: RunLocation) -> list[OneRun]:
    """The run at a location, or the runs that lie in a folder that is none."""
    return [*map(OneRun, runs_at(location))]


class RunsHere:
    """A `Source` of this machine's runs: those at work, whoever started them, and those that lie
    below a folder.

    Args:
        folder: runs in it, in its `runs/`, and for each device below that are found.
        at_work: gives the folders of the runs at work.
        clock: seconds that never go back.
    """

    def __init__(
        self,
        folder: Path,
        at_work: Callable[[], Iterable[Path]],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._folder, self._at_work, self._clock = folder, at_work, clock
        self._runs: dict[Path, OneRun] = {}
        self._next_s = clock()

    def __call__(self, now_s: float) -> Sequence[RunSummary]:
        """All of them."""
        if self._clock() >= self._next_s:
            found = {path.resolve(): path for path in (*self._at_work(), *self._below())}
            known = self._runs
            self._runs = {
                at: known.get(at) or OneRun(RunLocation.of(path)) for at, path in found.items()
            }
            self._next_s = self._clock() + _FIND_S
        return [summary for run in self._runs.values() for summary in run(now_s)]

    def _below(self) -> list[Path]:
        runs = self._folder / _RUNS
        places = [self._folder, runs, *(path for path in runs.glob("*") if path.is_dir())]
        return [Path(name) for place in places for name in runs_below(place)]


def runs_at_work() -> list[Path]:
    """The folders of the runs that processes of this machine work on, as far as this user may see:
    a process that works on a run has its lock open."""
    import psutil

    found: dict[Path, None] = {}
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            for file in process.open_files():
                path = Path(file.path)
                if path.name == _LOCK and RunFolder(path.parent).manifest.exists():
                    found[path.parent] = None
    return [*found]


def searches_there(now_s: float) -> Sequence[RunSummary]:
    """A `Source` of the searches on the cluster that this process is connected to."""
    from cluster.search.looks import looks

    found = []
    for name, state in looks(_ANSWER_S).items():
        if isinstance(state, str):
            found.append(unreadable(name, state))
        elif state.snapshot is None:
            failed = f"failed: {state.error}" if state.error else ""
            said = failed or "starting"
            found.append(RunSummary(name=state.run or name, state=said, at_work=not failed))
        else:
            found.append(of_snapshot(state.run or name, state.snapshot, state.ended, state.error))
    return found


class Looking:
    """Looks at a source again and again on a thread of its own, so that nobody waits for a disk or
    a cluster that does not answer. A tenth of that thread's time at most is spent with looking.

    Args:
        every_s: time from one look to the next, at least.
    """

    def __init__(self, source: Source, name: str, *, every_s: float = 1.0) -> None:
        self._source, self._name, self._every_s = source, name, every_s
        self._stop = threading.Event()
        self._seen = threading.Event()
        self._last: Sequence[RunSummary] = ()
        self._thread = threading.Thread(target=self._look, name=f"look-{name}", daemon=True)
        self._thread.start()

    def last(self) -> Sequence[RunSummary]:
        """What was seen last; a line that says so before anything was."""
        return self._last if self._seen.is_set() else (unreadable(self._name, "looking"),)

    def wait(self, timeout_s: float) -> None:
        """Wait until something was seen, but not for ever."""
        self._seen.wait(timeout_s)

    def stop(self) -> None:
        """Look no more once a look in progress is done."""
        self._stop.set()

    def join(self, timeout_s: float) -> None:
        """Wait for a look in progress, but not for ever."""
        self._thread.join(max(0.0, timeout_s))

    def _look(self) -> None:
        while not self._stop.is_set():
            began_s = time.monotonic()
            try:
                self._last = self._source(time.time())
            except Exception as error:  # the thread's border: a table must not stand still unsaid
                self._last = [unreadable(self._name, describe_error(error))]
            self._seen.set()
            self._stop.wait(max(self._every_s, 9 * (time.monotonic() - began_s)))
