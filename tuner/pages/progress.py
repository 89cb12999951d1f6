"""Charts of the model's latency over a run, or over several."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import altair as alt

from tuner.pages.theme import INK, TUNED, specification, unit_of
from tuner.view.model_curve import ModelCurve

_X_AXIS, _FROM_ZERO = alt.Axis(grid=False, tickCount=6), alt.Scale(domainMin=0, nice=False)
_NONE: Mapping[str, float] = MappingProxyType({})
_STEPS = 400
"""Points of a curve that are drawn; of more, the last of each stretch of time."""


def latency_chart(
    curves: Mapping[str, ModelCurve],
    over: str,
    marks_s: Mapping[str, float],
    ends_s: Mapping[str, float] = _NONE,
) -> dict[str, Any]:
    """Latency over seconds of work or over trials: one line for each curve.

    Args:
        over: `elapsed_s` or `trials`.
        marks_s: latencies to compare with, by what has them: a line across the chart.
        ends_s: latencies to mark where a curve ends, by the curve's name.
    """
    known = {name: curve for name, curve in curves.items() if curve.points}
    latencies_s = [p.latency_s for curve in known.values() for p in curve.points]
    unit, in_s = unit_of([*latencies_s, *marks_s.values(), *ends_s.values()])
    rows = [
        {"run": name, "x": getattr(p, over), "latency": p.latency_s * in_s}
        for name, curve in known.items()
        for p in _thin(curve.points)
    ]
    title = "seconds of work" if over == "elapsed_s" else "trials"
    x = alt.X("x:Q", title=title, axis=_X_AXIS, scale=_FROM_ZERO)
    y = alt.Y("latency:Q", title=f"model latency, {unit}", scale=alt.Scale(type="log"))
    tooltip = [
        alt.Tooltip("run:N"),
        alt.Tooltip("x:Q", title=title, format=".4~g"),
        alt.Tooltip("latency:Q", title=unit, format=".4~g"),
    ]
    several = len(known) > 1
    color = alt.Color("run:N", title=None, sort=[*known]) if several else alt.value(TUNED)
    shown = {"x": x, "y": y, "color": color, "tooltip": tooltip}
    lines = alt.Chart(alt.NamedData("rows")).mark_line(interpolate="step-after", strokeWidth=2.2)
    layers, datasets = [lines.encode(**shown)], {"rows": rows}
    if ends_s:
        points = alt.Chart(alt.NamedData("ends")).mark_point(filled=True, size=90, opacity=1)
        layers.append(points.encode(**shown))
        datasets["ends"] = [
            {"run": name, "x": getattr(curve.points[-1], over), "latency": ends_s[name] * in_s}
            for name, curve in known.items()
            if name in ends_s
        ]
    if marks_s:
        layers += _across()
        datasets["marks"] = [{"what": w, "latency": s * in_s} for w, s in marks_s.items()]
    chart = layers[0] if len(layers) == 1 else alt.layer(*layers)
    return specification(chart, datasets)


def _across() -> list[Any]:
    """Lines across the chart with what they are."""
    base = alt.Chart(alt.NamedData("marks"))
    rules = base.mark_rule(strokeDash=[5, 4], color=INK, opacity=0.7).encode(y="latency:Q")
    names = base.mark_text(align="right", dy=-7, color=INK).encode(
        x=alt.value("width"), y="latency:Q", text="what:N"
    )
    return [rules, names]


def _thin(points: Sequence[Any]) -> list[Any]:
    """At most `_STEPS` points and the first and last; of each stretch of time the last."""
    if len(points) <= _STEPS:
        return list(points)
    first, last = points[0], points[-1]
    step_s = (last.elapsed_s - first.elapsed_s) / _STEPS or 1.0
    kept = {int((p.elapsed_s - first.elapsed_s) / step_s): p for p in points}
    return [first, *kept.values(), last]
