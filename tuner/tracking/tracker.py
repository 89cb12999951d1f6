"""Tracking from the session's side: an observer that writes, and a process that pushes.

`TrackingObserver` puts what MLflow is told into the run's store; `TrackerProcess` starts and ends
the process that brings it there. Nothing here waits for a server longer than its caller allows.
What is not pushed by the end is pushed at the next start of the run or by `drain`.
"""

from __future__ import annotations

import contextlib
import http.client
import os
import shlex
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from tuner.errors import TunerError
from tuner.runs.folder import RunFolder
from tuner.tracking.drain import count_pending
from tuner.tracking.entries import TrackingPaths, read_json
from tuner.tracking.mlflow_sink import Target, load_target
from tuner.tracking.mlflow_uris import is_plain_folder, lasting_uri, quiet_environment, redact
from tuner.tracking.observer import RunStatus, TrackingObserver
from tuner.tracking.pages.experiment_page import page_of
from tuner.tracking.progress import load_progress
from tuner.tracking.tracker_process import GAVE_UP

__all__ = [
    "RunStatus",
    "TrackerProcess",
    "TrackingObserver",
    "TrackingOutcome",
    "check_uri",
    "drain",
    "lasting_uri",
    "open_command",
]

_SCHEMES = ("http", "https", "sqlite", "postgresql", "mysql", "mssql", "databricks")
_WAKE = """
trap '' HUP INT TERM
read -r over && exit
tries=150
while [ $tries -gt 0 ] && kill -CONT "$0" 2>/dev/null; do sleep 1; tries=$((tries - 1)); done
"""
"""A shell script that waits for a line, which means a regular end. If its input ends without one,
the process at the other end was killed: then it wakes the process `$0` until that is gone."""
_REAP_S = 0.5
"""The time kept back from a deadline, to end a process that does not end by itself."""


@dataclass(frozen=True, slots=True)
class TrackingOutcome:
    """The result of a run's tracking.

    Attributes:
        pushed: number of entries that MLflow took, over the run's whole life.
        pending: number of records, entries and files still to be pushed.
        warning: one line for people, empty if all is well.
    """

    pushed: int
    pending: int
    warning: str = ""


@dataclass(slots=True)
class TrackerProcess:
    """The process that pushes a run to MLflow while the session goes on; made by `start`.

    It may be stopped, continued and killed with signals at any time: its progress is noted, and the
    rest is still in the run folder. If the session's process is killed while the tracker is
    stopped, a shell wakes the tracker, so that it sees that it is alone. No method raises.
    """

    _run_dir: Path
    _process: subprocess.Popen[bytes] | None = None
    _waker: subprocess.Popen[bytes] | None = None
    _error: str = ""

    @classmethod
    def start(cls, run_dir: Path, uri: str = "", *, experiment: str = "tuner") -> TrackerProcess:
        """Start the tracker; the run's folder should be there already.

        Args:
            uri: MLflow's tracking URI; empty is a SQLite file inside the run folder.
        """
        paths = TrackingPaths(run_dir)
        try:
            Target(uri, experiment).save(paths)
            process = _spawn(run_dir, "--parent", str(os.getpid()), stdin=subprocess.PIPE)
        except OSError as error:
            return cls(run_dir, _error=f"the tracker cannot start: {error}")
        return cls(run_dir, process, _start_waker(process.pid))

    @property
    def pid(self) -> int | None:
        """The tracker's process id while it runs, so that the quiet lock can freeze it."""
        process = self._process
        return process.pid if process is not None and process.poll() is None else None

    def finish(self, deadline_s: float) -> TrackingOutcome:
        """Have the tracker push what is left, for at most `deadline_s`, and end it. It gives up on
        a server that is gone, whose rest is left for the next session."""
        deadline = time.monotonic() + deadline_s
        process, self._process = self._process, None
        if process is not None:
            with contextlib.suppress(OSError):
                process.send_signal(signal.SIGCONT)
            if process.stdin is not None:
                with contextlib.suppress(OSError), process.stdin as pipe:
                    pipe.write(b".")
            _end_by(process, deadline)
        waker, self._waker = self._waker, None
        if waker is not None:
            with contextlib.suppress(OSError, subprocess.TimeoutExpired):
                waker.communicate(b"over\n", _REAP_S)
        outcome = _outcome(self._run_dir, self._error)
        left_s = deadline - time.monotonic()
        gave_up = process is not None and process.returncode == GAVE_UP
        if outcome.pending and not gave_up and left_s > 2 * _REAP_S:
            # It had died before, or did not start: another one may still do it in time.
            return drain(self._run_dir, left_s)
        return outcome


def drain(run_dir: Path, deadline_s: float) -> TrackingOutcome:
    """Push what earlier sessions left, for at most `deadline_s`. Never raises."""
    deadline = time.monotonic() + deadline_s
    error = ""
    try:
        process = _spawn(run_dir, "--drain", str(deadline_s), stdin=subprocess.DEVNULL)
        _end_by(process, deadline)
    except OSError as failure:
        error = f"the tracker cannot start: {failure}"
    return _outcome(run_dir, error)


def _spawn(run_dir: Path, *arguments: str, stdin: int) -> subprocess.Popen[bytes]:
    root = str(Path(__file__).resolve().parents[2])
    path = os.pathsep.join(p for p in (root, os.environ.get("PYTHONPATH", "")) if p)
    # -P: a user's file in the current folder, named like a module, must not be imported.
    command = [sys.executable, "-P", "-W", "ignore", "-m", "tuner.tracking.tracker_process"]
    with TrackingPaths(run_dir).log.open("ab") as log:
        return subprocess.Popen(
            [*command, str(run_dir), *arguments],
            stdin=stdin,
            stdout=log,
            stderr=log,
            bufsize=0,
            env={**os.environ, **quiet_environment(), "PYTHONPATH": path},
        )


def _start_waker(pid: int) -> subprocess.Popen[bytes] | None:
    """Start a shell that wakes a process if we are killed; None where there is no shell."""
    try:
        return subprocess.Popen(
            ["/bin/sh", "-c", _WAKE, str(pid)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
    except OSError:
        return None


def _end_by(process: subprocess.Popen[bytes], deadline: float) -> None:
    """Wait for a process until a monotonic time, then kill it, which loses nothing."""
    try:
        process.wait(max(0.0, deadline - _REAP_S - time.monotonic()))
    except subprocess.TimeoutExpired:
        process.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_REAP_S)


def _outcome(run_dir: Path, error: str) -> TrackingOutcome:
    paths = TrackingPaths(run_dir)
    progress = load_progress(paths, load_target(paths).identity)
    try:
        pending = count_pending(paths, progress)
    except (TunerError, OSError) as failure:
        return TrackingOutcome(progress.pushed, 0, f"tracking: the run cannot be read: {failure}")
    warning = ""
    if pending:
        why = error or progress.error
        later = f"python -m tuner.tracking.tracker_process {shlex.quote(str(run_dir))} --drain 60"
        warning = (
            f"tracking: {pending} entries are not in MLflow yet{f' ({why})' if why else ''}; they "
            f"follow when the run goes on, or with `{later}`"
        )
    elif progress.dropped:
        warning = f"tracking: {progress.dropped} entries could not be taken, see {paths.log}"
    return TrackingOutcome(progress.pushed, pending, warning)


def check_uri(uri: str, timeout_s: float = 3.0) -> str:
    """A warning, in one line, if a tracking server does not answer; empty if it does.

    Any answer counts, also an error. URIs that are not http are only checked for a scheme that
    MLflow can write to.
    """
    shown = redact(uri)
    later = "tuning goes on, the run is pushed later"
    if is_plain_folder(uri):
        return (
            f"tracking: MLflow keeps no runs in plain folders any more ({shown}): the record is in "
            "the run folder's own database; name another as sqlite:///FILE"
        )
    try:
        scheme = urlsplit(uri).scheme or uri.partition("-")[0]
    except ValueError as error:
        return f"tracking: {shown} is no address ({error}); {later}"
    if uri and scheme.partition("+")[0] not in _SCHEMES:
        known = ", ".join(_SCHEMES)
        return f"tracking: MLflow may not know {shown} (it knows {known}); {later}"
    if scheme not in ("http", "https"):
        return ""
    answers: list[str] = []
    # In a thread: looking up a host name knows no timeout.
    asked = threading.Thread(target=lambda: answers.append(_no_answer(uri, timeout_s)), daemon=True)
    asked.start()
    asked.join(timeout_s)
    why = answers[0] if answers else f"nothing for {timeout_s:g} s"
    if not why:
        return ""
    return f"tracking: {shown} does not answer ({why}); {later}"


def _no_answer(uri: str, timeout_s: float) -> str:
    """The reason why there is no answer; empty if there is one."""
    parts = urlsplit(uri)
    bare = parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()
    try:
        with urllib.request.urlopen(bare.rstrip("/") + "/health", timeout=timeout_s):
            return ""
    except urllib.error.HTTPError:
        return ""
    except (OSError, ValueError, http.client.HTTPException) as error:
        return str(getattr(error, "reason", error)) or type(error).__name__


def open_command(run_dir: Path, uri: str = "") -> str:
    """The command that opens MLflow's pages on a run; for a server the address of its page."""
    uri = lasting_uri(uri)
    if uri.startswith(("http://", "https://")):
        experiment = read_json(TrackingPaths(run_dir).ids).get("experiment", "")
        return page_of(redact(uri), experiment) if experiment else redact(uri)
    store = redact(uri) if uri else f"sqlite:///{RunFolder(run_dir).mlflow_db}"
    return f"mlflow ui --backend-store-uri {shlex.quote(store)} --port 5000"
