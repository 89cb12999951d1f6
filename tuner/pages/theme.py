"""The look that all charts share, on a light and on a dark page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import altair as alt

Rows = Sequence[Mapping[str, Any]]

INK = "currentColor"
"""Text and axes take the colour of the page around the chart, whatever its scheme."""
QUIET = "#8888"
UNTUNED, TUNED = "#b0752f", "#2a7fbf"
"""Before and after: told apart in grey and by people who see few colours."""
SERIES = ("#2a7fbf", "#d1662a", "#3a9d5d", "#b24a8f", "#8a8f2d", "#6a5acd", "#c03a3a", "#4aa3a3")

_FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif"
HEIGHT = 260


def specification(chart: Any, rows: Mapping[str, Rows], *, height: int = HEIGHT) -> dict[str, Any]:
    """The Vega-Lite specification of a chart, in this look, as wide as the page has room.

    Args:
        chart: made of `alt.NamedData`: Altair copies rows that are in a chart at each step.
        rows: the data by its name.
        height: pixels.
    """
    told = chart.properties(width="container", height=height)
    told = told.configure(
        background="transparent",
        font=_FONT,
        padding=4,
        autosize=alt.AutoSizeParams(type="fit-x", contains="padding"),
    )
    told = told.configure_axis(
        labelColor=INK,
        titleColor=INK,
        gridColor=QUIET,
        gridOpacity=0.35,
        domainColor=QUIET,
        tickColor=QUIET,
        labelFontSize=12,
        titleFontSize=12,
        titleFontWeight="normal",
        labelLimit=170,
    )
    told = told.configure_legend(
        labelColor=INK,
        titleColor=INK,
        labelFontSize=12,
        titleFontSize=12,
        titleFontWeight="normal",
        orient="top",
        columns=4,
        labelLimit=240,
    )
    told = told.configure_view(stroke=None).configure_text(color=INK, fontSize=12)
    told = told.configure_range(category=list(SERIES))
    # Checking against the schema takes longer than all else: a test does it.
    plain = dict(told.to_dict(validate=False))
    return {**plain, "datasets": {name: list(map(dict, mine)) for name, mine in rows.items()}}


def unit_of(latencies_s: Sequence[float]) -> tuple[str, float]:
    """A unit that the latencies are read well in, and how many of it a second has."""
    largest_s = max(latencies_s, default=0.0)
    for unit, in_s, above_s in (("s", 1.0, 1.0), ("ms", 1e3, 1e-3), ("µs", 1e6, 1e-6)):
        if largest_s >= above_s:
            return unit, in_s
    return "ns", 1e9
