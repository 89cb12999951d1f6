"""The dashboard is put where Ray keeps its own, and never where nobody looks."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from cluster.ray_workers.grafana import (
    DASHBOARDS,
    FILE_NAME,
    METRICS,
    dashboard_json,
    dashboards_folder,
    offer_dashboard,
    put_dashboard,
)

SESSION = Path("/session")


def test_it_is_in_the_folder_of_the_session() -> None:
    assert dashboards_folder(SESSION, {}) == SESSION / "metrics" / "grafana" / "dashboards"


def test_the_variables_that_ray_reads_move_it() -> None:
    moved = {METRICS: "/elsewhere"}
    assert dashboards_folder(SESSION, moved) == Path("/elsewhere/grafana/dashboards")
    assert dashboards_folder(SESSION, {**moved, DASHBOARDS: "/just/these"}) == Path("/just/these")


@pytest.mark.ray
def test_ray_reads_these_variables() -> None:
    from ray.dashboard.modules.metrics import metrics_head as rays

    assert rays.GRAFANA_DASHBOARD_OUTPUT_DIR_ENV_VAR == DASHBOARDS
    assert rays.METRICS_OUTPUT_ROOT_ENV_VAR == METRICS


def test_it_is_put_where_the_folder_is(tmp_path: Path) -> None:
    path = put_dashboard(tmp_path)
    assert path == tmp_path / FILE_NAME
    assert path.read_text() == dashboard_json()
    assert [*tmp_path.iterdir()] == [path]


def test_one_of_an_older_version_is_replaced_and_the_same_one_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / FILE_NAME).write_text("{}")
    path = put_dashboard(tmp_path)
    assert path is not None
    assert path.read_text() == dashboard_json()
    os.utime(path, (1.0, 1.0))
    assert put_dashboard(tmp_path) == path
    assert path.stat().st_mtime == 1.0


def test_where_there_is_no_folder_none_is_made(tmp_path: Path) -> None:
    assert put_dashboard(tmp_path / "metrics") is None
    assert [*tmp_path.iterdir()] == []


def test_a_disk_that_refuses_is_no_failure(tmp_path: Path) -> None:
    (tmp_path / FILE_NAME).mkdir()  # a file cannot take its place, not even for root
    (tmp_path / FILE_NAME / "inside").touch()
    assert put_dashboard(tmp_path) is None
    assert [*tmp_path.iterdir()] == [tmp_path / FILE_NAME]


@pytest.mark.ray
def test_a_process_without_a_cluster_or_a_ray_that_does_not_tell_is_no_failure(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from ray._private import worker

    for node in (None, object()):
        monkeypatch.setattr(worker, "_global_node", node)
        offer_dashboard({DASHBOARDS: str(tmp_path)})
    assert [*tmp_path.iterdir()] == []
