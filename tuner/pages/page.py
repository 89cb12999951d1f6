"""A page on one run, or on several beside each other.

It is one file that needs nothing else: the data, the drawing libraries and the look are in it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jinja2
from altair.utils.schemapi import debug_mode

from tuner.pages.bundle import bundle
from tuner.pages.model_quality import estimate_chart, noise_chart, ranking_chart, score_chart
from tuner.pages.progress import latency_chart
from tuner.pages.shapes import latency_charts, loss_chart, tree_chart
from tuner.pages.slot_time import time_chart, timeline_chart
from tuner.pages.tasks import shares_chart
from tuner.pages.wording import (
    FILTERS,
    again_note,
    bench_note,
    bench_rows,
    comparison,
    cut_off,
    facts,
    headline,
    peers_s,
    task_lines,
)
from tuner.report.run_report import RunReport
from tuner.view.words import amount


@dataclass(frozen=True, slots=True)
class Chart:
    """A chart and what a reader is to see in it."""

    title: str
    note: str
    specification: dict[str, Any]

    @property
    def json(self) -> str:
        """The specification as text that is safe within a script element."""
        text = json.dumps(self.specification, separators=(",", ":"), allow_nan=False)
        return text.replace("<", "\\u003c")


@dataclass(frozen=True, slots=True)
class Section:
    """Charts under one heading.

    Attributes:
        wide: whether each of them takes the page's whole width.
        task: that they are of; empty for those of the run.
    """

    title: str
    charts: tuple[Chart, ...]
    wide: bool = False
    task: str = ""


def page(runs: Sequence[RunReport], *, made: str, cache: Path) -> str:
    """The page as HTML.

    Args:
        runs: at least one, with different names.
        made: when and by what it was made, for its foot.
        cache: folder for the drawing libraries.
    """
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("tuner.pages", "templates"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    environment.filters |= FILTERS
    with debug_mode(False):
        told = [_as_plain(run) for run in runs]
        together = list(compare_runs(runs)) if len(runs) > 1 else []
    return environment.get_template("page.html").render(
        title=" · ".join(run.name for run in runs),
        runs=told,
        compared=together,
        comparison=comparison(runs) if len(runs) > 1 else None,
        script=bundle(cache),
        made=made,
    )


def _as_plain(run: RunReport) -> dict[str, Any]:
    """What the template shows of one run."""
    return {
        "run": run,
        "headline": headline(run),
        "sections": list(sections(run)),
        "tasks": task_lines(run.view),
        "benches": bench_rows(run),
        "bench_note": bench_note(run),
        "facts": facts(run),
        "cut_off": cut_off(run),
    }


def compare_runs(runs: Sequence[RunReport]) -> Iterator[Section]:
    """The charts of several runs together."""
    curves = {run.name: run.curve for run in runs if run.curve.points}
    ends_s = {run.name: run.again_s for run in runs if run.curve.points and run.again_s}
    if curves:
        note = (
            "Curves are of the times of the search; points are the winners, timed again."
            if ends_s
            else ""
        )
        yield Section(
            "Side by side",
            (
                Chart("Latency over time", note, latency_chart(curves, "elapsed_s", {}, ends_s)),
                Chart("Latency over trials", note, latency_chart(curves, "trials", {}, ends_s)),
            ),
        )
    if any(run.fits for run in runs):
        fits = {run.name: run.fits for run in runs if run.fits}
        yield Section("", (Chart("Ranking of unseen candidates", "", ranking_chart(fits)),))


def sections(run: RunReport) -> Iterator[Section]:
    """The charts of one run, those left out that it has nothing for."""
    yield from _progress(run)
    if run.view.latency_s:
        note = "A task that is a large share after tuning is where more trials would pay."
        chart = Chart("Each task's share of the model's time", note, shares_chart(run.view))
        yield Section("Where the model's time goes", (chart,), wide=True)
    for name, chosen in run.kernel_sets.items():
        yield _shapes(name, chosen)
    yield from _work(run)
    yield from _judgement(run)


def _progress(run: RunReport) -> Iterator[Section]:
    if not run.curve.points:
        return
    untuned = "untuned, at least" if run.view.uncompared else "untuned"
    marks = {untuned: run.curve.default_s, **peers_s(run)}
    if run.again_s is not None:
        marks["tuned, timed again"] = run.again_s
    curves = {run.name: run.curve}
    note = "The weighted sum of the tasks' best kernels, from the first moment each had a time."
    note = f"{note} {again}" if (again := again_note(run)) else note
    yield Section(
        "Model latency",
        (
            Chart("Over time", note, latency_chart(curves, "elapsed_s", marks)),
            Chart("Over trials", "", latency_chart(curves, "trials", marks)),
        ),
    )


def _shapes(name: str, chosen: Any) -> Section:
    count = len(chosen.kernels)
    note = f"{amount(count, 'kernel')} taken (ringed); the tree costs {chosen.loss:.3f}."
    charts = [Chart("What fewer kernels would cost", note, loss_chart(chosen))]
    for dim, specification in latency_charts(chosen):
        note = "Ticks: the best kernel of all that were measured on that shape."
        charts.append(Chart(f"Latency over {dim}", note, specification))
    note = "To the left where the condition holds; numbers are kernels."
    charts.append(Chart("Which shape takes which kernel", note, tree_chart(chosen.tree)))
    return Section(f"Shapes of {name}", tuple(charts), task=name)


def _work(run: RunReport) -> Iterator[Section]:
    if used := run.view.utilisation:
        chart = Chart("All sessions together", "", time_chart(used))
        yield Section("Where the workers' time went", (chart,), wide=True)
    if run.spans:
        names = {task.key: task.name for task in run.view.tasks}
        note = "One lane a worker. Drag to move along, turn the wheel to look closer."
        chart = Chart("Timeline", note, timeline_chart(run.spans, names))
        yield Section("", (chart,), wide=True)


def _judgement(run: RunReport) -> Iterator[Section]:
    charts = []
    if run.fits:
        note = (
            "Pairs that each new model ordered rightly before it had seen them; 50 % is chance. "
            "They were chosen for being good, so they are much alike."
        )
        charts.append(Chart("The model's ranking", note, ranking_chart({run.name: run.fits})))
    if any(pair.score is not None for pair in run.pairs):
        note = "The better the model, the more the points rise to the right."
        charts.append(Chart("Predicted and measured", note, score_chart(run.pairs)))
    if any(pair.estimate_s for pair in run.pairs):
        note = "The closer to the line, the better the estimate."
        charts.append(Chart("Estimated and measured", note, estimate_chart(run.pairs)))
    if charts:
        yield Section("How well candidates are judged beforehand", tuple(charts))
    if run.retimings:
        note = "Differences smaller than this spread mean nothing."
        chart = Chart("Re-timings of the finalists", note, noise_chart(run.retimings))
        yield Section("Noise", (chart,), wide=True)
