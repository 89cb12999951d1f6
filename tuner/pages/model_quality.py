"""Charts of how well candidates are judged before they are measured, and of the times' noise."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import altair as alt

from tuner.pages.theme import INK, TUNED, UNTUNED, Rows, specification
from tuner.report.noise import Retiming
from tuner.report.predictions import Pair
from tuner.report.run_report import FitPoint

_CHANCE = 0.5
_TASKS = 24
_TICKS = 8
"""About so many are on an axis."""


def score_chart(pairs: Sequence[Pair]) -> dict[str, Any]:
    """The cost model's score of each candidate, and how close to its task's best it then was."""
    rows = [
        {
            "score": round(pair.score, 4),
            "speed": round(pair.of_best, 4),
            "task": pair.task,
            "trial": pair.trial,
            "us": pair.latency_s * 1e6,
        }
        for pair in pairs
        if pair.score is not None
    ]
    chart = (
        alt.Chart(alt.NamedData("rows"))
        .mark_circle(size=26, opacity=0.55)
        .encode(
            alt.X("score:Q", title="predicted (the model's score)", scale=alt.Scale(zero=False)),
            alt.Y(
                "speed:Q",
                title="measured, of the task's best",
                axis=alt.Axis(format="%"),
                scale=alt.Scale(domain=[0, 1]),
            ),
            alt.Color("trial:Q", title="trial", scale=alt.Scale(scheme="viridis")),
            tooltip=[
                "task:N",
                "trial:Q",
                "score:Q",
                alt.Tooltip("us:Q", format=".4~g"),
            ],
        )
        .interactive()
    )
    return specification(chart, {"rows": rows})


def estimate_chart(pairs: Sequence[Pair]) -> dict[str, Any]:
    """The analytic estimate of each candidate's latency beside its time."""
    known = [(p.estimate_s * 1e6, p.latency_s * 1e6, p.task) for p in pairs if p.estimate_s]
    rows = [{"estimate": guess, "time": time, "task": task} for guess, time, task in known]
    log = alt.Scale(type="log")
    points = (
        alt.Chart(alt.NamedData("rows"))
        .mark_circle(size=26, opacity=0.5, color=TUNED)
        .encode(
            alt.X("estimate:Q", title="estimated, µs", scale=log),
            alt.Y("time:Q", title="measured, µs", scale=log),
            tooltip=["task:N", alt.Tooltip("estimate:Q"), alt.Tooltip("time:Q")],
        )
    )
    ends = [{"estimate": us, "time": us} for us in _range(known)]
    same = (
        alt.Chart(alt.NamedData("ends"))
        .mark_line(color=INK, opacity=0.5, strokeDash=[4, 4])
        .encode(x="estimate:Q", y="time:Q")
    )
    return specification(alt.layer(same, points), {"rows": rows, "ends": ends})


def _range(known: Sequence[tuple[float, float, str]]) -> tuple[float, float]:
    both = [us for guess, time, _ in known for us in (guess, time)]
    return min(both), max(both)


def ranking_chart(fits: Mapping[str, Sequence[FitPoint]]) -> dict[str, Any]:
    """Share of pairs that each model ordered correctly among candidates it had not seen."""
    rows = [
        {"run": name, "x": fit.elapsed_s, "records": fit.records, "accuracy": fit.accuracy}
        for name, mine in fits.items()
        for fit in mine
    ]
    y = alt.Y(
        "accuracy:Q",
        title="pairs in the right order",
        axis=alt.Axis(format="%"),
        scale=alt.Scale(domain=[0.3, 1.0], clamp=True),
    )
    tooltip = ["run:N", "records:Q", alt.Tooltip("accuracy:Q", format=".1%")]
    lines = alt.Chart(alt.NamedData("rows")).mark_line(point=True)
    x = alt.X("x:Q", title="seconds of work")
    if len(fits) > 1:
        lines = lines.encode(x, y, alt.Color("run:N", title=None, sort=[*fits]), tooltip=tooltip)
    else:
        lines = lines.encode(x, y, color=alt.value(TUNED), tooltip=tooltip)
    chance = (
        alt.Chart(alt.NamedData("chance"))
        .mark_rule(strokeDash=[4, 4], color=INK, opacity=0.5)
        .encode(y="accuracy:Q")
    )
    datasets: dict[str, Rows] = {"rows": rows, "chance": [{"accuracy": _CHANCE}]}
    return specification(alt.layer(lines, chance), datasets)


def noise_chart(told: Sequence[Retiming]) -> dict[str, Any]:
    """Each re-timing of the finalists, over the median of its candidate."""
    tasks = list(dict.fromkeys(r.task for r in told))[:_TASKS]
    rows = [
        {
            "task": r.task,
            "relative": r.relative - 1.0,
            "round": r.round,
            "who": "winner" if r.winner else "other finalists",
        }
        for r in told
        if r.task in tasks
    ]
    there = {row["who"] for row in rows}
    drawn = {"winner": TUNED, "other finalists": UNTUNED}
    who = {name: color for name, color in drawn.items() if name in there}
    colors = alt.Scale(domain=[*who], range=[*who.values()])
    decimals = _decimals([r.relative for r in told if r.task in tasks])
    chart = (
        alt.Chart(alt.NamedData("rows"))
        .mark_tick(thickness=2, opacity=0.75)
        .encode(
            alt.X(
                "relative:Q",
                title="time of a round, over the candidate's median",
                axis=alt.Axis(format=f"+.{decimals}%", tickCount=_TICKS),
            ),
            alt.Y("task:N", sort=tasks, title=None),
            alt.Color("who:N", title=None, scale=colors),
            tooltip=["task:N", "who:N", "round:Q", alt.Tooltip("relative:Q", format="+.1%")],
        )
    )
    return specification(chart, {"rows": rows}, height=max(70, 24 * len(tasks)))


def _decimals(shares: Sequence[float]) -> int:
    """Decimals of percents with which neighbouring ticks of an axis over these differ."""
    step = 100 * (max(shares) - min(shares)) / _TICKS
    return min(6, max(0, -math.floor(math.log10(step)))) if step > 0 else 1
