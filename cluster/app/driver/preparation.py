"""The steps before a search, in a process of their own.

A model, a user's code and TVM may crash the process that reads them, or fill its memory. And Ray
changes the environment while it starts, which TVM reads all the time: beside each other in one
process these two crashed it.
"""

from __future__ import annotations

import sys
import threading
import time
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from tuner.process.apart import give_value, new_log, take_value
from tuner.process.child import Child
from tuner.process.outcome import DeadlinePassed, Outcome, Raised, Returned
from tuner.request.options import TuneOptions
from tuner.run_location import RunLocation

if TYPE_CHECKING:
    from cluster.search.job import SearchJob

_CHILD = "cluster.app.driver.preparation:PrepareChild"
_DEADLINE_S = 3600.0
_WATCH_S = 0.5


class Preparation:
    """The steps before a search, under way; see `cluster.app.driver.prepare.prepare`.

    A model from memory cannot be sent to a process: it is prepared in this one, at once.
    """

    def __init__(self, options: TuneOptions, run: RunLocation, **settings: Any) -> None:
        """Begin.

        Args:
            settings: further arguments of `prepare`.

        Raises:
            TunerError: a model from memory cannot be tuned as asked.
        """
        self._source = options.model.source
        self._kept = False
        self._child: Child | None = None
        self._job: SearchJob | None = None
        if options.model.program is None:
            self._log = new_log()
            self._child = Child(_CHILD, (options, run, settings), log=self._log)
        else:
            from cluster.app.driver.prepare import prepare

            self._job = prepare(options, run, **settings)

    def fail_fast(self, patience_s: float) -> None:
        """Wait until the model was found, and takes what it is given: most requests that cannot be
        met fail before that.

        Raises:
            TunerError: the request cannot be met.
        """
        if self._child is not None and isinstance(self._child.ready(patience_s), Returned):
            self._value(self._child.call("refusal", deadline_s=patience_s))

    def finish(self, stop: threading.Event) -> SearchJob:
        """Wait for the job, end the process, and show what was printed there.

        Args:
            stop: set it to wait no longer.

        Raises:
            TunerError: the request cannot be met, or the process crashed or took too long.
            KeyboardInterrupt: `stop` was set first.
        """
        if (child := self._child) is not None:
            _wait(lambda: _start(child), stop)
            child.start_call("job")
            self._job = self._value(_wait(lambda: child.poll(_WATCH_S), stop))
            sys.stderr.write(self._log.read_text(errors="replace"))
            self.close()
        assert self._job is not None
        return self._job

    def _value(self, outcome: Outcome) -> Any:
        self._kept = not isinstance(outcome, Returned | Raised)
        return take_value(outcome, f"{self._source}: the process that reads it", self._log)

    def close(self) -> None:
        """End the process, if there is one."""
        if self._child is not None:
            self._child.close()
            if not self._kept:
                self._log.unlink(missing_ok=True)

    def __enter__(self) -> Preparation:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def _start(child: Child) -> Outcome | None:
    outcome = child.ready(_WATCH_S)
    return None if isinstance(outcome, DeadlinePassed) else outcome


def _wait(look: Callable[[], Outcome | None], stop: threading.Event) -> Outcome:
    until_s = time.monotonic() + _DEADLINE_S
    while (outcome := look()) is None:
        if stop.is_set():
            raise KeyboardInterrupt
        if time.monotonic() > until_s:
            return DeadlinePassed(_DEADLINE_S)
    return outcome


class PrepareChild:
    """Runs in the process: made once the model was found, or there was trouble before."""

    def __init__(self, options: TuneOptions, run: RunLocation, settings: dict[str, Any]) -> None:
        from cluster.app.driver.prepare import prepare
        from spaces.ir.lean_tvm import import_tvm_lean

        import_tvm_lean()
        warnings.simplefilter("ignore")  # as in commands: a user cannot act on a library's
        found = threading.Event()
        threads = ThreadPoolExecutor(1, "prepare")
        self._preparing = threads.submit(prepare, options, run, on_found=found.set, **settings)
        self._preparing.add_done_callback(lambda _: found.set())
        found.wait(_DEADLINE_S)

    def refusal(self) -> Exception | None:
        """The error of a user's that it ended with, if it has ended."""
        value = self.job() if self._preparing.done() else None
        return value if isinstance(value, Exception) else None

    def job(self) -> SearchJob | Exception:
        """The job, or an error of a user's."""
        return give_value(lambda: self._preparing.result(_DEADLINE_S))
