"""A real cluster of several nodes whose parts are killed while a model is tuned."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.tvm, pytest.mark.ray, pytest.mark.slow]

_ROOT = Path(__file__).parents[2]


def scenario(*arguments: str) -> dict[str, object]:
    """What `python -m benchmarks.fleet` prints, whatever it thinks of it."""
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.fleet", *arguments, "--json"],
        cwd=_ROOT,
        capture_output=True,
        text=True,
        timeout=280,
    )
    assert done.stdout.startswith("{"), done.stderr[-2000:]
    found: dict[str, object] = json.loads(done.stdout)
    return found


def test_every_trial_has_one_record_whatever_is_killed(tmp_path: Path) -> None:
    run = tmp_path / "run"
    found = scenario("chaos", "--trials=60", "--kills=5", "--every=2.5", f"--run={run}")
    assert found["failure"] == ""
    assert (found["records"], found["duplicates"], found["lost"]) == (60, 0, 0)
    assert set(found["kills"]) >= {"node", "search", "driver"}  # type: ignore[call-overload]
    assert run.is_dir()


def test_a_machine_that_joins_gets_work_and_that_of_a_lost_one_is_given_to_others() -> None:
    found = scenario("join", "--rounds=1")
    assert len(found["join_s"]) == len(found["leave_s"]) == 1  # type: ignore[arg-type]
