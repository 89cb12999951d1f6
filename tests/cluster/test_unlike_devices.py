"""A cluster of unlike machines, for real: one of them may use fewer cores than the other."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from benchmarks.fleet.local import LocalFleet, local_fleet, tune_gemm
from tests.cluster.sockets import listeners, tree
from tuner.runs.folder import RunFolder
from tuner.storage.sqlite_store import SqliteStore

pytestmark = [
    pytest.mark.tvm,
    pytest.mark.ray,
    pytest.mark.long,
    pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one core is like another"),
]

ROOT = Path(__file__).parents[2]
NODE = {"CPU": 1, "measure": 1}


@pytest.fixture(scope="module")
def fleet() -> Iterator[LocalFleet]:
    before = dict(os.environ)
    with local_fleet({"CPU": 1}) as started:
        started.add(NODE)
        started.add(NODE, cores=1)
        yield started
    os.environ.clear()
    os.environ.update(before)


def tuned(fleet: LocalFleet, run: Path, *more: str, trials: int = 8) -> dict[str, Any]:
    model = [word for word in tune_gemm(48, run, trials=trials) if word not in ("--target", "llvm")]
    done = subprocess.run(
        [sys.executable, "-m", "tuner", *model, *more, "--address", fleet.address, "--json"],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
        cwd=ROOT,
    )
    assert done.returncode == 0, done.stderr
    printed: dict[str, Any] = json.loads(done.stdout)
    return printed


def devices(run: Path) -> set[str]:
    """What the timings of a run were taken on."""
    with closing(SqliteStore(RunFolder(run).store, read_only=True)) as store:
        return {r.provenance.device for r in store.scan() if r.latency_s is not None}


@pytest.fixture(scope="module")
def both(fleet: LocalFleet, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return tuned(fleet, tmp_path_factory.mktemp("unlike") / "run")


def test_unlike_machines_are_separate_targets_with_separate_records(both: dict[str, Any]) -> None:
    runs = [Path(part["run"]) for part in both["parts"]]
    assert {run.parent for run in runs} == {Path(both["run"])}
    assert both["trials"] == sum(part["trials"] for part in both["parts"]) == 16
    for part in both["parts"]:
        assert part["closing"]["left"][0]["trials"] == 8
        assert all(
            part["run"] in s["command"] for s in part["next"] if "doctor" not in s["command"]
        )
    assert both["next"] == []
    targets = [json.loads((run / "run.json").read_text())["target"] for run in runs]
    assert sorted(json.loads(target)["num-cores"] for target in targets) == [1, 2]
    one, other = (devices(run) for run in runs)
    assert len(one) == len(other) == 1
    assert one != other


def test_each_goes_on_by_itself_and_on_its_own_machine(
    fleet: LocalFleet, both: dict[str, Any]
) -> None:
    run = Path(both["parts"][0]["run"])
    again = tuned(fleet, run, trials=12)
    assert "parts" not in again
    assert again["trials"] == 12
    assert len(devices(run)) == 1


def test_a_fleet_on_this_machine_listens_on_loopback_only(
    fleet: LocalFleet, both: dict[str, Any]
) -> None:
    found = listeners([*fleet.processes(), *tree()])
    assert {"raylet", "gcs_server"} <= {one.process for one in found}
    assert [one for one in found if one.outside] == []
