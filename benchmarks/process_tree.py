"""A command, watched: how long it and all its descendants took, their memory and CPU time.

Once a second every process of the tree is looked at. Memory is the sum of resident sizes, in
which shared libraries count once for each process, and (every few seconds, since it costs more)
the sum of proportional shares, in which they count once. CPU seconds are kept by kind of process;
those of what lives for less than a second count where its parent waits for it, if that is a
child process of a worker, and nowhere else.
"""

from __future__ import annotations

import bisect
import contextlib
import json
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

import psutil

_CHECKOUT = Path(__file__).resolve().parents[1]
_SAMPLE_S = 1.0
_PSS_EVERY = 5
_TERM_S = 15.0
_KEPT_OUTPUT = 2000

_FACTORIES = {
    "spaces.design_space.evaluate": "space child",
    "actors.build_child": "builder child",
    "actors.run_child": "runner child",
    "tuner.cost_models.fitter": "fitter",
}
_TITLES = {
    "ray::SearchHost": "search actor",
    "ray::SpaceActor": "space actor",
    "ray::BuilderActor": "builder actor",
    "ray::RunnerActor": "runner actor",
    "tuner.tracking.tracker_process": "tracker",
    "gcs_server": "ray",
    "raylet": "ray",
    "ray::": "ray",
    "/ray/": "ray",
    "tvm.exec.popen_worker": "popen worker",
}


@dataclass(slots=True)
class Seen:
    """What is known of a tree of processes so far."""

    peak_rss_bytes: int = 0
    peak_pss_bytes: int = 0
    peak_by_kind: dict[str, int] = field(default_factory=dict)
    times_s: list[float] = field(default_factory=list)
    cpu_s: list[dict[str, float]] = field(default_factory=list)

    def cpu_at(self, time_s: float) -> dict[str, float]:
        """CPU seconds by kind at the last look before a time (seconds since the epoch)."""
        place = bisect.bisect_right(self.times_s, time_s) - 1
        return self.cpu_s[place] if place >= 0 else {}

    def cpu_total(self) -> dict[str, float]:
        """CPU seconds by kind in the end."""
        return self.cpu_s[-1] if self.cpu_s else {}


@dataclass(frozen=True, slots=True)
class Watched:
    """A command that is over.

    Attributes:
        failure: empty if it ended with exit code 0; else how it ended.
        started_s: seconds since the epoch.
        errors: the end of what it wrote to its standard error.
    """

    failure: str
    started_s: float
    wall_s: float
    output: str
    errors: str
    seen: Seen

    def failure_text(self) -> str:
        """How it ended and the last lines it said, with files by their place in the checkout; empty
        if it ended well."""
        errors = self.errors.replace(f"{_CHECKOUT}/", "")
        said = [line.strip() for line in errors.splitlines() if line.strip()]
        return ": ".join([self.failure, " / ".join(said[-2:])[:300]]) if self.failure else ""


def watch(
    command: Sequence[str], *, env: Mapping[str, str], limit_s: float, cwd: str | None = None
) -> Watched:
    """Run a command to its end, or until `limit_s` seconds are over, when its tree is ended."""
    started_s, start = time.time(), time.monotonic()
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        process = psutil.Popen(
            command, env=dict(env), cwd=cwd, stdin=subprocess.DEVNULL, stdout=out, stderr=err
        )
        watcher = _Watcher(process)
        try:
            code = _wait(process, limit_s)
        finally:
            wall_s = time.monotonic() - start
            watcher.stop()
            _end(process, watcher.known())
        return Watched(
            failure=_said(code, limit_s),
            started_s=started_s,
            wall_s=wall_s,
            output=_text(out),
            errors=_text(err)[-_KEPT_OUTPUT:],
            seen=watcher.seen,
        )


def kind_of(command: Sequence[str]) -> str:
    """What a process of a tuner is, from its command line; `other` if it is none of ours."""
    if command and command[-1].startswith("{"):
        with contextlib.suppress(ValueError, KeyError, TypeError):
            factory = str(json.loads(command[-1])["factory"]).partition(":")[0]
            return _FACTORIES.get(factory, factory)
    text = " ".join(command)
    return next((kind for part, kind in _TITLES.items() if part in text), "other")


class _Watcher:
    """Looks at a tree of processes until it is told to stop."""

    def __init__(self, root: psutil.Process) -> None:
        self.seen = Seen()
        self._root = root
        self._cpu: dict[psutil.Process, tuple[str, float]] = {}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """No more looks."""
        self._stop.set()
        self._thread.join()

    def known(self) -> list[psutil.Process]:
        """Every process that was ever seen."""
        return list(self._cpu)

    def _run(self) -> None:
        looks = 0
        while not self._stop.wait(_SAMPLE_S):
            self._look(shares=looks % _PSS_EVERY == 0)
            looks += 1

    def _look(self, *, shares: bool) -> None:
        rss: dict[str, int] = {}
        pss = 0
        for process in _tree(self._root):
            with contextlib.suppress(psutil.Error), process.oneshot():
                kind = "driver" if process == self._root else kind_of(process.cmdline())
                self._cpu[process] = (kind, _cpu_s(process, kind))
                rss[kind] = rss.get(kind, 0) + process.memory_info().rss
                pss += process.memory_full_info().pss if shares else 0
        seen = self.seen
        seen.peak_rss_bytes = max(seen.peak_rss_bytes, sum(rss.values()))
        seen.peak_pss_bytes = max(seen.peak_pss_bytes, pss)
        for kind, size in rss.items():
            seen.peak_by_kind[kind] = max(seen.peak_by_kind.get(kind, 0), size)
        totals: dict[str, float] = {}
        for kind, spent_s in self._cpu.values():
            totals[kind] = totals.get(kind, 0.0) + spent_s
        seen.times_s.append(time.time())
        seen.cpu_s.append(totals)


def _cpu_s(process: psutil.Process, kind: str) -> float:
    times = process.cpu_times()
    spent = times.user + times.system
    # Only these have children that no look would ever find: linkers.
    if kind.endswith("child"):
        spent += times.children_user + times.children_system
    return float(spent)


def _tree(root: psutil.Process) -> Iterator[psutil.Process]:
    with contextlib.suppress(psutil.Error):
        yield root
        yield from root.children(recursive=True)


def _wait(process: psutil.Popen, limit_s: float) -> int | None:
    try:
        return int(process.wait(limit_s))
    except (psutil.TimeoutExpired, subprocess.TimeoutExpired):
        return None


def _end(root: psutil.Process, known: Sequence[psutil.Process]) -> None:
    """End what is left of a tree: asked first, then made to."""
    if root.is_running() and root.status() != psutil.STATUS_ZOMBIE:
        with contextlib.suppress(psutil.Error):
            root.terminate()
        psutil.wait_procs([root], timeout=_TERM_S)
    left = [process for process in known if process.is_running()]
    for process in left:
        with contextlib.suppress(psutil.Error):
            process.kill()
    psutil.wait_procs(left, timeout=_TERM_S)


def _said(code: int | None, limit_s: float) -> str:
    if code is None:
        return f"not done after {limit_s:g} s"
    if code < 0:
        return f"killed by signal {-code}"
    return f"exit code {code}" if code else ""


def _text(file: IO[str]) -> str:
    file.seek(0)
    return file.read()
