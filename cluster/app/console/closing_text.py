"""The last lines of a run, in words: what was won, what is left to win, and what to do next."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from cluster.app.console.terminal import duration, latency, list_names, ratio
from tuner.view.outcome import Step, find_stale, look_back, rank_left, rank_won
from tuner.view.progress import Snapshot
from tuner.view.run_view import RunView
from tuner.view.task_view import TaskView
from tuner.view.words import MODELLED, all_of, amount

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
    lines += [f"  won   {_won(snapshot)}"]
    lines += [f"  {'left' if n == 0 else '':6}{text}" for n, text in enumerate(_left(snapshot))]
    if snapshot.next_gain is not None:
        lines.append(f"  more  twice as many trials might save another {snapshot.next_gain:.1%}")
    if page:
        lines.append(f"  page  {page}")
    width = max((len(step.command) for step in steps), default=0)
    commands = [f"{step.command:{width}}   {step.why}" for step in steps]
    for n, text in enumerate((*commands, mlflow_command)):
        lines.append(f"  {'next' if n == 0 else '':6}{text}")
    return lines


def _won(run: Snapshot) -> str:
    """What was won, or that nothing was and why, as far as that is known."""
    left, won = rank_left(run), rank_won(run)
    if not left:
        return f"nothing: {_no_times(run)}"
    if run.gain is None:
        return (
            f"not known: the default schedule of {list_names(run.uncompared, _NAMED)} has no time"
        )
    if not won:
        return (
            f"nothing: no schedule was faster than the default's {latency(run.untuned_s)}; "
            f"{_tried(left[0][0])}"
        )
    by = ", ".join(f"{task.name} ({share:.0%})" for task, share in won)
    most = f", by {by}" if len(won) == 1 else f", most of it by {by}"
    times = f"{latency(run.untuned_s)} → {latency(run.tuned_s)}"
    most = most if len(run.tasks) > 1 else ""
    how = f" ({MODELLED})" if run.modelled else ""
    return f"kernels {times}, {ratio(run.gain)} as fast{most}{how}"


def _no_times(run: Snapshot) -> str:
    if run.message:
        return run.message
    failed = sum(run.statuses.values())
    return f"{all_of(failed, 'trial')} failed" if failed else "nothing was measured"


def _tried(task: TaskView) -> str:
    trials = len(task.history)
    return f"{task.name} had {amount(trials, 'trial')}" if trials else "few trials were made"


def _left(run: RunView) -> Iterator[str]:
    """Where the model's time is now, and what failed as a whole."""
    left = rank_left(run)
    if left:
        yield "; ".join(_left_of(*row, first=row is left[0]) for row in left)
    if left and run.uncompared and run.gain is not None:
        named = list_names(run.uncompared, _NAMED)
        yield f"not compared, without a time or without their default's: {named}"
    if len(run.toolchains) > 1:
        yield explain_toolchains(run)
    fruitless = [space for space in run.spaces if space.fruitless]
    for space in fruitless[:1]:
        more = len(fruitless) - 1
        yield (
            f"space {space.space}: {all_of(space.failed, 'trial')} failed"
            + (f", and so did those of {more} more" if more else "")
        )


def explain_toolchains(run: RunView) -> str:
    """That a run's times were taken with several toolchains, and what that means."""
    stale, newest = find_stale(run), run.toolchains[-1].toolchain
    of_them = (
        f"the best of {list_names(stale, _NAMED)} has its time from an older one"
        if stale
        else "all winners have theirs from the newest"
    )
    count = len(run.toolchains)
    return f"times of {count} toolchains, which cannot be compared; {of_them} (now {newest})"


def _left_of(task: TaskView, share: float, *, first: bool) -> str:
    text = f"{task.name} {share:.0%}" + (" of the time" if first else "")
    lately, saved = look_back(task)
    if saved is None:
        return f"{text}, {amount(len(task.history), 'trial')}" if task.history else text
    if saved < _SMALL:
        return f"{text}, flat over its last {amount(lately, 'trial')}"
    return f"{text}, {saved:.1%} faster in its last {lately}"
