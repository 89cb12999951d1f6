"""Every layer replaced by a class of the user's, on a cluster of two nodes that have no file."""

from __future__ import annotations

import json
import os
import pickle
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from benchmarks.fleet.local import LocalFleet, local_fleet
from tuner.candidate import CandidateKind
from tuner.errors import TunerError
from tuner.request.model_spec import ModelSpec
from tuner.request.options import TuneOptions
from tuner.source import Source
from tuner.storage.sqlite_store import SqliteStore

pytestmark = [pytest.mark.tvm, pytest.mark.ray, pytest.mark.slow]

ROOT = Path(__file__).resolve().parents[2]
TRIALS = 16

TEXT = '''
import os, random, time
import numpy as np
from tuner.record import Measurement, Provenance, Record, Status
from tuner.search.random_search import RandomSearch
from tuner.session.observer import Silent
from tuner.storage.sqlite_store import MemoryStore

assert not os.path.exists(__file__), "only its text is here"

def used(what):
    with open(os.path.join(EVIDENCE, what), "a") as file:
        file.write(f"{os.getpid()}\\n")

class Strategy(RandomSearch):
    def propose(self, n):
        used("strategy")
        return super().propose(n)

class CostModel:
    def __init__(self, seed): self.mean = 0.0
    def fit(self, features, latencies_s, groups, censored=None):
        used("cost_model.fit")
        self.mean = float(features.mean())
    def predict(self, features):
        used("cost_model.predict")
        return features[:, 0] - self.mean
    def dump(self): return repr(self.mean).encode()
    def load(self, data): self.mean = float(data)

class Features:
    def __init__(self, target): pass
    def extract(self, module_json, schedules):
        used("features")
        return [np.array([str(s.mod).count("for"), len(s.trace.insts)]) for s in schedules]

class Allocator:
    def order(self, views):
        used("allocator")
        return [view.key for view in views]

class Mutator:
    def apply(self, trace, rng):
        used("mutator")

class Postproc:
    def apply(self, schedule):
        used("postproc")
        return True

class Builder:
    def build(self, module, target):
        import tvm
        used("builder")
        return tvm.compile(module, target=target).mod

class Runner:
    def time(self, module, arguments, device, timing, cutoff_s):
        used("runner")
        return module.time_evaluator("main", device, number=3, repeat=3)(*arguments).results

class Store(MemoryStore):
    def __init__(self, folder):
        super().__init__()
        used("store.made")
    def append_many(self, items):
        used("store.append")
        return super().append_many(items)

class Observer(Silent):
    def __init__(self, folder):
        assert (folder / "run.json").exists()
    def on_end(self, snapshot):
        used("observer")

class Library:
    def symbol(self, program): return "theirs.mm"
    def functions(self):
        def product(a, b, out):
            used("library")
            np.matmul(a, b, out=out)
        return {"theirs.mm": product}

class Measurer:
    """Finds a candidate the faster the longer it is."""
    def __init__(self, tasks):
        self.tasks, self.waiting = tasks, []
    def free(self): return 4 - len(self.waiting)
    def submit(self, trials, cutoff_s=None):
        used("measurer")
        self.waiting += trials
    def collect(self, timeout_s):
        trials, self.waiting = self.waiting, []
        if not trials: time.sleep(timeout_s)
        return [
            Record(t, Measurement(Status.OK, (1 / len(t.candidate.payload + "ab"),) * 3),
                   Provenance("theirs", "a slide rule", "none"), time_s=time.time())
            for t in trials
        ]
    def toolchain(self): return "none"
    def close(self): pass

class Fails(CostModel):
    def fit(self, *given, **named): return undefined
'''


def theirs(evidence: Path, name: str) -> Source:
    return Source("only/here.py", f"EVIDENCE = {str(evidence)!r}\n{TEXT.lstrip()}", name)


@pytest.fixture(scope="module")
def fleet() -> Iterator[LocalFleet]:
    before = dict(os.environ)
    with local_fleet({"CPU": 1}) as started:
        started.add({"CPU": 3, "measure_cpu": 1})
        yield started
    os.environ.clear()
    os.environ.update(before)


def options(fleet: LocalFleet, run: Path, layers: list[tuple[str, Source]]) -> TuneOptions:
    strategy = dict(layers).get("strategy", "random")
    return TuneOptions(
        ModelSpec(f"{ROOT}/examples/gemm.py:gemm", args=(("m", 64), ("n", 64), ("k", 64))),
        target="llvm",
        trials=TRIALS,
        time_budget_s=150.0,
        run=run,
        address=fleet.address,
        strategy=strategy,
        layers=tuple(pair for pair in layers if pair[0] != "strategy"),
    )


TUNE = """
import json, pickle, sys
from cluster.app.tune import tune
from tuner.errors import TunerError
try:
    result = tune(pickle.load(sys.stdin.buffer))
except TunerError as error:
    sys.exit(f"said: {error}")
print("said:", json.dumps([result.snapshot.trials, result.warnings]))
"""


def tuned(options: TuneOptions) -> tuple[int, list[str]]:
    """The trials of a run and its warnings, by a driver of its own.

    Raises:
        TunerError: it said so.
    """
    done = subprocess.run(
        [sys.executable, "-c", TUNE],
        input=pickle.dumps(options),
        capture_output=True,
        timeout=240,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    for line in (done.stdout + done.stderr).decode().splitlines():
        if line.startswith("said: "):
            if done.returncode:
                raise TunerError(line.removeprefix("said: "))
            trials, warnings = json.loads(line.removeprefix("said: "))
            return trials, warnings
    raise AssertionError(done.stderr.decode()[-2000:])


@pytest.mark.long
def test_each_layer_is_a_users_class_whose_file_no_machine_has(
    fleet: LocalFleet, tmp_path: Path
) -> None:
    names = {
        "strategy": "Strategy",
        "cost_model": "CostModel",
        "features": "Features",
        "allocator": "Allocator",
        "mutators": "Mutator",
        "postprocs": "Postproc",
        "builder": "Builder",
        "runner": "Runner",
        "store": "Store",
        "observers": "Observer",
        "libraries": "Library",
    }
    evidence = tmp_path / "evidence"
    evidence.mkdir()
    layers = [(layer, theirs(evidence, name)) for layer, name in names.items()]
    trials, _ = tuned(options(fleet, tmp_path / "run", layers))
    assert trials == TRIALS
    assert {file.name for file in evidence.iterdir()} >= {
        *("strategy", "allocator", "store.made", "store.append", "observer"),
        *("features", "cost_model.fit", "postproc", "builder", "runner", "library"),
    }
    with closing(SqliteStore(tmp_path / "run" / "records.sqlite", read_only=True)) as store:
        (called,) = (r for r in store.scan() if r.trial.candidate.kind is CandidateKind.LIBRARY)
        features = [v for task in store.tasks() for v in store.features(task.key).values()]
    assert {len(vector) for vector in features} == {2}
    assert (called.trial.candidate.payload, called.measurement.error) == ("theirs.mm", "")
    with closing(sqlite3.connect(tmp_path / "run" / "mlflow.db")) as db:
        tracked = dict(db.execute("select key, value from params"))
    assert tracked["cost_model"].startswith("only/here.py:CostModel@")


@pytest.mark.long
def test_a_users_measurer_stands_for_all_machines(fleet: LocalFleet, tmp_path: Path) -> None:
    layers = [("measurer", theirs(tmp_path, "Measurer"))]
    assert tuned(options(fleet, tmp_path / "run", layers))[0] == TRIALS
    with closing(SqliteStore(tmp_path / "run" / "records.sqlite", read_only=True)) as store:
        assert {record.provenance.device for record in store.scan()} == {"a slide rule"}


@pytest.mark.long
def test_a_layer_that_raises_ends_the_run_with_its_line_and_loses_nothing(
    fleet: LocalFleet, tmp_path: Path
) -> None:
    asked = options(fleet, tmp_path / "run", [("cost_model", theirs(tmp_path, "Fails"))])
    with pytest.raises(TunerError, match=r"^only/here\.py:\d+: NameError: .*cost model, fit"):
        tuned(asked)
    with closing(SqliteStore(tmp_path / "run" / "records.sqlite", read_only=True)) as store:
        measured = len(list(store.scan()))
        assert store.sessions()[-1].reason == "failed"
    with pytest.raises(TunerError, match="begun with"):
        tuned(options(fleet, tmp_path / "run", [("runner", theirs(tmp_path, "Runner"))]))
    goes_on = options(fleet, tmp_path / "run", [("cost_model", theirs(tmp_path, "CostModel"))])
    trials, warnings = tuned(goes_on)
    assert trials == TRIALS >= measured
    assert any("goes on with the cost_model only/here.py:CostModel" in said for said in warnings)
