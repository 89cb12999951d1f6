"""A user's classes in the processes of workers, which have only their text."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from actors.builder import Builder, Built
from actors.runner import Runner
from actors.space_worker import SpaceWorker
from spaces.design_space.default_schedule import default_candidate
from tests.contracts.programs import gemm_task
from tuner.candidate import Candidate, CandidateKind, Draft
from tuner.effort import EFFORTS
from tuner.layers import Layers
from tuner.measure import Evaluated
from tuner.record import Measurement, Status
from tuner.source import Source
from tuner.task import Task

pytestmark = [pytest.mark.tvm, pytest.mark.slow]

TEXT = """
import os
import numpy as np

assert not os.path.exists(__file__)  # only this text is here

class Counts:  # features: the number of loops of each kind
    def __init__(self, target):
        self.target = target
    def extract(self, module_json, schedules):
        return [np.array([str(s.mod).count(word) for word in WORDS]) for s in schedules]
WORDS = "for", "parallel", "vectorized", "unroll"

class First:  # cost model: the first feature
    def __init__(self, seed): self.factor = 0.0
    def fit(self, features, latencies_s, groups, censored=None): self.factor = 2.0
    def predict(self, features): return self.factor * features[:, 0]
    def dump(self): return str(self.factor).encode()
    def load(self, data): self.factor = float(data)

class Same:  # mutator: changes the first tile, and nothing else
    weight = 1e9
    def apply(self, trace, rng):
        for inst in trace.insts:
            decision = trace.get_decision(inst)
            if inst.kind.name == "SamplePerfectTile" and len(set(map(int, decision))) > 1:
                return trace.with_decision(inst, list(reversed(decision)), True)

class Marks:  # post-processor: leaves a mark, refuses nothing
    def apply(self, schedule):
        schedule.annotate(schedule.get_sblock("root"), "theirs", "marked")
        return True

class Refuses:
    def apply(self, schedule): return False

class Compiles:  # builder: TVM's compiler, without our passes
    def build(self, module, target):
        import tvm
        assert "theirs" not in str(target)
        return tvm.compile(module, target=target).mod

class Times:  # runner: three samples of a single run
    def time(self, module, arguments, device, timing, cutoff_s):
        evaluator = module.time_evaluator("main", device, number=1, repeat=3)
        return evaluator(*arguments).results

class Fails:
    def __init__(self, *given): pass
    def fit(self, *given): pass
    def dump(self): return b""
    def load(self, data): pass
    def apply(self, *given): return {}["mistake"]
    build = time = predict = extract = apply
"""
FAILING = TEXT.splitlines().index('    def apply(self, *given): return {}["mistake"]') + 1
FAULT = f"theirs.py:{FAILING}: KeyError: 'mistake'"


def theirs(name: str) -> Source:
    return Source("theirs.py", TEXT, name)


@pytest.fixture(scope="module")
def task() -> Task:
    return gemm_task()


@pytest.fixture
def evaluated(task: Task, tmp_path: Path) -> Any:
    def evaluate(layers: Layers, *drafts: Draft, model: bytes | None = None) -> list[Evaluated]:
        with closing(SpaceWorker(log_dir=tmp_path, layers=layers)) as worker:
            worker.put_tasks([task])
            if model is not None:
                worker.use_model(1, model)
            return worker.evaluate(list(drafts), deadline_s=60.0)

    return evaluate


def fresh(task: Task, *numbers: int) -> list[Draft]:
    return [Draft(task.key, number, number) for number in numbers]


def test_their_features_and_their_model_score_candidates(task: Task, evaluated: Any) -> None:
    layers = Layers(features=theirs("Counts"), cost_model=theirs("First"))
    for answer in evaluated(layers, *fresh(task, 1, 2, 3), model=b"2.0"):
        assert answer.features.shape == (4,)
        assert answer.features[0] >= 3, "loops of a written program, the templates' as well"
        assert answer.score == 2.0 * answer.features[0]


def test_their_mutator_changes_traces(task: Task, evaluated: Any) -> None:
    from spaces.design_space.trace_space import TraceSpace

    bare = replace(task, shapes=())
    draft = Draft(bare.key, 1, 5, rules_parent(bare))
    parent = TraceSpace(bare).realize_draft(draft).candidate
    layers = Layers(mutators=(theirs("Same"),))
    (mutant,) = evaluated(layers, Draft(bare.key, 2, 6, parent))
    assert mutant.candidate is not None, mutant.error
    assert mutant.candidate.space == parent.space
    assert mutant.candidate.payload != parent.payload
    assert sorted(mutant.candidate.payload) == sorted(parent.payload), "turned round, no more"


def rules_parent(task: Task) -> Candidate:
    from spaces.design_space.trace_space import TraceSpace

    return TraceSpace(task).realize_draft(Draft(task.key, 1, 3)).candidate


@pytest.mark.parametrize(
    "layers",
    [
        Layers(features=theirs("Fails")),
        Layers(cost_model=theirs("Fails")),
        Layers(postprocs=(theirs("Fails"),), features=theirs("Counts")),
    ],
    ids=["features", "cost_model", "postprocs"],
)
def test_what_is_at_fault_is_told_with_its_line(task: Task, evaluated: Any, layers: Layers) -> None:
    model = b"" if layers.cost_model else None
    (answer,) = evaluated(layers, *fresh(task, 1), model=model)
    assert answer.fault.startswith(FAULT), answer


@pytest.fixture
def build(task: Task, tmp_path: Path) -> Iterator[Any]:
    builders: dict[Layers, Builder] = {}

    def built(layers: Layers, candidate: Candidate | None = None) -> Built | Measurement:
        if layers not in builders:
            builders[layers] = Builder(log_dir=tmp_path, layers=layers)
        return builders[layers].build(task, candidate or default_candidate(task), 60.0)

    yield built
    for builder in builders.values():
        builder.close()


def timed(task: Task, artifact: bytes, timer: Source | None, folder: Path) -> Measurement:
    runner = Runner(target=task.target, log_dir=folder, scratch=folder, layers=Layers(runner=timer))
    with closing(runner):
        assert runner.learn(task, (), 60.0).error == ""
        timing = EFFORTS["quick"].timing
        return runner.run(task, artifact, timing=timing, cutoff_s=None, deadline_s=60.0)


def test_their_builder_and_their_runner_measure(task: Task, build: Any, tmp_path: Path) -> None:
    built = build(Layers(builder=theirs("Compiles")))
    assert isinstance(built, Built), built
    measured = timed(task, built.artifact, theirs("Times"), tmp_path)
    assert measured.status is Status.OK, measured.error
    assert len(measured.samples_s) == 3
    failed = timed(task, built.artifact, theirs("Fails"), tmp_path)
    assert failed.fault.startswith(FAULT)


def test_a_builder_at_fault_is_told_and_one_whose_compiler_refuses_fails_its_trial(
    build: Any,
) -> None:
    failed = build(Layers(builder=theirs("Fails")))
    assert isinstance(failed, Measurement)
    assert failed.fault.startswith(FAULT)
    refusing = Source(
        "theirs.py",
        "import json\nclass B:\n    def build(self, module, target):\n        json.loads('{')\n",
        "B",
    )
    refused = build(Layers(builder=refusing))
    assert isinstance(refused, Measurement)
    assert (refused.status, refused.fault) == (Status.BUILD_FAILED, "")
    assert "JSONDecodeError" in refused.error


def test_their_post_processors_are_part_of_what_is_written(task: Task, build: Any) -> None:
    from spaces.design_space.realize import realize
    from spaces.ir.schedules import code_hash

    layers = Layers(postprocs=(theirs("Marks"),))
    for candidate in (template_point(task), rules_parent(task)):
        built = build(layers, candidate)
        assert isinstance(built, Built), built
        assert "marked" in built.written.trace
        again = realize(task, built.written.of(candidate))
        assert code_hash(again.mod) == built.written.code_hash, "without their file"
        assert "theirs" in str(again.mod)
    refused = build(Layers(postprocs=(theirs("Refuses"),)), rules_parent(task))
    assert isinstance(refused, Measurement)
    assert (refused.status, refused.fault) == (Status.INVALID, "")
    assert "refused by Refuses" in refused.error


def template_point(task: Task) -> Candidate:
    from spaces.design_space.task_space import TaskSpace

    space = TaskSpace(task)
    points = (space.realize_draft(draft).candidate for draft in fresh(task, *range(1, 9)))
    return next(point for point in points if point.kind is CandidateKind.KNOBS)


def test_the_learner_fits_their_model_and_tells_its_fault(tmp_path: Path) -> None:
    from tuner.cost_models.fitter import Fitter
    from tuner.user_code.faults import LayerFailed

    rows = examples(32)
    fit = Fitter(theirs("First"), 0).fit(0, rows)
    assert fit.model == b"2.0"
    failing = Source("theirs.py", TEXT.replace("self.factor = 2.0", "undefined"), "First")
    with pytest.raises(LayerFailed, match=r"theirs\.py:\d+: NameError: .*\(cost model, fit\)"):
        Fitter(failing, 0).fit(0, rows)


def examples(count: int) -> Any:
    from tuner.cost_models.dataset import Examples

    rng = np.random.default_rng(0)
    features = rng.normal(size=(count, 4)).astype(np.float32)
    return Examples(features, np.ones(count, np.float32), np.zeros(count, np.int32))


def test_a_builder_or_a_runner_that_returns_nothing_is_at_fault(
    task: Task, build: Any, tmp_path: Path
) -> None:
    from spaces.codegen.artifact import build_artifact
    from spaces.ir.schedules import task_module

    methods = ("def build(self, module, target): pass", "def time(self, *all): pass")
    nothing = Source("nothing.py", "\n    ".join(["class Nothing:", *methods]), "Nothing")
    built = build(Layers(builder=nothing))
    assert isinstance(built, Measurement)
    assert built.fault.startswith("nothing.py: build gave NoneType")
    artifact = build_artifact(task_module(task.module), task.target)
    assert timed(task, artifact, nothing, tmp_path).fault.startswith("nothing.py: time gave")
