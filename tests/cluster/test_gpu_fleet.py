"""A network tuned by a job on a cluster that starts machines with a GPU, and takes them back.

The machines are Ray's fake ones, and each GPU is the emulated device; all else is what runs on a
cloud: Ray's autoscaler, its jobs, the search, builders that are apart from the runners.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import pytest

from benchmarks.fleet.autoscaled import Autoscaling, MachineKind
from benchmarks.fleet.guard import MARK, kill, marked
from benchmarks.process_tree import kind_of
from tests.cluster.loopback_head import ray_head
from tests.cluster.output import output_of
from tests.cluster.test_submit_job import small_network
from tests.needed import needs_nvcc
from tuner.record import Record, Status
from tuner.runs.folder import RunFolder
from tuner.storage.sqlite_store import SqliteStore

pytestmark = [pytest.mark.tvm, pytest.mark.ray, pytest.mark.slow, pytest.mark.long]

GPU, BUILDER = "gpu_spot", "builder_spot"
MACHINES = Autoscaling(
    {
        GPU: MachineKind({"GPU": 1, "measure": 1}, 0, 2),
        BUILDER: MachineKind({"CPU": 2}, 0, 1),
    },
    idle_s=6.0,
)
TRIALS = 80
"""Worth more than two runners."""
SUBMIT = ("ray", "job", "submit", "--working-dir", ".", "--")
_TUNED_S, _GONE_S = 900.0, 90.0


@pytest.fixture
def environment() -> Iterator[dict[str, str]]:
    with ray_head(MACHINES) as found:
        yield found


def kind_of_machine(process: psutil.Process) -> str:
    """The kind of the machine that a process runs on; empty for the head."""
    return str(process.environ().get("RAY_NODE_TYPE_NAME", ""))


@dataclass
class Watch:
    """What happens to the machines.

    Attributes:
        gpus: how many machines with a GPU there were, one number after the other.
        places: the kinds of machines that compiled and that timed.
        killed: whether a machine with a GPU was switched off.
    """

    mark: str
    gpus: list[int] = field(default_factory=list)
    places: dict[str, set[str]] = field(default_factory=dict)
    killed: bool = False

    def look(self) -> int:
        """Look at all processes; the machines with a GPU that there are."""
        gpus = 0
        for process in marked(self.mark):
            with contextlib.suppress(psutil.Error):
                if process.name() == "raylet":
                    gpus += kind_of_machine(process) == GPU
                elif (kind := kind_of(process.cmdline())) in ("builder child", "runner child"):
                    self.places.setdefault(kind, set()).add(kind_of_machine(process))
        if [gpus] != self.gpus[-1:]:
            self.gpus.append(gpus)
        return gpus

    def switch_off(self) -> None:
        """Switch off a machine with a GPU, with all that runs on it."""
        machines: dict[str, list[psutil.Process]] = {}
        for process in marked(self.mark):
            with contextlib.suppress(psutil.Error):
                if kind_of_machine(process) == GPU:
                    number = process.environ()["RAY_CLOUD_INSTANCE_ID"]
                    machines.setdefault(number, []).append(process)
        kill(machines[min(machines)])
        self.killed = True


def records(run: Path) -> list[Record]:
    """All that are stored so far."""
    try:
        with closing(SqliteStore(RunFolder(run).store, read_only=True)) as store:
            return [*store.scan()]
    except Exception:  # it is just being made
        return []


def finish(job: subprocess.Popen[str], watch: Watch, run: Path) -> None:
    """See a job through; a machine is switched off once both have measured."""
    until_s = time.monotonic() + _TUNED_S
    while job.poll() is None:
        assert time.monotonic() < until_s, "the run does not end"
        both = watch.look() == 2 and len({r.provenance.worker for r in records(run)}) == 2
        if both and not watch.killed:
            watch.switch_off()
        time.sleep(0.5)


@needs_nvcc
def test_gpus_come_and_go_with_the_work_and_one_that_is_lost_loses_nothing(
    environment: dict[str, str], tmp_path: Path
) -> None:
    project, run, log = tmp_path / "project", tmp_path / "run", tmp_path / "log"
    project.mkdir()
    small_network(project / "small.onnx")
    watch = Watch(environment[MARK])
    assert watch.look() == 0
    tune = ["--measure", "emulated", "--trials", str(TRIALS), "--run", str(run)]
    with log.open("w") as out:
        job = subprocess.Popen(
            [*SUBMIT, "tuner", "tune", "small.onnx", "--target", "cuda", *tune],
            cwd=project,
            env=environment,
            stdout=out,
            stderr=out,
            text=True,
        )
        finish(job, watch, run)
    assert job.returncode == 0, log.read_text()

    assert watch.killed
    assert max(watch.gpus) == 2
    assert watch.places == {"builder child": {BUILDER}, "runner child": {GPU}}
    until_s = time.monotonic() + _GONE_S
    while watch.look() and time.monotonic() < until_s:
        time.sleep(0.5)
    assert watch.gpus[-1] == 0

    stored = [record for record in records(run) if record.trial.rung == 0]
    assert set(Counter(record.trial.key for record in stored).values()) == {1}
    ended = (Status.OK, Status.CENSORED)
    assert [r.measurement for r in stored if r.measurement.status not in ended] == []
    assert len(stored) == TRIALS
    assert {record.provenance.device for record in stored} == {"emulated sm_80"}

    shutil.rmtree(project)  # the run keeps a copy of the model
    bench = json.loads(output_of("bench", str(run), "--json"))
    assert bench["modelled"]
    assert bench["tuned_ms"] < bench["untuned_ms"]
    assert bench["max_rel_err"] < 1e-4
    out_file = tmp_path / "model.so"
    output_of("export", str(run), "--lib", str(out_file))
    assert b"sm_80" in out_file.read_bytes()
    assert os.path.getsize(out_file) > 0
