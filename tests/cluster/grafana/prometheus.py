"""A Prometheus of a test's own, on loopback, that scrapes a Ray head as Ray configures it to."""

from __future__ import annotations

import contextlib
import json
import math
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.cluster.loopback_head import free_ports
from tests.needed import needed

_PATIENCE_S = 60.0
RAYS_INTERVAL, INTERVAL = "10s", "1s"


@dataclass(frozen=True)
class Prometheus:
    """One that answers.

    Attributes:
        pid: of its process.
        url: of its interface.
        since_s: seconds since the epoch when it was ready.
    """

    pid: int
    url: str
    since_s: float

    def ask(self, path: str, **parameters: str) -> Any:
        """The data of its answer; an assertion fails where it refuses."""
        asked = f"{self.url}/api/v1/{path}?{urllib.parse.urlencode(parameters)}"
        try:
            with urllib.request.urlopen(asked, timeout=10.0) as answer:
                return json.load(answer)["data"]
        except urllib.error.HTTPError as refused:
            raise AssertionError(f"{parameters}: {refused.read().decode()}") from refused

    def samples(self, expr: str) -> list[float]:
        """All samples of an expression's series from the beginning to now, one each second, as
        Grafana asks for curves."""
        span = {"start": f"{self.since_s:.3f}", "end": f"{time.time():.3f}", "step": INTERVAL}
        series = self.ask("query_range", query=expr, **span)["result"]
        values = [float(value) for each in series for _, value in each["values"]]
        return [value for value in values if not math.isnan(value)]


@contextlib.contextmanager
def prometheus(rays: Path, folder: Path) -> Iterator[Prometheus]:
    """A server with Ray's own configuration, more frequent.

    Args:
        rays: the configuration that Ray wrote.
        folder: of its data.
    """
    program = needed("prometheus")
    configuration, log = folder / "prometheus.yml", folder / "prometheus.log"
    text = rays.read_text()
    assert RAYS_INTERVAL in text
    configuration.write_text(text.replace(RAYS_INTERVAL, INTERVAL))
    (port,) = free_ports(1)
    command = [
        *(program, f"--config.file={configuration}", f"--storage.tsdb.path={folder / 'data'}"),
        *(f"--web.listen-address=127.0.0.1:{port}", "--log.level=warn"),
    ]
    with log.open("w") as out:
        server = subprocess.Popen(command, stdout=out, stderr=out)
    try:
        yield _ready(server, f"http://127.0.0.1:{port}", log)
    finally:
        server.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            server.wait(_PATIENCE_S)
        server.kill()
        server.wait()


def _ready(server: subprocess.Popen[bytes], url: str, log: Path) -> Prometheus:
    """Wait until a server answers."""
    until_s = time.monotonic() + _PATIENCE_S
    while True:
        assert server.poll() is None, log.read_text()
        try:
            urllib.request.urlopen(f"{url}/-/ready", timeout=5.0).close()
            return Prometheus(server.pid, url, time.time())
        except OSError:
            assert time.monotonic() < until_s, log.read_text()
            time.sleep(0.2)
