"""The display of a run: one live table on a terminal, plain lines in a log.

The content is a pure function of a `Snapshot`; only the screens at the end draw it.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol, TextIO

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from tuner.record import Status
from tuner.utilisation import BUSY, SlotSeconds, shares
from tuner.view.phase import Phase
from tuner.view.progress import Snapshot
from tuner.view.run_view import RunView
from tuner.view.task_view import TaskView
from tuner.view.words import latency as latency
from tuner.view.words import ratio as ratio
from tuner.view.words import three_digits

ROWS = 15
LINE_EVERY_S = 5.0
_WORTH_SAYING = 0.1
_NAMES_SHOWN = 8


def size(count: int) -> str:
    """Bytes, exactly and for people: `1,234,567 bytes, 1.18 MiB`."""
    for factor, unit in ((2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB")):
        if count >= factor:
            return f"{count:,} bytes, {three_digits(count / factor)} {unit}"
    return f"{count} bytes"


def list_names(names: Sequence[str], most: int = _NAMES_SHOWN) -> str:
    """Names in one line: at most the first few, and the number of the others."""
    more = len(names) - most
    return ", ".join(names[:most]) + (f" and {more} more" if more > 0 else "")


def duration(seconds: float) -> str:
    """Seconds as `m:ss` or `h:mm:ss`; `0:00` if negative."""
    minutes, rest = divmod(max(0, int(seconds)), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def estimate_left_s(snapshot: Snapshot) -> float:
    """Seconds until the search ends, by the clock or, at its speed so far, by its trials."""
    by_clock_s = snapshot.time_budget_s - snapshot.elapsed_s
    if snapshot.trials_per_s <= 0:
        return by_clock_s
    return min(by_clock_s, (snapshot.trials_budget - snapshot.trials) / snapshot.trials_per_s)


def head(snapshot: Snapshot) -> str:
    """The run on one line: phase, trials, speed, gain, time left, the model's accuracy."""
    parts: list[str] = [snapshot.phase]
    if snapshot.trials_budget:  # not known before the tasks are
        parts.append(f"{snapshot.trials}/{snapshot.trials_budget} trials")
        parts.append(f"{snapshot.trials_per_s:.1f}/s")
    if snapshot.gain is not None and snapshot.phase is not Phase.DONE:
        # Then the last lines have it, by what was timed again.
        parts.append(f"gain so far {ratio(snapshot.gain)}")
    if snapshot.phase.searches:
        parts.append(f"{duration(estimate_left_s(snapshot))} left")
    else:
        parts.append(f"{duration(snapshot.elapsed_s)} taken")
    if snapshot.modelled:
        parts.append("times modelled")
    if snapshot.pairwise_accuracy is not None:
        parts.append(f"model {snapshot.pairwise_accuracy:.0%} right")
    return "  ".join(parts)


def tell_failures(failures: Mapping[Status, int]) -> str:
    """Failures by kind, the most frequent first; empty where there are none."""
    ordered = sorted(failures.items(), key=lambda item: (-item[1], item[0]))
    return ", ".join(f"{n} {kind.replace('_', ' ')}" for kind, n in ordered)


def utilisation(seconds: SlotSeconds) -> str:
    """Busy share of each kind of worker, and the main uses of the rest; empty before any worked."""
    parts = []
    for kind, categories in sorted(seconds.items()):
        parted = shares(categories)
        rest = [(c, share) for c, share in parted.items() if c != BUSY and share >= _WORTH_SAYING]
        why = ", ".join(f"{share:.0%} {c.replace('_', ' ')}" for c, share in rest[:2])
        if parted:
            parts.append(f"{kind} {parted.get(BUSY, 0.0):.0%}{f' ({why})' if why else ''}")
    return f"busy: {', '.join(parts)}" if parts else ""


def name_columns(*, settled: bool) -> tuple[str, ...]:
    """The columns of the table of tasks, after their names: what a search has found is not the last
    word.

    Args:
        settled: whether the run has ended, so that latencies are of what was timed again.
    """
    best = "best" if settled else "best so far"
    return ("weight", "trials", "default", best, "speed-up", "failed")


def render_cells(task: TaskView) -> tuple[str, ...]:
    """A task's row in that table."""
    return (
        f"{task.weight:g}",
        str(task.trials),
        latency(task.default_s),
        latency(task.best_s),
        ratio(task.gain),
        str(task.failed or ""),
    )


def table(run: RunView, *, rows: int | None = ROWS) -> Table:
    """Tasks by share of time; tasks beyond `rows` are summed up in the last row."""
    ordered = run.by_time()
    shown = ordered if rows is None or len(ordered) <= rows else ordered[: rows - 1]
    grid = Table(box=None, pad_edge=False, header_style="dim", expand=False)
    grid.add_column("task")  # the only one that may shrink; its cells do not wrap
    for column in name_columns(settled=run.settled):
        grid.add_column(column, justify="right", no_wrap=True)
    for task in shown:
        grid.add_row(Text(task.name, no_wrap=True, overflow="ellipsis"), *render_cells(task))
    if rest := ordered[len(shown) :]:
        trials, failed = sum(task.trials for task in rest), sum(task.failed for task in rest)
        weight = f"{sum(task.weight for task in rest):g}"
        label = f"and {len(rest)} more"
        grid.add_row(label, weight, str(trials), "", "", "", str(failed or ""), style="dim")
    return grid


def picture(snapshot: Snapshot, *, note: str = "", rows: int | None = ROWS) -> Group:
    """The whole screen: head line, table, failures by kind, a note."""
    parts: list[Text | Table] = [Text(head(snapshot), style="bold")]
    if snapshot.tasks:
        parts.append(table(snapshot, rows=rows))
    if failed := tell_failures(snapshot.failures):
        parts.append(Text(f"failed: {failed}", style="dim"))
    if used := utilisation(snapshot.utilisation):
        parts.append(Text(used, style="dim"))
    if text := note or snapshot.message:
        parts.append(Text(text))
    return Group(*parts)


def line(snapshot: Snapshot, *, note: str = "") -> str:
    """The run as one line of a log."""
    text = head(snapshot)
    if failed := tell_failures(snapshot.failures):
        text += f"  failed: {failed}"
    if snapshot.phase is Phase.DONE and (used := utilisation(snapshot.utilisation)):
        text += f"  {used}"
    if said := note or snapshot.message:
        text += f"  {said}"
    return text


class Screen(Protocol):
    """Shows a run."""

    def show(self, snapshot: Snapshot, *, note: str = "") -> None:
        """Take in the newest state; called more often than it is drawn."""

    def close(self) -> None:
        """Leave the last state on the screen, and release the terminal."""


class LiveScreen:
    """One table on a terminal, redrawn in place."""

    def __init__(self, console: Console, *, details: bool = False) -> None:
        self._live = Live(console=console, auto_refresh=False)
        self._console, self._details = console, details

    def show(self, snapshot: Snapshot, *, note: str = "") -> None:
        # A table taller than the terminal would scroll at each redraw.
        room = max(3, self._console.height - 5)
        rows = room if self._details else min(ROWS, room)
        if not self._live.is_started:
            self._live.start()
        self._live.update(picture(snapshot, note=note, rows=rows), refresh=True)

    def close(self) -> None:
        self._live.stop()


class LogScreen:
    """A line every few seconds, and at once when the phase changes or there is a new note."""

    def __init__(
        self, stream: TextIO, *, clock: Callable[[], float] = time.monotonic, details: bool = False
    ) -> None:
        self._stream, self._clock, self._details = stream, clock, details
        self._next_s, self._phase, self._note = clock(), "", ""

    def show(self, snapshot: Snapshot, *, note: str = "") -> None:
        now = self._clock()
        new_phase = snapshot.phase != self._phase
        early = now < self._next_s or snapshot.phase is Phase.DONE  # then nothing changes any more
        if early and not new_phase and note in ("", self._note):
            return
        self._next_s, self._phase, self._note = now + LINE_EVERY_S, snapshot.phase, note
        print(line(snapshot, note=note), file=self._stream)
        if self._details and new_phase and snapshot.tasks:
            Console(file=self._stream, width=100).print(table(snapshot, rows=None))
        self._stream.flush()

    def close(self) -> None:
        self._stream.flush()


def screen_for(stream: TextIO | None = None, *, details: bool = False) -> Screen:
    """A live table where `stream` is a terminal that can redraw, else plain lines."""
    stream = sys.stdout if stream is None else stream
    console = Console(file=stream)
    if console.is_terminal and not console.is_dumb_terminal and stream.isatty():
        return LiveScreen(console, details=details)
    return LogScreen(stream, details=details)
