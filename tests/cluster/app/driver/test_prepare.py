"""What a search is told: the request, as far as it is of use to another process."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from cluster.app.driver.prepare import prepare
from spaces.frontends.model import load_model
from tuner.errors import TunerError
from tuner.request.model_spec import ModelSpec
from tuner.request.options import TuneOptions
from tuner.run_location import RunLocation
from tuner.runs.folder import read_run

pytestmark = pytest.mark.tvm

EXAMPLES = Path(__file__).parents[4] / "examples"
GEMM = ModelSpec(f"{EXAMPLES / 'gemm.py'}:gemm", args=(("m", 96), ("n", 64), ("k", 80)))


def test_a_model_from_memory_stays_where_it_is(tmp_path: Path) -> None:
    """It is large, and TVM's objects cannot be pickled; the run has a copy."""
    options = TuneOptions(ModelSpec("mine", program=load_model(GEMM)), target="llvm", trials=8)
    job = prepare(options, RunLocation.of(tmp_path / "run"))
    assert job.options.model == ModelSpec("mine")
    assert job.options.model.program is None
    assert options.model.program is not None
    assert pickle.loads(pickle.dumps(job)) == job
    assert job.trials == 8
    assert read_run(job.run)[0].model_dir.is_dir()


def test_the_target_is_written_out(tmp_path: Path) -> None:
    job = prepare(TuneOptions(GEMM, target="llvm"), RunLocation.of(tmp_path / "run"))
    assert job.options.target == job.tasks[0].target == read_run(job.run)[1].target != "llvm"


SPACE = """
import time
from tuner import space

@space.manual
def by_hand(sch):
    sch.parallel(sch.get_loops(sch.get_sblock("C"))[0])

@space.manual
def hangs(sch):
    time.sleep(3600)

SPACE = space.union(by_hand, space.ours())
"""


def with_space(folder: Path, text: str = SPACE, name: str = "SPACE") -> TuneOptions:
    file = folder / "theirs.py"
    file.write_text(text)
    return TuneOptions(GEMM, target="llvm", space=f"{file}:{name}")


def test_tasks_know_the_space_that_a_file_declares(tmp_path: Path) -> None:
    options = with_space(tmp_path)
    job = prepare(options, RunLocation.of(tmp_path / "run"))
    (task,) = job.tasks
    assert task.space is not None
    assert (task.space.text, task.space.parts) == (SPACE, ("by_hand",))
    again = prepare(options, RunLocation.of(tmp_path / "run"))
    assert again.tasks == job.tasks
    assert pickle.loads(pickle.dumps(job)).tasks[0].space == task.space


def test_a_run_does_not_go_on_with_another_text(tmp_path: Path) -> None:
    run = RunLocation.of(tmp_path / "run")
    prepare(with_space(tmp_path), run)
    with pytest.raises(TunerError, match=r"begun with another .*theirs\.py:SPACE"):
        prepare(with_space(tmp_path, SPACE + "# changed\n"), run)


def test_a_space_that_fits_nothing_makes_no_run(tmp_path: Path) -> None:
    text = SPACE.replace('"C"', '"D"')
    with pytest.raises(TunerError, match=r"theirs\.py:7: "):
        prepare(with_space(tmp_path, text), RunLocation.of(tmp_path / "run"))
    assert not (tmp_path / "run").exists()


def test_a_space_that_hangs_costs_its_deadline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import cluster.app.driver.declared_space as driver

    monkeypatch.setattr(driver, "_DEADLINE_S", 3.0)
    monkeypatch.setattr(driver, "_PER_TASK_S", 0.0)
    with pytest.raises(TunerError, match=r"theirs\.py: no answer within 3 s"):
        prepare(with_space(tmp_path, name="hangs"), RunLocation.of(tmp_path / "r"))
