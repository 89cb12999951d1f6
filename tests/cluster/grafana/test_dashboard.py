"""The dashboard is what Grafana reads, of metrics that a run has."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from cluster.app.cli import run
from cluster.ray_workers.grafana import dashboard_json
from tuner.utilisation import BUILDER, RUNNER, SPACE

DASHBOARD: dict[str, Any] = json.loads(dashboard_json())
PANELS = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]
TITLES = [panel["title"] for panel in PANELS]
EXPRESSIONS = [target["expr"] for panel in PANELS for target in panel["targets"]]

WIDTH = 24
"""Columns of a dashboard."""
RAYS = "ray_"
"""What Ray puts before each name."""
OF_HISTOGRAMS = {"le"}
"""The label that Prometheus knows histograms by."""


def test_it_is_one_dashboard_with_a_name_of_its_own() -> None:
    assert DASHBOARD["uid"] == "elasticTuner"
    assert DASHBOARD["title"] == "Elastic tuner"


def test_panels_have_numbers_and_titles_of_their_own() -> None:
    numbers = [panel["id"] for panel in DASHBOARD["panels"]]
    assert sorted(set(numbers)) == sorted(numbers)
    assert sorted(set(TITLES)) == sorted(TITLES)


def test_panels_do_not_overlap() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in DASHBOARD["panels"]:
        place = panel["gridPos"]
        right, bottom = place["x"] + place["w"], place["y"] + place["h"]
        assert right <= WIDTH
        cells = {(x, y) for x in range(place["x"], right) for y in range(place["y"], bottom)}
        assert not taken & cells, panel["title"]
        taken |= cells


@pytest.mark.parametrize("panel", PANELS, ids=TITLES)
def test_a_panel_says_what_it_shows(panel: dict[str, Any]) -> None:
    assert panel["description"].endswith(".")
    assert panel["fieldConfig"]["defaults"]["unit"]
    names = [target["refId"] for target in panel["targets"]]
    assert len(set(names)) == len(names) > 0
    legends = [target["legendFormat"] for target in panel["targets"]]
    assert len(set(legends)) == len(legends)


@pytest.mark.parametrize("panel", PANELS, ids=TITLES)
def test_thresholds_rise_from_the_lowest_value(panel: dict[str, Any]) -> None:
    first, *rest = panel["fieldConfig"]["defaults"]["thresholds"]["steps"]
    assert first["value"] is None
    values = [step["value"] for step in rest]
    assert values == sorted(set(values))


def test_the_source_of_data_is_the_users_choice() -> None:
    variables = {variable["name"]: variable for variable in DASHBOARD["templating"]["list"]}
    assert variables["datasource"]["type"] == "datasource"
    chosen = {"type": "prometheus", "uid": "${datasource}"}
    targets = [target for panel in PANELS for target in panel["targets"]]
    assert all(part["datasource"] == chosen for part in (*PANELS, *targets, variables["run"]))


@pytest.mark.parametrize("expr", EXPRESSIONS)
def test_each_expression_is_of_the_runs_that_are_chosen(expr: str) -> None:
    assert expr.count('run=~"$run"') == len(re.findall(r"ray_tuner_\w+", expr))


@pytest.mark.ray
def test_expressions_name_metrics_and_labels_that_a_run_has() -> None:
    from ray.util.metrics import Histogram, Metric

    from cluster.ray_workers.metrics import RunMetrics

    labels: dict[str, set[str]] = {}
    for metric in vars(RunMetrics("a run")).values():
        if isinstance(metric, Metric):
            ends = ("_bucket", "_count", "_sum") if isinstance(metric, Histogram) else ("",)
            for end in ends:
                labels[f"{RAYS}{metric.info['name']}{end}"] = set(metric.info["tag_keys"])
    assert "ray_tuner_trials" in labels
    run_variable = DASHBOARD["templating"]["list"][1]["definition"]
    used = {name for expr in (*EXPRESSIONS, run_variable) for name in re.findall(r"ray_\w+", expr)}
    assert used <= labels.keys()
    for expr in EXPRESSIONS:
        known = OF_HISTOGRAMS.union(*(labels[name] for name in re.findall(r"ray_\w+", expr)))
        grouped = {name for by in re.findall(r"by \(([^)]*)\)", expr) for name in by.split(", ")}
        assert grouped | set(re.findall(r"(\w+)(?:=~?|!~)\"", expr)) <= known, expr


def test_every_metric_that_a_run_has_is_in_a_panel() -> None:
    """Else nobody sees it."""
    source = Path("cluster/ray_workers/metrics.py")
    made = re.findall(r'_(?:gauge|histogram)\(\s*"(\w+)"', (ROOT / source).read_text())
    assert made
    for name in made:
        assert any(re.search(rf"ray_tuner_{name}(_bucket)?\b", expr) for expr in EXPRESSIONS), name


def test_each_kind_of_worker_has_a_panel() -> None:
    kinds = {kind for expr in EXPRESSIONS for kind in re.findall(r'kind="(\w+)"', expr)}
    assert kinds == {RUNNER, BUILDER, SPACE}


ROOT = Path(__file__).resolve().parents[3]


def test_the_command_writes_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "dashboard.json"
    assert run(["grafana", str(file)]) == 0
    assert file.read_text() == dashboard_json()
    assert capsys.readouterr().out == f"wrote {file}: import it in Grafana under Dashboards\n"


def test_the_command_says_where_it_cannot_write(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("in the way")
    assert run(["grafana", str(tmp_path / "file" / "dashboard.json")]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert "file" in line
