"""The words and tables of a page: numbers for people."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from tuner.candidate import display_space
from tuner.record import Status
from tuner.report.bench import PROGRAMS
from tuner.report.conditions import TimingConditions
from tuner.report.run_report import RunReport
from tuner.view.run_view import RunView
from tuner.view.task_view import TaskView
from tuner.view.words import (
    MODELLED,
    all_of,
    amount,
    latency,
    note_modelled,
    plural,
    ratio,
    three_digits,
)


def duration(seconds: float) -> str:
    """Seconds as hours, minutes and seconds, those that matter."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes:02} min"
    return f"{minutes} min {rest:02} s" if minutes else f"{rest} s"


def share(value: float | None) -> str:
    """A share in percent; a dash where unknown."""
    return "-" if value is None else f"{value:.1%}"


def words(text: str) -> str:
    """A name of ours as words."""
    return text.replace("_", " ")


FILTERS: dict[str, Callable[..., str]] = {
    "all_of": all_of,
    "amount": amount,
    "latency": latency,
    "ratio": ratio,
    "duration": duration,
    "share": share,
    "words": words,
    "space": display_space,
}


@dataclass(frozen=True, slots=True)
class Figure:
    """A number of the headline, and what it is."""

    value: str
    what: str


def headline(run: RunReport) -> list[Figure]:
    """The numbers that one wants first."""
    view, trials = run.view, run.view.trials
    left_out = len(view.uncompared)
    without = f", {amount(left_out, 'task')} left out" if left_out else ""
    figures = [
        Figure(ratio(view.gain), f"as fast as untuned{without}"),
        Figure(
            f"{latency(view.untuned_s)} → {latency(view.tuned_s)}",
            "; ".join(filter(None, ("the model's kernels", note_modelled(run.manifest.target)))),
        ),
    ]
    failed = sum(view.failures.values())
    outlook = []
    if run.next_gain is not None:
        outlook = [Figure(f"{run.next_gain:.1%}", "less is predicted with twice as many trials")]
    return [
        *(figures if view.tuned_s else [Figure("-", "no kernel has a time yet")]),
        Figure(f"{trials:,}", f"{plural('trial', trials)} on {amount(len(view.tasks), 'task')}"),
        *outlook,
        Figure(duration(view.elapsed_s), f"of work, {view.trials_per_s:.1f} trials/s"),
        Figure(f"{failed:,}", f"{plural('candidate', failed)} failed"),
    ]


def task_lines(run: RunView) -> list[tuple[TaskView, float | None, float | None, str]]:
    """The tasks, those that take most of the tuned model's time first: each with its shares of the
    model's time before and now, and what won it."""
    before, after = run.shares(untuned=True), run.shares()
    return [
        (
            task,
            before.get(task.key),
            after.get(task.key),
            display_space(task.space) or ("kernel set" if task.best_s else ""),
        )
        for task in run.by_time()
    ]


def facts(run: RunReport) -> list[tuple[str, str]]:
    """What the run was, line by line."""
    manifest = run.manifest
    options = {k: v for k, v in manifest.options.items() if v not in (None, "")}
    ends = [
        f"{moment(span.started_s)}, {duration(span.elapsed_s)}"
        f", {span.reason or 'cut off, or still at work'}"
        for span in run.sessions
    ]
    told = [
        ("model", manifest.model),
        ("run", run.place),
        ("target", _target(manifest.target)),
        ("measured on", "; ".join(run.devices)),
        ("times", note_modelled(manifest.target)),
        ("while timed", conditions_note(run.conditions)),
        ("compiled with", "; ".join(run.toolchains)),
        ("options", ", ".join(f"{key} {value}" for key, value in sorted(options.items()))),
        ("precision", manifest.precision.line if manifest.precision else ""),
        ("tuner", manifest.tuner_version),
        ("sessions", "; ".join(ends)),
    ]
    return [(name, value) for name, value in told if value]


_UNLIKE = 1.05
"""How many times as long fixed work takes on one worker as on another that is worth a word."""


def conditions_note(conditions: TimingConditions) -> str:
    """What was wrong with devices while kernels were timed on them; empty where nothing was."""
    of = f"of {conditions.timed} times"
    said = [
        f"{n} {of} on a device that was slowed by {why}" for why, n in conditions.slowed.items()
    ]
    if conditions.beside:
        said.append(f"{conditions.beside} {of} beside other processes on the device")
    anchors_s = {name: s for name, s in conditions.anchors_s.items() if s > 0}
    if anchors_s:
        slow, fast = (choose(anchors_s, key=anchors_s.__getitem__) for choose in (max, min))
        times = anchors_s[slow] / anchors_s[fast]
        if times > _UNLIKE:
            said.append(
                f"fixed work took {three_digits(times)} times as long on {slow} as on {fast}"
            )
    return "; ".join(said)


def _target(text: str) -> str:
    """A target as its kind and attributes, without braces."""
    try:
        told = json.loads(text)
    except ValueError:
        return text
    return ", ".join(f"{key} {value}" for key, value in told.items() if key not in ("tag", "keys"))


def moment(epoch_s: float) -> str:
    """A time, in seconds since the epoch, to the minute."""
    return datetime.fromtimestamp(epoch_s, UTC).strftime("%Y-%m-%d %H:%M UTC")


_FAR = 1.2
"""How many times what the search measured a re-timing is from which on it is worth a word."""


def again_note(run: RunReport) -> str:
    """That the winners' re-timings are far from the times of the search, where they are.

    Nothing of kernel sets: those are slower than each shape's best without any luck.
    """
    if run.again_s is None or not run.curve.best_s or run.kernel_sets:
        return ""
    times = run.again_s / run.curve.best_s
    said = f"Timed again, the winners take {three_digits(times)} times what the search measured"
    if times > _FAR:
        return f"{said}: some of its times were luck, or the machine was busier."
    if times < 1 / _FAR:
        return f"{said}: the machine was busier then."
    return ""


def cut_off(run: RunReport) -> str:
    """How many trials were cut off; empty where none was."""
    count = run.view.statuses.get(Status.CENSORED, 0)
    return f"{count:,} cut off early, for being far slower than the best" if count else ""


def peers_s(run: RunReport) -> dict[str, float]:
    """Latencies of other programs that ran the whole model, where it was timed as a whole."""
    return {
        f"{name}, whole model": seconds
        for line in bench_rows(run)
        for name, seconds, _, _ in line.programs
        # The curve of a model with symbolic dimensions is of no single shape.
        if name == "onnxruntime" and not line.shape
    }


def bench_note(run: RunReport) -> str:
    """When the whole model was timed, and whether the run went on since."""
    if run.bench is None:
        return ""
    later = "; the run went on since then" if run.last_s > run.bench.time_s else ""
    modelled = any(shape.get("modelled") for shape in run.bench.shapes)
    how = f", {MODELLED}" if modelled else ""
    return f"timed on {moment(run.bench.time_s)}{how}{later}"


@dataclass(frozen=True, slots=True)
class BenchLine:
    """The whole model on one shape.

    Attributes:
        shape: sizes of symbolic dimensions as text; empty where there are none.
        programs: name, latency in seconds, spread of its times, and how many times the tuned
            model's latency it is.
    """

    shape: str
    programs: list[tuple[str, float, float | None, float]]


def bench_rows(run: RunReport) -> list[BenchLine]:
    """The results of timing the whole model; none where it was not."""
    lines = []
    for bench in run.bench.shapes if run.bench else ():
        shape = ", ".join(f"{name}={size}" for name, size in (bench.get("shape") or {}).items())
        tuned_ms, spread = bench["tuned_ms"], bench.get("spread") or {}
        programs = [
            (name, ms / 1e3, spread.get(name), ms / tuned_ms)
            for name in PROGRAMS
            if (ms := bench.get(f"{name}_ms")) and tuned_ms
        ]
        lines.append(BenchLine(shape, programs))
    return lines


@dataclass(frozen=True, slots=True)
class Comparison:
    """Several runs in tables.

    Attributes:
        names: of the runs.
        rows: what is compared, and its value in each run.
        tasks: of tasks that several runs have: the latency in each, and the place of the best,
            None where two are as good for who reads them.
    """

    names: list[str]
    rows: list[tuple[str, list[str]]]
    tasks: list[tuple[str, list[str], int | None]]


def comparison(runs: Sequence[RunReport]) -> Comparison:
    """The tables that compare runs."""
    rows: list[tuple[str, list[str]]] = [
        ("model", [run.manifest.model for run in runs]),
        ("measured on", ["; ".join(run.devices) or "-" for run in runs]),
        ("strategy", [str(run.manifest.options.get("strategy") or "-") for run in runs]),
        ("effort", [str(run.manifest.options.get("effort") or "-") for run in runs]),
        ("seed", [str(run.manifest.options.get("seed", "-")) for run in runs]),
        ("trials", [f"{run.view.trials:,}" for run in runs]),
        ("work", [duration(run.view.elapsed_s) for run in runs]),
        ("untuned", [latency(run.view.untuned_s) for run in runs]),
        ("tuned", [latency(run.view.tuned_s) for run in runs]),
        ("gain", [ratio(run.view.gain) for run in runs]),
    ]
    # Names are numbered within a model: only tasks of one name and one program are the same.
    found: dict[tuple[str, str], list[float | None]] = {}
    for place, run in enumerate(runs):
        for task in run.view.tasks:
            same = task.name, run.programs[task.name]
            found.setdefault(same, [None] * len(runs))[place] = task.best_s
    tasks = [
        (name, [latency(s) for s in mine], _least(mine))
        for (name, _), mine in found.items()
        if sum(s is not None for s in mine) > 1
    ]
    return Comparison([run.name for run in runs], rows, tasks)


def _least(latencies_s: Sequence[float | None]) -> int | None:
    """The place of the least of two or more; None where the next one is shown alike."""
    known = sorted((s, place) for place, s in enumerate(latencies_s) if s is not None)
    (least_s, place), (next_s, _) = known[:2]
    return None if latency(least_s) == latency(next_s) else place
