"""The search actor: hosts a run's session, and is the only writer of the run's store.

The session's loop has a thread of its own, so that the actor still answers. Its whole state comes
from its job and the run folder: Ray may restart it at any time. On a shared cluster it does not
depend on the driver that started it, which may come and go; it ends by itself soon after its
session has.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from uuid import uuid4

import ray

from cluster.ray_workers.grafana import offer_dashboard
from cluster.ray_workers.metrics import RunMetrics
from cluster.search.import_check import ImportChecking
from cluster.search.job import SearchJob, SearchState, load, save
from cluster.search.run_facts import name_run, run_tags
from cluster.search.theirs import observers_of
from cluster.search.wiring import machines, new_session, quiet_lock
from tuner.dynamic.kernel_set import KernelSet
from tuner.errors import TunerError, describe_error
from tuner.measure import MeasuredPrograms
from tuner.runs.folder import RunFolder
from tuner.runs.import_check import refuse_wrong_import
from tuner.runs.lock import RunLock
from tuner.runs.remote import open_store, remote_run, run_uuid
from tuner.session.history_keeper import HistoryKeeper
from tuner.session.observer import Observer
from tuner.session.session import Session
from tuner.storage.base import RecordStore
from tuner.storage.facts import Defaults, Tasks
from tuner.tracking.entries import TrackingPaths
from tuner.tracking.tracker import RunStatus, TrackerProcess, TrackingObserver
from tuner.utilisation import Utilisation
from tuner.view.spaces import fruitless
from tuner.view.winners import winning_lines

_log = logging.getLogger(__name__)

_TRACKING_S = 15.0
_TRACKING_LOCAL_S = 60.0
"""The time for MLflow to catch up. It makes its database before the first entry, which takes tens
of seconds on a busy machine; a server may be gone, a database on this machine is only slow."""
_TRACKING_WHEN_CUT_SHORT_S = 8.0
_IMPORT_CHECK_S = 60.0
"""The time for which the end of the session waits for the comparison of the model."""
_GOODBYE_S = 3.0
"""The time for which the actor answers after it told a driver of its end: others may watch too."""
_LINGER_S = 60.0
"""The time for which a detached actor waits for a driver to ask how it ended."""
_SHOWN_AT_ONCE = 200_000
"""Records of a run whose page is written at its end: that takes seconds, which a driver waits."""
_FRUITLESS = 5
"""Deaths in a row without a single record in between, after which the search gives up."""


class SearchHost:
    """Runs one session on a thread. A plain class, which `SearchActor` makes an actor of.

    Args:
        saved_job: the file that `cluster.search.job.save` wrote.
    """

    def __init__(self, saved_job: Path) -> None:
        self._saved_job = saved_job
        self._job = job = load(saved_job)
        self._made_s = time.monotonic()
        self._session: Session | None = None
        self._stop = threading.Event()
        self._wrong = False
        self._ended = self._error = self._trace = ""
        self._warnings: list[str] = []
        self._told = threading.Event()
        self._metrics = RunMetrics(str(job.location))
        offer_dashboard(os.environ)
        self._thread = threading.Thread(target=self._work, name="session", daemon=True)
        self._thread.start()

    def state(self) -> SearchState:
        """The state of the search, for a driver: once it knows of the end, the search goes soon."""
        if self._ended:
            self._told.set()
        return self.look()

    def look(self) -> SearchState:
        """The same for those who only look on."""
        session = self._session
        return SearchState(
            session.snapshot() if session is not None else None,
            self._ended,
            self._error,
            self._trace,
            tuple(self._warnings),
            self._job.location.text,
            self._job.deadline_s(self._made_s if session is None else time.monotonic()),
        )

    def stop(self) -> None:
        """End the session in order."""
        self._stop.set()
        if self._session is not None:
            self._session.stop()

    def _work(self) -> None:
        try:
            ended = self._run()
        except TunerError as error:
            self._error, self._trace = str(error), traceback.format_exc()
            ended = "failed"
        except Exception as error:  # the thread's border: a bug must reach the driver
            self._error = f"{type(error).__name__}: {error}"
            self._trace = traceback.format_exc()
            ended = "failed"
        self._ended = ended
        if self._job.driver_pid is None:
            self._told.wait(_LINGER_S)
            time.sleep(_GOODBYE_S)
            ray.kill(ray.get_runtime_context().current_actor)

    def _run(self) -> str:
        job, run = self._job, RunFolder(self._job.run)
        lock = RunLock(run.lock, serves=job.driver_pid)
        with lock, contextlib.closing(open_store(job.location, run)) as store:
            _log_to(run.log)
            _refuse_to_die_again(store)
            store.put(Tasks(job.tasks), Defaults({k: c.key for k, c in job.defaults.items()}))
            programs = MeasuredPrograms()
            with (
                contextlib.closing(
                    ImportChecking(
                        job.options, job.location, run, quiet_lock(job), self._stop_wrong
                    )
                ) as checking,
                self._track(run, store) as observer,
                machines(job, run, self._trials_left, self._metrics, programs) as at_work,
                observers_of(job, store) as theirs,
            ):
                for record in store.scan():
                    programs.add(record)
                keeper = HistoryKeeper(store, at_work.utilisation or Utilisation())
                # The history is kept first: the report, which tracking takes along, shows it.
                observers: list[Observer] = [keeper, observer, self._metrics, *theirs]
                self._session = new_session(job, store, at_work, observers, self._begin)
                if self._stop.is_set() or self._wrong:
                    self._session.stop()
                try:
                    ended = self._session.run()
                finally:
                    keeper.keep(last=True)
                    if self._may_name(checking):
                        with self._warned_of("best.jsonl"):
                            observer.keep("best.jsonl", winning_lines(store, observer.sets))
                        self._show(run, store, observer.sets)
                self._warnings += _describe_check(checking, run)
                self._warnings += self._session.left_out
                self._warnings += fruitless(store, job.tasks)
                return ended

    def _stop_wrong(self) -> None:
        """End a session whose model is not what its source is."""
        self._wrong = True
        if self._session is not None:
            self._session.stop()

    def _may_name(self, checking: ImportChecking) -> bool:
        """Whether the import is not known to be wrong; waits for that unless the user stopped."""
        check = checking.outcome(0.0 if self._stop.is_set() else _IMPORT_CHECK_S)
        return check is None or check.state != "differs"

    def _begin(self, deadline_s: float) -> None:
        """Keep when the run's time began: it goes on where Ray starts this process anew."""
        started_s = deadline_s - self._job.options.limit_s
        self._job = replace(self._job, started_s=started_s)
        save(self._job, self._saved_job)

    def _show(self, run: RunFolder, store: RecordStore, sets: Mapping[str, KernelSet]) -> None:
        """Write the page that shows the run, and its charts as images."""
        place = self._job.location
        if sum(each.number for each in store.tallies()) > _SHOWN_AT_ONCE:
            self._warnings.append(f"so long a run has its page from `tuner report {place}`")
            return
        with self._warned_of("report.html"):
            from tuner.pages.write import write_page, write_plots
            from tuner.report.bench import read_bench
            from tuner.report.run_report import run_report

            told = run_report(
                store,
                run.read_manifest(),
                name=place.name,
                place=str(place),
                kernel_sets=sets,
                bench=read_bench(run.bench),
            )
            with self._warned_of("plots/"):
                write_plots(run.plots, [told])
            write_page(run.report, [told], time.time())  # tracking takes both along

    @contextlib.contextmanager
    def _warned_of(self, what: str) -> Iterator[None]:
        """Have it be a warning that something could not be written: none is worth a run."""
        try:
            yield
        except Exception as error:
            _log.exception("%s", what)
            self._warnings.append(f"{what} was not written: {describe_error(error)}")

    @contextlib.contextmanager
    def _track(self, run: RunFolder, store: RecordStore) -> Iterator[TrackingObserver]:
        """Track a session: however it ends, MLflow is told so."""
        job = self._job
        observer = TrackingObserver(
            TrackingPaths(run.root),
            store,
            name=name_run(job),
            params=job.facts,
            tags=run_tags(job),
            new_uuid=_new_uuid(job, run),
        )
        quiet = quiet_lock(job)
        tracker = TrackerProcess.start(run.root, job.tracking_uri)
        status = RunStatus.FAILED
        try:
            if quiet is not None and tracker.pid is not None:
                quiet.register(tracker.pid)
            yield observer
            status = RunStatus.KILLED if self._stop.is_set() else RunStatus.FINISHED
        finally:
            observer.close(status)
            try:
                store.flush()  # the tracker reads what is durable
            except TunerError:
                if status is not RunStatus.FAILED:  # else why it failed is being told
                    raise
            finally:
                outcome = tracker.finish(self._patience_s(status))
                if outcome.warning:
                    self._warnings.append(outcome.warning)
                if observer.lost:
                    lost = f"tracking: {observer.lost} entries and files could not be written"
                    self._warnings.append(lost)

    def _patience_s(self, status: RunStatus) -> float:
        """The time for which the end of the session waits for MLflow."""
        if status is not RunStatus.FINISHED:
            return _TRACKING_WHEN_CUT_SHORT_S
        uri = self._job.tracking_uri
        return _TRACKING_LOCAL_S if not uri or uri.startswith("sqlite:") else _TRACKING_S

    def _trials_left(self) -> int:
        session = self._session
        return session.snapshot().trials_left if session is not None else self._job.trials


SearchActor = ray.remote(num_cpus=0, max_restarts=-1)(SearchHost)
"""Ray restarts it wherever it dies, and does not repeat its calls."""


def _describe_check(checking: ImportChecking, run: RunFolder) -> list[str]:
    """Lines for the user on a comparison that found nothing wrong.

    Raises:
        TunerError: the import is wrong.
    """
    refuse_wrong_import(run)
    check = checking.outcome(0.0)
    if check is None:
        return ["the import was not checked: the run ended before that"]
    return [check.line] if check.state == "skipped" else []


def _new_uuid(job: SearchJob, run: RunFolder) -> Callable[[], str]:
    """A maker of the id that the tracker gives a new run; for a URL the same on each machine."""
    if not job.location.is_url:
        return lambda: uuid4().hex
    return lambda: run_uuid(remote_run(job.location), run.read_manifest())


def _refuse_to_die_again(store: RecordStore) -> None:
    """Stop a search that Ray restarts again and again only to see it die.

    Raises:
        TunerError: its latest sessions were all cut off before they gave a record.
    """
    latest = store.sessions()[-_FRUITLESS:]
    if len(latest) < _FRUITLESS or any(span.ended_s is not None for span in latest):
        return
    if not any(record.time_s >= latest[0].started_s for record in store.scan()):
        raise TunerError(
            f"the search process died {_FRUITLESS} times without a single result: "
            f"tuner.log in the run folder says what it did last"
        )


def _log_to(path: Path) -> None:
    """Write this process's log lines to a file."""
    handler = logging.FileHandler(path)
    handler.setFormatter(logging.Formatter("%(asctime)s %(name)s %(levelname)s %(message)s"))
    handler.formatter.converter = time.gmtime  # type: ignore[union-attr]
    root = logging.getLogger()
    root.addHandler(handler)
    root.setLevel(logging.INFO)
