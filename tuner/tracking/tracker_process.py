"""The process that brings a run to MLflow: `python -m tuner.tracking.tracker_process RUN_DIR`.

Started by `tuner.tracking.tracker.TrackerProcess` it follows the store while its parent
lives. A byte on standard input says that the session is over: it pushes what is left and
exits; the parent holds the deadline and may kill it at any moment. Where the server is gone, it
leaves the rest for the next start. If the parent is gone without a word it pushes for a few seconds
more, then does the same. It may be stopped while its parent is killed: who waits for its lock wakes
it.

By hand, `--drain SECONDS` pushes what an earlier session left behind.
"""

from __future__ import annotations

import argparse
import contextlib
import logging
import math
import os
import select
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from types import FrameType

from tuner.errors import TunerError
from tuner.files.locks import try_flock
from tuner.process.lean_import import without
from tuner.process.proc import read_stat
from tuner.tracking.drain import RunDrain, count_pending
from tuner.tracking.entries import TrackingPaths
from tuner.tracking.mlflow_sink import MlflowSink, load_target, system_monitors
from tuner.tracking.mlflow_uris import quiet_environment, sqlite_file, tracking_uri
from tuner.tracking.progress import Progress, load_progress
from tuner.tracking.sink import Sink, SinkError, Unavailable
from tuner.tracking.system_metrics import SystemSamples

_log = logging.getLogger("tuner.tracker")

GAVE_UP = 3
"""The exit status of a tracker that left what a server that is gone did not take."""
ORPHAN_S = 5.0
"""The time for which a tracker goes on after its parent died."""
_POLL_S = 2.0
"""The interval of looking for new entries: few larger batches cost the machine less."""
_RETRY_S = 0.5
"""That interval when somebody waits for the end."""
_PATIENCE_S = 30.0
"""The longest pause after a failure."""
_HASTE_S = 2.0
"""That pause when somebody waits for the end."""
_TRIES = 3
"""Failures in a row after which nobody waits for a server at the end: the last is of then."""
_STUCK_S = 120
"""The time after which a push is given up, wherever it hangs."""


class ParentWatch:
    """The parent's wish: carry on, wind up, or none because it is gone."""

    def __init__(self, parent: int, stdin: int) -> None:
        """`parent` is the process whose end is watched for, 0 where there is none; `stdin` is the
        pipe from it."""
        self._parent = parent
        self._stdin = stdin
        self._ends = select.poll()
        self._ends.register(stdin, select.POLLIN)
        self.winding_up = False
        self.orphan = not parent

    def wait(self, timeout_s: float) -> None:
        """Look at the parent, waiting at most `timeout_s` for a byte from it."""
        if self.winding_up or self.orphan:
            time.sleep(timeout_s)
        elif self._ends.poll(timeout_s * 1e3):
            self.winding_up = bool(os.read(self._stdin, 1))
            self.orphan = not self.winding_up
        if os.getppid() != self._parent:
            self.orphan = True


def follow(
    run: RunDrain,
    sink: Sink,
    watch: ParentWatch,
    samples: SystemSamples | None,
    *,
    patient: bool,
    deadline: float = math.inf,
) -> bool:
    """Push until the parent says that it is over, or is gone, and then what is left. Sample the
    machine until then.

    Args:
        patient: the other side may be slow, but is not gone, as a database on this machine.
        deadline: monotonic time after which nothing is pushed; of a parent that is gone, soon.

    Returns:
        Whether it gave up on the other side.
    """
    ending = False
    while time.monotonic() < deadline:
        watch.wait(0.0)
        if watch.orphan and deadline == math.inf:
            deadline = time.monotonic() + ORPHAN_S
        began, ending = ending, watch.winding_up or watch.orphan
        if samples is not None and not began:
            # Also before MLflow answers, so that short runs have a sample.
            samples.tick(last=ending)
        if ending and not began:
            run.wind_up()
        if _try_step(run, _HASTE_S if ending else _PATIENCE_S):
            continue
        if ending and run.drained():
            if watch.orphan:
                _abandon(sink)
            return False
        if ending and not patient and run.failures >= _TRIES:
            return True
        watch.wait(_RETRY_S if ending else _POLL_S)
    return False


def _try_step(run: RunDrain, longest_wait_s: float) -> bool:
    """Make one step, which neither hangs for ever nor ends the process."""
    signal.alarm(_STUCK_S)
    try:
        _stay_somewhere(run.paths.folder)
        return run.step(longest_wait_s=longest_wait_s)
    except ImportError:
        raise
    except Exception:  # border: the tracker must outlive whatever a step meets
        _log.exception("a step failed")
        return False
    finally:
        signal.alarm(0)


def _stay_somewhere(folder: Path) -> None:
    """Move to a folder if the current one was removed: MLflow asks for it."""
    try:
        os.getcwd()
    except FileNotFoundError:
        os.chdir(folder)


def _abandon(sink: Sink) -> None:
    try:
        sink.abandon(time.time())
    except SinkError as error:
        _log.warning("cannot end the run: %s", error)


def _on_alarm(_signal: int, _frame: FrameType | None) -> None:
    raise Unavailable(f"no answer in {_STUCK_S} s")


@contextlib.contextmanager
def sole_tracker(path: Path, go_on: Callable[[], bool], *, parent: int) -> Iterator[bool]:
    """Hold the run's tracker lock; yields False where `go_on` ended the wait for it.

    A tracker that is stopped, whose session was killed, would hold it for ever; it is woken.

    Args:
        parent: the session that this tracker works for; since it holds the run, the holder of this
            lock is of an earlier session. 0 for none.
    """
    with path.open("a+") as file:
        while not (held := try_flock(file.fileno())) and go_on():
            _resume(path, orphans_only=not parent)
        if held:
            file.truncate(0)
            file.write(f"{os.getpid()} {parent}")
            file.flush()
        yield held


def _resume(path: Path, *, orphans_only: bool) -> None:
    """Wake the tracker that holds the lock; with `orphans_only`, not that of a living session,
    which is stopped for a reason."""
    # It may have only just started, or just ended: the lock will tell.
    with contextlib.suppress(OSError, ValueError):
        pid, *parent = map(int, path.read_text().split())
        stat = read_stat(pid)
        if stat is not None and (not orphans_only or [stat.parent] != parent):
            os.kill(pid, signal.SIGCONT)


def _run(run_dir: Path, *, parent: int, drain_s: float) -> int:
    """Do what the command line asks; return the exit status."""
    paths, target = TrackingPaths(run_dir), load_target(TrackingPaths(run_dir))
    deadline = math.inf if parent else time.monotonic() + drain_s
    watch = ParentWatch(parent, sys.stdin.fileno())

    def go_on() -> bool:
        watch.wait(_RETRY_S)
        return time.monotonic() < deadline and not (parent and watch.orphan)

    with sole_tracker(paths.lock, go_on, parent=parent) as held:
        progress = load_progress(paths, target.identity)
        if not held:
            _log.warning("another tracker is at work on this run")
            return 1
        sink = MlflowSink(run_dir, target)
        run = RunDrain(paths, sink, progress, clock=time.monotonic)
        try:
            clocks = {"clock": time.monotonic, "wall": time.time}
            samples = SystemSamples(paths.system, system_monitors, **clocks) if parent else None
            here = sqlite_file(tracking_uri(run_dir, target.uri)) is not None
            patient = here or not parent
            if follow(run, sink, watch, samples, patient=patient, deadline=deadline):
                return GAVE_UP
        except ImportError as error:
            replace(run.progress, error=f"MLflow cannot be used: {error}").save(paths.progress)
            raise
        return 0 if run.drained() else 1


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command. Exit status: 0 everything is pushed, 1 something is left, 2 no such run, 3
    something is left since the server is gone."""
    parser = argparse.ArgumentParser(
        prog="python -m tuner.tracking.tracker_process", description=__doc__
    )
    parser.add_argument("run_dir", type=Path)
    parser.add_argument("--drain", type=float, default=60.0, metavar="SECONDS")
    parser.add_argument("--parent", type=int, default=0, help=argparse.SUPPRESS)
    args = parser.parse_args(argv)
    args.run_dir = args.run_dir.absolute()
    paths = TrackingPaths(args.run_dir)
    if not args.parent and not paths.store.is_file():
        print(f"{args.run_dir} holds nothing to track", file=sys.stderr)
        return 2
    os.environ.update(quiet_environment())
    signal.signal(signal.SIGALRM, _on_alarm)
    if args.parent:
        # Ctrl-C goes to the whole group, but this process ends when its parent says so. The kernel
        # hangs up on a group whose leader was killed while this process was stopped.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        os.nice(10)
    paths.folder.mkdir(parents=True, exist_ok=True)
    terminal = os.dup(sys.stdout.fileno())
    log = os.open(paths.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(log, 1)
    os.dup2(log, 2)
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(name)s: %(message)s")
    with without("pandas"):  # a third of MLflow's import, for tables that we do not send
        status = _run(args.run_dir, parent=args.parent, drain_s=args.drain)
    if not args.parent:
        progress = load_progress(paths, load_target(paths).identity)
        with os.fdopen(terminal, "w") as out:
            print(_summary(paths, progress), file=out)
    return status


def _summary(paths: TrackingPaths, progress: Progress) -> str:
    try:
        pending = count_pending(paths, progress)
    except (TunerError, OSError) as error:
        return f"tracking: {progress.pushed} entries pushed, the rest cannot be read: {error}"
    why = f": {progress.error}" if pending and progress.error else ""
    return f"tracking: {progress.pushed} entries pushed, {pending} pending{why}"


if __name__ == "__main__":
    sys.exit(main())
