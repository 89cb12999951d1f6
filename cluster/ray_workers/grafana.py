"""The dashboard of runs, and where a Grafana of the cluster finds it: beside Ray's own.

`cluster/configs/grafana-dashboard.json` is of the form that Grafana 9 and newer read. Its metrics
are those of `cluster.ray_workers.metrics`. All are gauges that the search sets anew every few
seconds, and go on where a search that died is started again; histograms begin anew. The series of a
search that is gone stay for a while, beside those of the one in its place: therefore the largest of
a run is shown where a metric is the state of the run.

Ray's dashboard server, on the head, makes that folder when it starts. A cluster without it has no
folder, and where the search is on another machine than the head there is none either: then nothing
is done.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Mapping
from pathlib import Path

from tuner.files.atomic import write_bytes

FILE_NAME = "elastic_tuner_grafana_dashboard.json"
"""The dashboard's name among those of Ray's own."""
_DASHBOARD = Path(__file__).parents[1] / "configs" / "grafana-dashboard.json"
DASHBOARDS = "RAY_METRICS_GRAFANA_DASHBOARD_OUTPUT_DIR"
METRICS = "RAY_METRICS_OUTPUT_ROOT"
"""Ray's variables for where its dashboards, or all its files for Grafana and Prometheus, go."""


def dashboard_json() -> str:
    """The dashboard of runs, as the text of a file."""
    return _DASHBOARD.read_text(encoding="utf-8")


def dashboards_folder(session: Path, environment: Mapping[str, str]) -> Path:
    """The folder that Ray keeps its dashboards for Grafana in.

    Args:
        session: folder of the Ray session.
        environment: variables of the cluster.
    """
    metrics = Path(environment.get(METRICS, session / "metrics"))
    return Path(environment.get(DASHBOARDS, metrics / "grafana" / "dashboards"))


def put_dashboard(folder: Path) -> Path | None:
    """Put the dashboard into a folder that exists, in place of an older one; return its path, or
    None where nothing was written: there is no such folder, or the disk refuses."""
    path, text = folder / FILE_NAME, dashboard_json().encode()
    with contextlib.suppress(OSError):
        if not folder.is_dir():
            return None
        if not path.exists() or path.read_bytes() != text:
            write_bytes(path, text)
        return path
    return None


def offer_dashboard(environment: Mapping[str, str]) -> None:
    """Put the dashboard beside those of the cluster that this process has joined, without waiting:
    no run is slower for it, and none fails."""
    session = _session_folder()
    if session is not None:
        folder = dashboards_folder(session, environment)
        threading.Thread(
            target=put_dashboard, args=(folder,), name="grafana dashboard", daemon=True
        ).start()


def _session_folder() -> Path | None:
    """The folder of the Ray session; None where this version of Ray does not tell."""
    from ray._private import worker

    node = getattr(worker, "_global_node", None)
    told = getattr(node, "get_session_dir_path", None)
    return None if told is None else Path(told())
