"""Several runs in one table, and the tasks of a run that is alone: a pure function of summaries."""

from __future__ import annotations

import re
from collections.abc import Sequence

from rich.console import Group
from rich.table import Table
from rich.text import Text

from cluster.app.console.terminal import duration, latency, ratio, table, tell_failures
from tuner.report.summary import RunSummary
from tuner.utilisation import BUILDER, BUSY, RUNNER, SPACE, SlotSeconds, shares

_SOME, _ALL = 100, 130
"""Columns of a terminal from which on the use of runners and the time since the last gain are
shown, and the use of all kinds of workers and whose latency and gain these are."""
_OTHERS = 112
"""Columns that all but the name take; each two more between them."""
_SHORT_NAME = 14
_NOTHING = "no runs"


def in_order(summaries: Sequence[RunSummary]) -> list[RunSummary]:
    """Those at work first, then the last that were, then those that cannot be read; each once."""
    once = {summary.name: summary for summary in summaries}
    return sorted(
        once.values(), key=lambda g: (not g.at_work, not g.readable, -(g.seen_s or 0.0), g.name)
    )


def top_picture(summaries: Sequence[RunSummary], *, width: int, rows: int | None) -> Group:
    """The whole screen.

    Args:
        width: columns of the terminal.
        rows: lines that may be taken; None is any number.
    """
    ordered = in_order(summaries)
    if not ordered:
        return Group(Text(_NOTHING))
    room = len(ordered) + 1 if rows is None else max(2, rows - 1)
    shown = ordered if len(ordered) < room else ordered[: room - 2]
    read = [summary for summary in shown if summary.readable]
    parts: list[Text | Table] = [_runs(read, width)] if read else []
    for summary in shown:
        if not summary.readable:
            cut = rows is not None  # a line that wraps would take a row more
            said = why_unreadable(summary)
            parts.append(Text(said, no_wrap=cut, overflow="ellipsis" if cut else None))
    if rest := len(ordered) - len(shown):
        parts.append(Text(f"and {rest} more", style="dim"))
    if len(ordered) == 1 and ordered[0].tasks:
        (only,) = ordered
        if only.failures:
            parts.append(Text(f"failed: {tell_failures(only.failures)}", style="dim"))
        most = None if rows is None else max(3, rows - 5)
        parts += [Text(), table(only, rows=most)]
    return Group(*parts)


def why_unreadable(summary: RunSummary) -> str:
    """A line on a run that cannot be read, which names it once."""
    named = re.search(rf"(?<![\w./-]){re.escape(summary.name)}(?![\w.-])", summary.state)
    return summary.state if named else f"{summary.name}: {summary.state}"


def _runs(summaries: Sequence[RunSummary], width: int) -> Table:
    grid = Table(box=None, pad_edge=False, header_style="dim", expand=False)
    grid.add_column("run")
    grid.add_column("state")
    some = width >= _SOME
    kinds = (RUNNER, BUILDER, SPACE) if width >= _ALL else (RUNNER,) if some else ()
    flat, whose = ("flat for",) if some else (), ("of",) if width >= _ALL else ()
    for column in ("elapsed", "trials", "/s", "latency", "gain", *whose, *flat, "failed", *kinds):
        grid.add_column(column, justify="right", no_wrap=True)
    for summary in summaries:
        style = "" if summary.at_work else "dim"
        grid.add_row(
            Text(_short(summary.name, max(_SHORT_NAME, width - _OTHERS)), no_wrap=True),
            Text(summary.state, style=style, no_wrap=True, overflow="ellipsis"),
            duration(summary.elapsed_s),
            str(summary.trials),
            f"{summary.trials_per_s:.1f}",
            latency(summary.latency_s) + (" modelled" if summary.modelled else ""),
            ratio(summary.gain),
            *([_whose(summary)] if whose else []),
            *([_flat(summary)] if some else []),
            str(sum(summary.failures.values()) or ""),
            *(_busy(summary.utilisation, kind) for kind in kinds),
        )
    return grid


def _short(name: str, most: int) -> str:
    """The end of a long name, which says more than its beginning."""
    return name if len(name) <= most else f"…{name[-most + 1 :]}"


def _whose(summary: RunSummary) -> str:
    """What latency and gain are of: the search while it goes on, else what was timed again."""
    return "-" if summary.latency_s is None else "end" if summary.settled else "search"


def _flat(summary: RunSummary) -> str:
    """How long it has worked since it became faster."""
    return "-" if summary.since_improved_s is None else duration(summary.since_improved_s)


def _busy(seconds: SlotSeconds, kind: str) -> str:
    parted = shares(seconds.get(kind, {}))
    return f"{parted.get(BUSY, 0.0):.0%}" if parted else "-"
