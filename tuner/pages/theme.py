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


def data(rows: Rows) -> alt.InlineData:
    """Rows as the data of a chart."""
    return alt.InlineData(values=[dict(row) for row in rows])


def specification(chart: Any, **size: Any) -> dict[str, Any]:
    """The Vega-Lite specification of a chart, in this look, as wide as the page has room.

    Args:
        size: `height`, where it is not the usual one.
    """
    told = chart.properties(**{"width": "container", "height": HEIGHT, **size})
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
    return dict(told.to_dict())


def unit_of(latencies_s: Sequence[float]) -> tuple[str, float]:
    """A unit that the latencies are read well in, and how many of it a second has."""
    largest_s = max(latencies_s, default=0.0)
    for unit, in_s, above_s in (("s", 1.0, 1.0), ("ms", 1e3, 1e-3), ("µs", 1e6, 1e-6)):
        if largest_s >= above_s:
            return unit, in_s
    return "ns", 1e9
