"""A run's figures are found where Prometheus looks for them."""

from __future__ import annotations

import re
import subprocess
import sys
import time
import urllib.request

import pytest

from tests.cluster.loopback_head import ROOT, ray_head

pytestmark = [pytest.mark.ray, pytest.mark.slow, pytest.mark.long]

_PATIENCE_S = 60.0
_CHILD = [sys.executable, "-m", "tests.cluster.ray_workers.metrics_child"]


def scrape(port: int) -> str:
    """What a node's metrics port says."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        return str(answer.read().decode())


def test_a_scrape_finds_where_a_run_is() -> None:
    wanted = {
        "ray_tuner_trials": "42",
        "ray_tuner_gain": "1.25",
        "ray_tuner_best_us": "3.0",
        "ray_tuner_model_us": "8.0",
        "ray_tuner_budget_share": "0.42",
        "ray_tuner_trials_left": "58",
        "ray_tuner_pairwise_accuracy": "0.8",
        "ray_tuner_workers": "3",
        "ray_tuner_workers_wanted": "5",
        "ray_tuner_workers_lost": "1",
        "ray_tuner_queued": "7",
        "ray_tuner_busy_share": "0.75",
        "ray_tuner_slot_s": "1.0",
        "ray_tuner_build_s_count": "1",
        "ray_tuner_run_s_count": "2",
    }
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with ray_head() as environment:
        with subprocess.Popen(_CHILD, cwd=ROOT, env=environment, **pipes) as child:
            assert child.stdin is not None
            assert child.stdout is not None
            port = int(child.stdout.readline())
            until_s = time.monotonic() + _PATIENCE_S
            missing = set(wanted)
            while missing and time.monotonic() < until_s:
                time.sleep(1.0)
                text = scrape(port)
                missing = {
                    name
                    for name, value in wanted.items()
                    if not re.search(rf'^{name}{{.*run="a-t%C3%A9st".*}} {value}', text, re.M)
                }
            child.stdin.close()
        assert not missing
