"""A run that goes on keeps the target it began with, and its records serve runs of later ones.

`golden/run-named-by-model` was made when a CPU was what LLVM guessed from its model's number.
"""

from __future__ import annotations

import json
import platform
import shutil
from collections.abc import Mapping
from pathlib import Path

import pytest

from cluster.app.driver.begun import read_begun_target, target_here
from cluster.app.driver.export import bench_here
from cluster.app.driver.prepare import prepare
from cluster.app.driver.warm_start import seeds_for
from cluster.search.job import SearchJob
from spaces.targets.config import canonical
from spaces.targets.cores import usable_cores
from spaces.targets.cpu_caches import caches_text
from spaces.targets.host import this_host
from spaces.targets.target import resolve_target
from tuner.errors import TunerError
from tuner.request.model_spec import ModelSpec
from tuner.request.options import TuneOptions
from tuner.run_location import RunLocation
from tuner.runs.folder import RunFolder, read_run
from tuner.search.transfer import Seeds
from tuner.task import Task

pytestmark = pytest.mark.tvm

ROOT = Path(__file__).parents[4]
GOLDEN = ROOT / "tests/golden/run-named-by-model"
GEMM = ModelSpec(f"{ROOT / 'examples/gemm.py'}:gemm", args=(("m", 96), ("n", 64), ("k", 80)))
ZEN3 = '{"kind":"llvm","mcpu":"znver3","num-cores":2}'
KEY = "9508cf48f37b6d02"


def old_target(**other: object) -> str:
    """What this machine's target was, had the run begun here."""
    return canonical(
        {"kind": "llvm", "mcpu": this_host().named, "num-cores": usable_cores(), **other}
    )


def old_run(folder: Path, target: str) -> Path:
    shutil.copytree(GOLDEN, folder)
    manifest = json.loads((folder / "run.json").read_text()) | {"target": target}
    (folder / "run.json").write_text(json.dumps(manifest))
    return folder


def asked(run: Path, target: str) -> TuneOptions:
    return TuneOptions(GEMM, target, run=run)


def job(options: TuneOptions, target: str | None = None) -> SearchJob:
    assert options.run is not None
    return prepare(options, RunLocation.of(options.run), target=target)


def test_the_golden_run_is_one_of_before() -> None:
    assert read_run(GOLDEN)[1].target == ZEN3


@pytest.mark.parametrize("target", ["auto", "llvm"])
def test_a_run_of_before_goes_on_with_its_target(tmp_path: Path, target: str) -> None:
    run = old_run(tmp_path / "run", old_target())
    assert target_here(RunLocation.of(run), target) == old_target() != resolve_target("llvm")
    assert target_here(RunLocation.of(tmp_path / "new"), "llvm") == resolve_target("llvm")


def test_it_goes_on_where_its_target_is_written_out(tmp_path: Path) -> None:
    run = old_run(tmp_path / "run", old_target())
    assert target_here(RunLocation.of(run), old_target()) == old_target()


def test_its_tasks_are_those_that_were_measured(tmp_path: Path) -> None:
    run = old_run(tmp_path / "run", ZEN3)
    prepared = job(asked(run, ZEN3), read_begun_target(RunLocation.of(run), "llvm"))
    assert prepared.options.target == ZEN3
    assert [task.key for task in prepared.tasks] == [KEY]


def test_the_driver_of_a_cluster_may_be_another_machine(tmp_path: Path) -> None:
    many = canonical({**json.loads(ZEN3), "num-cores": 999})
    with pytest.raises(TunerError, match="999"):
        target_here(RunLocation.of(tmp_path / "run"), many)
    prepared = job(asked(tmp_path / "run", many), many)
    assert prepared.options.target == many


def test_another_target_is_refused(tmp_path: Path) -> None:
    run = old_run(tmp_path / "run", old_target())
    other = json.dumps({"kind": "llvm", "mcpu": this_host().named, "opt-level": 2})
    with pytest.raises(TunerError, match="is a run for another target"):
        job(asked(run, other))
    with pytest.raises(TunerError, match="is a run for another target"):
        target_here(
            RunLocation.of(old_run(tmp_path / "more", old_target(**{"num-cores": 999}))), "llvm"
        )


def test_a_run_of_a_gpu_is_not_continued_on_a_cpu(tmp_path: Path) -> None:
    run = old_run(tmp_path / "run", '{"arch":"sm_90","kind":"cuda"}')
    assert read_begun_target(RunLocation.of(run), "llvm") is None
    assert (
        read_begun_target(RunLocation.of(run), "auto")
        == read_begun_target(RunLocation.of(run), "cuda")
        is not None
    )


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the foreign CPU is an x86")
def test_a_run_of_a_cpu_with_more_is_not_timed_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Its kernels would end the process with an illegal instruction.
    monkeypatch.setenv("TVM_NUM_THREADS", "1")
    later = '{"kind":"llvm","mcpu":"diamondrapids","num-cores":1}'
    with pytest.raises(TunerError, match=r"diamondrapids has .* which this machine has not"):
        bench_here(old_run(tmp_path / "run", later))
    with pytest.raises(TunerError, match="which this machine has not"):
        target_here(RunLocation.of(tmp_path / "run"), "llvm")


class TestSeeds:
    """What was measured for the old target begins the search for a new one of the same machine."""

    def seeds(self, tmp_path: Path, changed: Mapping[str, object]) -> tuple[Task, Seeds | None]:
        target = canonical({**json.loads(ZEN3), **changed})
        run = tmp_path / "new"
        prepared = job(asked(run, target), target)
        (task,) = prepared.tasks
        found = seeds_for(prepared.tasks, RunFolder(run), [GOLDEN])
        return task, found.get(task.key)

    def test_the_very_same_program_is_known(self, tmp_path: Path) -> None:
        caches = caches_text({1: 1 << 15, 2: 1 << 19, 3: 1 << 25})
        new = {"mattr": ["+shstk", "-rdpru"], "model": caches}
        task, seeds = self.seeds(tmp_path, new)
        assert task.key != KEY
        assert seeds is not None
        assert len(seeds.known) == 4
        assert seeds.parents == ()

    def test_for_other_threads_or_vectors_it_is_a_parent(self, tmp_path: Path) -> None:
        for number, changed in enumerate(({"num-cores": 1}, {"mattr": ["-avx"]})):
            _, seeds = self.seeds(tmp_path / str(number), changed)
            assert seeds is not None
            assert seeds.known == ()
            assert len(seeds.parents) == 4
