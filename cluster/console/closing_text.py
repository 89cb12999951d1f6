"""The last lines of a run, in words: what was won, what is left to win, and what to do next."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from cluster.console.terminal import duration, latency, listed, ratio
from tuner.report.closing import Closing, Left, Step
from tuner.report.words import MODELLED, all_of, amount
from tuner.session.progress import Snapshot

_ENDED = {
    "trials": "The trial budget is spent",
    "time": "The time budget is spent",
    "signal": "Stopped by a signal",
    "done": "Nothing is left to try",
    "enough": "More trials would gain little",
}
_NAMED = 3
_SMALL = 0.001


def closing_lines(
    said: Closing,
    snapshot: Snapshot,
    ended: str,
    steps: Sequence[Step],
    mlflow_command: str,
    page: str = "",
) -> list[str]:
    """The lines, three to eleven.

    Args:
        snapshot: the last of the run.
        ended: why it ended, see `TuneResult`.
        steps: commands to run next.
        mlflow_command: opens the record of the search.
        page: file that shows the run; empty where there is none here.
    """
    lines = [
        f"{_ENDED.get(ended, ended.capitalize())}: {amount(snapshot.trials, 'trial')}, "
        f"{duration(snapshot.elapsed_s)} of this session."
    ]
    lines += [f"  won   {won(said, snapshot)}"]
    lines += [f"  {'left' if n == 0 else '':6}{text}" for n, text in enumerate(left(said))]
    if snapshot.next_gain is not None:
        lines.append(f"  more  twice as many trials might save another {snapshot.next_gain:.1%}")
    if page:
        lines.append(f"  page  {page}")
    width = max((len(step.command) for step in steps), default=0)
    commands = [f"{step.command:{width}}   {step.why}" for step in steps]
    for n, text in enumerate((*commands, mlflow_command)):
        lines.append(f"  {'next' if n == 0 else '':6}{text}")
    return lines


def won(said: Closing, snapshot: Snapshot) -> str:
    """What was won, or that nothing was and why, as far as that is known."""
    if not said.left:
        return f"nothing: {_no_times(snapshot)}"
    if said.gain is None:
        return f"not known: the default schedule of {listed(said.untimed, _NAMED)} has no time"
    if not said.won:
        return (
            f"nothing: no schedule was faster than the default's {latency(said.before_s)}; "
            f"{_tried(said)}"
        )
    by = ", ".join(f"{row.task} ({row.share:.0%})" for row in said.won)
    most = f", by {by}" if len(said.won) == 1 else f", most of it by {by}"
    times = f"{latency(said.before_s)} → {latency(said.after_s)}"
    most = most if len(snapshot.tasks) > 1 else ""
    how = f" ({MODELLED})" if snapshot.modelled else ""
    return f"kernels {times}, {ratio(said.gain)} as fast{most}{how}"


def _no_times(snapshot: Snapshot) -> str:
    if snapshot.message:
        return snapshot.message
    failed = sum(snapshot.statuses.values())
    return f"{all_of(failed, 'trial')} failed" if failed else "nothing was measured"


def _tried(said: Closing) -> str:
    first = said.left[0]
    return (
        f"{first.task} had {amount(first.trials, 'trial')}"
        if first.trials
        else "few trials were made"
    )


def left(said: Closing) -> Iterator[str]:
    """Where the model's time is now, and what failed as a whole."""
    if said.left:
        yield "; ".join(_left(row, first=row is said.left[0]) for row in said.left)
    rest = [name for name in said.untimed if said.left]
    if rest and said.gain is not None:
        yield f"not compared, without a time or without their default's: {listed(rest, _NAMED)}"
    if len(said.toolchains) > 1:
        yield mixed_text(len(said.toolchains), said.toolchains[-1], said.stale)
    for row in said.fruitless[:1]:
        more = len(said.fruitless) - 1
        yield (
            f"space {row.space}: {all_of(row.trials, 'trial')} failed"
            + (f", and so did those of {more} more" if more else "")
        )


def mixed_text(number: int, newest: str, stale: Sequence[str]) -> str:
    """That a run's times were taken with several toolchains, and what that means for its winners.

    Args:
        stale: names of the tasks whose winner was timed with another one than the newest.
    """
    of_them = (
        f"the best of {listed(stale, _NAMED)} has its time from an older one"
        if stale
        else "all winners have theirs from the newest"
    )
    return f"times of {number} toolchains, which cannot be compared; {of_them} (now {newest})"


def _left(row: Left, *, first: bool) -> str:
    text = f"{row.task} {row.share:.0%}" + (" of the time" if first else "")
    if row.saved is None:
        return f"{text}, {amount(row.trials, 'trial')}" if row.trials else text
    if row.saved < _SMALL:
        return f"{text}, flat over its last {amount(row.lately, 'trial')}"
    return f"{text}, {row.saved:.1%} faster in its last {row.lately}"
