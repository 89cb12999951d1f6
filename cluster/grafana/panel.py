"""The words that panels of a dashboard are declared in."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

WIDTH = 24
"""Columns of a dashboard."""


class Look(StrEnum):
    """What a panel looks like, in Grafana's words."""

    CURVES = "timeseries"
    NUMBER = "stat"
    DIAL = "gauge"


@dataclass(frozen=True, slots=True)
class Query:
    """What a panel shows.

    Attributes:
        expr: an expression of Prometheus, which may name Grafana's variables.
        legend: the name of each of its series; `{{label}}` stands for a label's value.
    """

    expr: str
    legend: str


@dataclass(frozen=True, slots=True)
class Step:
    """The colour of values from a threshold up; None is the colour of the lowest values."""

    at: float | None
    color: str


NEUTRAL = (Step(None, "blue"),)
"""The threshold of values that are neither good nor bad."""


@dataclass(frozen=True, slots=True)
class Panel:
    """A panel of a dashboard.

    Attributes:
        about: what it says, for whoever holds the pointer over its title.
        unit: Grafana's name of it.
        steps: where the colour changes; curves have a dashed line there.
        stacked: whether curves lie on top of each other.
        most: the end of the axis; None where values have no end.
    """

    title: str
    about: str
    queries: Sequence[Query]
    look: Look = Look.CURVES
    unit: str = "short"
    steps: Sequence[Step] = NEUTRAL
    stacked: bool = False
    most: float | None = None
    width: int = WIDTH // 3
    height: int = 8


@dataclass(frozen=True, slots=True)
class Row:
    """Panels under one heading; they begin a new line where one is full."""

    title: str
    panels: Sequence[Panel]
