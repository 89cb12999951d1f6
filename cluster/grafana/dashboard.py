"""Panels as the JSON that Grafana 9 and newer read, from a file as well as by hand.

Written here since no library does it for long: `grafanalib` makes panels that Grafana has since
taken out, and Grafana's own `grafana-foundation-sdk` (0.0.21, "alpha") declares this form, the one
that Ray's dashboards have too, to be outdated, while the new one needs a Grafana of this year.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from cluster.grafana.panel import WIDTH, Look, Panel, Row
from cluster.grafana.panels import ROWS, RUN_OF

UID = "elasticTuner"
FILE_NAME = "elastic_tuner_grafana_dashboard.json"
"""Its name among those of Ray's own dashboards."""
_SCHEMA = 36
"""Of Grafana 9; newer ones read it."""
_SOURCE = {"type": "prometheus", "uid": "${datasource}"}


def dashboard_json() -> str:
    """The dashboard of runs, as the text of a file."""
    return json.dumps(dashboard(ROWS), indent=1, ensure_ascii=False) + "\n"


def dashboard(rows: Sequence[Row]) -> dict[str, Any]:
    """A dashboard with these rows, where one chooses the source of data and the runs."""
    return {
        "uid": UID,
        "title": "Elastic tuner",
        "description": "Runs of the tuner on clusters of Ray, while they go.",
        "tags": ["ray", "tuner"],
        "schemaVersion": _SCHEMA,
        "version": 1,
        "editable": True,
        "graphTooltip": 1,  # one cross-hair for all panels
        "refresh": "10s",  # as often as Ray exports
        "time": {"from": "now-30m", "to": "now"},
        "templating": {"list": [_source_variable(), _run_variable()]},
        "panels": _placed(rows),
    }


def _source_variable() -> dict[str, Any]:
    return {
        "name": "datasource",
        "label": "Prometheus",
        "type": "datasource",
        "query": "prometheus",
        "refresh": 1,
        "multi": False,
        "includeAll": False,
    }


def _run_variable() -> dict[str, Any]:
    query = f"label_values({RUN_OF}, run)"
    return {
        "name": "run",
        "label": "Run",
        "type": "query",
        "datasource": _SOURCE,
        "definition": query,
        "query": {"query": query, "refId": "StandardVariableQuery"},
        "refresh": 2,  # with the time that is shown: runs come and go
        "sort": 1,
        "multi": True,
        "includeAll": True,
        "allValue": ".*",
        "current": {"selected": True, "text": ["All"], "value": ["$__all"]},
    }


def _placed(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """All panels and the headings of their rows, numbered, each in its place."""
    placed: list[dict[str, Any]] = []
    top = 0
    for row in rows:
        heading = {"type": "row", "title": row.title, "collapsed": False, "panels": []}
        placed.append({"id": len(placed) + 1, **heading, "gridPos": _at(0, top, WIDTH, 1)})
        top, left, height = top + 1, 0, 0
        for panel in row.panels:
            if left + panel.width > WIDTH:
                top, left, height = top + height, 0, 0
            place = _at(left, top, panel.width, panel.height)
            placed.append({"id": len(placed) + 1, **_panel(panel), "gridPos": place})
            left, height = left + panel.width, max(height, panel.height)
        top += height
    return placed


def _at(left: int, top: int, width: int, height: int) -> dict[str, int]:
    return {"x": left, "y": top, "w": width, "h": height}


def _panel(panel: Panel) -> dict[str, Any]:
    steps = [{"value": step.at, "color": step.color} for step in panel.steps]
    defaults: dict[str, Any] = {
        "unit": panel.unit,
        "min": 0,
        "thresholds": {"mode": "absolute", "steps": steps},
    }
    if panel.most is not None:
        defaults["max"] = panel.most
    curves = panel.look is Look.CURVES
    if curves:
        defaults |= {"color": {"mode": "palette-classic"}, "custom": _curves(panel)}
    else:
        defaults["color"] = {"mode": "thresholds"}
    return {
        "type": str(panel.look),
        "title": panel.title,
        "description": panel.about,
        "datasource": _SOURCE,
        "targets": [
            {
                "refId": chr(ord("A") + number),
                "datasource": _SOURCE,
                "expr": query.expr,
                "legendFormat": query.legend,
                "range": True,
            }
            for number, query in enumerate(panel.queries)
        ],
        "fieldConfig": {"defaults": defaults, "overrides": []},
        "options": _curve_options() if curves else _number_options(),
    }


def _curves(panel: Panel) -> dict[str, Any]:
    return {
        "drawStyle": "line",
        "lineWidth": 2,
        "fillOpacity": 40 if panel.stacked else 0,
        "showPoints": "never",
        "stacking": {"mode": "normal" if panel.stacked else "none", "group": "A"},
        "thresholdsStyle": {"mode": "dashed" if len(panel.steps) > 1 else "off"},
    }


def _curve_options() -> dict[str, Any]:
    legend = {"showLegend": True, "displayMode": "list", "placement": "bottom", "calcs": []}
    return {"legend": legend, "tooltip": {"mode": "multi", "sort": "desc"}}


def _number_options() -> dict[str, Any]:
    return {"reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False}}
