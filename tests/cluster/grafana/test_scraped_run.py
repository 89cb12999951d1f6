"""A real run on a real head, scraped by a real Prometheus: every panel shows it."""

from __future__ import annotations

import contextlib
import json
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
import yaml

from benchmarks.fleet.guard import MARK, marked
from cluster.ray_workers.grafana import FILE_NAME, dashboard_json
from tests.cluster.grafana.prometheus import Prometheus, prometheus
from tests.cluster.loopback_head import FOLDER, ROOT, ray_head
from tests.cluster.sockets import listeners
from tests.needed import needed

pytestmark = [
    *(pytest.mark.tvm, pytest.mark.ray, pytest.mark.long, pytest.mark.debian),
    pytest.mark.timeout(600),
]

_PATIENCE_S = 180.0
_RATE_INTERVAL = "1m"
"""What Grafana makes of `$__rate_interval` where its Prometheus is said to scrape each 15 s."""
MODEL = ["examples/gemm.py:gemm", "--arg=m=96", "--arg=n=64", "--arg=k=80", "--target=llvm"]
ONLY_TROUBLE = {"Share of trials that failed": "no candidate of this product needs to fail"}
"""Panels that a run without trouble leaves at zero, each with the reason."""
BUILDER = "ray::BuilderActor"


@pytest.fixture(scope="module")
def environment() -> Iterator[dict[str, str]]:
    """A head that exports what it knows every second, like the one that scrapes it asks."""
    needed("prometheus")  # before anything is started
    often = {"RAY_metrics_report_interval_ms": "1000"}
    at_once = {"RAY_GRACEFUL_SHUTDOWN_DRAIN_TIMEOUT_S": "1"}  # nobody waits for the run's end
    with ray_head(**often, **at_once) as found:
        yield found


@pytest.fixture(scope="module")
def rays_files(environment: dict[str, str]) -> Path:
    """The folder that Ray writes for Grafana and Prometheus; it is there soon after the head."""
    folder = Path(environment[FOLDER], "session_latest", "metrics")
    until_s = time.monotonic() + _PATIENCE_S
    while not (folder / "prometheus" / "prometheus.yml").exists():
        assert time.monotonic() < until_s, "Ray has no files for Grafana"
        time.sleep(0.2)
    return folder


@pytest.fixture(scope="module")
def run(environment: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A search that goes on until its cluster ends."""
    folder = tmp_path_factory.mktemp("scraped") / "run"
    command = [sys.executable, "-m", "tuner", "tune", *MODEL, f"--run={folder}"]
    command += ["--trials=100000", "--until=0"]
    with subprocess.Popen(command, env=environment, cwd=ROOT, stdout=subprocess.DEVNULL) as driver:
        yield folder
        driver.kill()


def as_grafana_asks(expr: str, run: str) -> str:
    """An expression with the values that Grafana puts in the place of its variables."""
    escaped = re.sub(r"[$^*{}\[\]'+?.()|\\]", r"\\\\\g<0>", run)
    return expr.replace("$run", escaped).replace("$__rate_interval", _RATE_INTERVAL)


def expressions() -> dict[tuple[str, str], str]:
    """Every expression of the dashboard, by panel and number."""
    panels = json.loads(dashboard_json())["panels"]
    return {
        (panel["title"], target["refId"]): target["expr"]
        for panel in panels
        for target in panel.get("targets", ())
    }


def at_zero(server: Prometheus, run: str) -> set[tuple[str, str]]:
    """The expressions of which no sample is different from zero."""
    return {
        name
        for name, expr in expressions().items()
        if not any(server.samples(as_grafana_asks(expr, run)))
    }


def lose_a_builder(environment: dict[str, str]) -> None:
    """End a builder's process, as a machine's end would."""
    until_s = time.monotonic() + _PATIENCE_S
    while True:
        for process in marked(environment[MARK]):
            with contextlib.suppress(psutil.Error):
                if process.cmdline()[0].startswith(BUILDER):
                    process.kill()
                    return
        assert time.monotonic() < until_s, "no builder"
        time.sleep(0.5)


def test_every_panel_shows_a_run_while_it_goes(
    environment: dict[str, str], rays_files: Path, run: Path, tmp_path: Path
) -> None:
    with prometheus(rays_files / "prometheus" / "prometheus.yml", tmp_path) as server:
        lose_a_builder(environment)
        until_s = time.monotonic() + _PATIENCE_S
        while left := [n for n in at_zero(server, str(run)) if n[0] not in ONLY_TROUBLE]:
            assert time.monotonic() < until_s, left
            time.sleep(2.0)
        (seen,) = server.ask("label/run/values")
        assert seen == str(run)
        assert at_zero(server, str(run.with_name("another"))) == set(expressions())
        mine = listeners([psutil.Process(server.pid)])
        assert mine
        assert [one for one in mine if one.outside] == []


@pytest.mark.usefixtures("run")
def test_the_dashboard_is_where_grafana_looks_as_ray_tells_it_to(rays_files: Path) -> None:
    told = rays_files / "grafana" / "provisioning" / "dashboards" / "default.yml"
    (provider,) = yaml.safe_load(told.read_text())["providers"]
    place = Path(provider["options"]["path"], FILE_NAME)
    until_s = time.monotonic() + _PATIENCE_S
    while not place.exists():
        assert time.monotonic() < until_s, "no dashboard"
        time.sleep(0.2)
    assert place.read_text() == dashboard_json()
    assert "default_grafana_dashboard.json" in {each.name for each in place.parent.iterdir()}
