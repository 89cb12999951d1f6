"""Charts of the workers' time: what it went to, and when."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import altair as alt

from tuner.pages.theme import specification
from tuner.report.slots import lanes, use_of, words_of
from tuner.utilisation import SlotSeconds, SlotSpan

_COLOURS = {
    "draft": "#8a8f2d",
    "build": "#d1662a",
    "measure": "#2a7fbf",
    "waiting": "#9a8fc0",
    "starting": "#b7b7b7",
    "idle": "#8883",
}
"""Work in strong colours, the rest in weak ones."""


def _color() -> Any:
    scale = alt.Scale(domain=[*_COLOURS], range=[*_COLOURS.values()])
    return alt.Color("use:N", title=None, scale=scale, legend=alt.Legend(columns=6))


def time_chart(seconds: SlotSeconds) -> dict[str, Any]:
    """What the time of each kind of worker went to, as shares of it."""
    rows = [
        {
            "kind": kind,
            "use": use_of(kind, category),
            "what": words_of(kind, category),
            "seconds": spent_s,
            "share": spent_s / (sum(categories.values()) or 1.0),
        }
        for kind, categories in sorted(seconds.items())
        for category, spent_s in sorted(categories.items())
    ]
    chart = (
        alt.Chart(alt.NamedData("rows"))
        .mark_bar()
        .encode(
            alt.X(
                "share:Q",
                title="share of the workers' time",
                axis=alt.Axis(format="%"),
                scale=alt.Scale(domain=[0, 1], nice=False),
            ),
            alt.Y("kind:N", title=None),
            _color(),
            alt.Detail("what:N"),
            alt.Order("order:Q"),
            tooltip=[
                "kind:N",
                "what:N",
                alt.Tooltip("seconds:Q", format=",.0f"),
                alt.Tooltip("share:Q", format=".1%"),
            ],
        )
        .transform_calculate(order=f"indexof({[*_COLOURS]}, datum.use)")
    )
    return specification(chart, {"rows": rows}, height=40 * max(1, len(seconds)))


def timeline_chart(
    spans: Sequence[SlotSpan], names: Mapping[str, str], *, row: int = 18
) -> dict[str, Any]:
    """What each slot did when. Drag to move along, turn the wheel to look closer.

    Args:
        spans: in seconds of work.
        names: of tasks, by their keys.
        row: height of a slot's lane, pixels; less where there are many slots.
    """
    slots = lanes(spans)
    rows = [
        {
            "slot": span.slot,
            "use": use_of(span.kind, span.category),
            "what": words_of(span.kind, span.category),
            "task": names.get(span.task_key, ""),
            "from": round(span.started_s, 3),
            "to": round(span.ended_s, 3),
        }
        for span in spans
    ]
    order = [slot for _, slot in slots]
    chart = (
        alt.Chart(alt.NamedData("rows"))
        .mark_bar(height=alt.RelativeBandSize(band=0.86))
        .encode(
            alt.X(
                "from:Q",
                title="seconds of work",
                scale=alt.Scale(nice=False),
            ),
            alt.X2("to:Q"),
            alt.Y("slot:N", sort=order, title=None, axis=alt.Axis(ticks=False, domain=False)),
            _color(),
            tooltip=[
                "slot:N",
                "what:N",
                "task:N",
                alt.Tooltip("from:Q", title="from, s"),
                alt.Tooltip("to:Q", title="to, s"),
            ],
        )
        .interactive(bind_y=False)
    )
    row = row if len(slots) <= 40 else max(5, 720 // len(slots))
    return specification(chart, {"rows": rows}, height=max(80, row * len(slots)))
