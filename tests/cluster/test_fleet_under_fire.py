"""A real cluster of several nodes whose parts are killed while a model is tuned."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import uuid
from pathlib import Path

import pytest

from tests.cluster.sockets import watched

pytestmark = [pytest.mark.tvm, pytest.mark.ray, pytest.mark.long]

_ROOT = Path(__file__).parents[2]
_MARK = "TUNER_SCENARIO_MARK"


def scenario(*arguments: str) -> dict[str, object]:
    """What `python -m benchmarks.fleet` prints, whatever it thinks of it. Nobody may listen on more
    than loopback meanwhile."""
    mark = uuid.uuid4().hex
    with watched(mark, name=_MARK) as seen:
        done = subprocess.run(
            [sys.executable, "-m", "benchmarks.fleet", *arguments, "--json"],
            cwd=_ROOT,
            capture_output=True,
            text=True,
            timeout=280,
            env={**os.environ, _MARK: mark},
        )
    assert {"raylet", "gcs_server"} <= {one.process for one in seen.listeners}
    assert seen.outside == []
    assert done.stdout.startswith("{"), done.stderr[-2000:]
    found: dict[str, object] = json.loads(done.stdout)
    return found


def test_every_trial_has_one_record_whatever_is_killed(tmp_path: Path) -> None:
    run = tmp_path / "run"
    found = scenario("chaos", "--trials=40", "--kills=14", "--every=2", f"--run={run}")
    assert found["failure"] == ""
    assert (found["records"], found["duplicates"], found["lost"]) == (40, 0, 0)
    assert len(found["kills"]) >= 4, "so many kinds of things were hit"  # type: ignore[arg-type]
    assert run.is_dir()


def test_a_run_gets_machines_from_the_autoscaler_and_gives_them_back() -> None:
    found = scenario("grow", "--trials=150", "--size=96")
    assert found["failure"] == ""
    assert (found["most_machines"], found["machines_after"]) == (3, 1)
