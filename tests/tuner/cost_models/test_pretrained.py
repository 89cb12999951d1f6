"""Base models: what they learn from, how they are kept, and what is refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tuner.arrays import Features
from tuner.candidate import Candidate, CandidateKind
from tuner.cost_models.base import pairwise_accuracy
from tuner.cost_models.dataset import Examples
from tuner.cost_models.fitter import Fitter
from tuner.cost_models.learner import InlineLearner
from tuner.cost_models.pretrained import (
    BaseModel,
    accuracy_on_others,
    base_model_from_json,
    default_name,
    family,
    learn,
    read_base_model,
    refuse_misfit,
    settings_set,
    together,
    train,
    training_set,
)
from tuner.cost_models.prior import PriorModel, load_priors
from tuner.cost_models.xgb import XgbModel
from tuner.errors import TunerError
from tuner.record import Measurement, Provenance, Record, Status, Trial
from tuner.storage.facts import Tasks
from tuner.storage.sqlite_store import MemoryStore
from tuner.task import Task

ZEN = '{"kind":"llvm","mcpu":"znver4","num-cores":2}'
BASE = BaseModel(b"\x00trees\xff", "llvm-znver4", "1-552", 3, 400, 0.75, 12.5)


def rows(count: int, group: int, seed: int, *, slope: float = 1.0) -> Examples:
    """A task whose latency follows from one column, as it does in every other task."""
    rng = np.random.default_rng(seed)
    features = rng.normal(size=(count, 8)).astype(np.float32)
    latencies = np.exp(slope * features[:, 0] + group).astype(np.float32) * 1e-3
    return Examples(features, latencies, np.full(count, group, dtype=np.int32))


def store_of(*records: tuple[str, int, Measurement, str], columns: int = 4) -> MemoryStore:
    """Records of (task, number, measurement, device)."""
    store = MemoryStore()
    store.put(Tasks([Task(t, t, "m", ZEN) for t in dict.fromkeys(r[0] for r in records)]))
    for task, number, measurement, device in records:
        candidate = Candidate(CandidateKind.TRACE, f"[{number}]", "test")
        record = Record(Trial(task, candidate), measurement, Provenance("w", device))
        store.append_many([(record, np.full(columns, number, dtype=np.float32))])
    return store


def ok(seconds: float) -> Measurement:
    return Measurement(Status.OK, (seconds,))


FAILED = Measurement(Status.BUILD_FAILED, error="no")


class TestFamily:
    def test_is_the_kind_and_the_processor_whatever_the_threads(self) -> None:
        assert family(ZEN) == family(ZEN.replace("2}", "8}")) == "llvm-znver4"
        assert family('{"arch":"sm_90","kind":"cuda"}') == "cuda-sm_90"
        assert family('{"kind":"llvm"}') == "llvm-generic"
        marked = '{"arch":"sm_90","keys":["cuda","gpu","cold-l2","fast-math"],"kind":"cuda"}'
        assert family(marked) == "cuda-sm_90-cold-l2-fast-math"

    def test_gives_a_name_that_a_registry_takes(self) -> None:
        name = default_name(family('{"kind":"llvm","mcpu":"odd/na:me"}'))
        assert not set(name) & set("/:")


class TestTrainingSet:
    def test_each_task_of_each_run_and_device_is_a_group(self) -> None:
        one = store_of(
            *(("a", n, ok(n + 1.0), "x") for n in range(3)),
            *(("b", n, ok(n + 1.0), "x" if n % 2 else "y") for n in range(4)),
        )
        other = store_of(*(("a", n, ok(n + 1.0), "x") for n in range(2)))
        examples = training_set([one, other], columns=4)
        assert np.bincount(examples.groups).tolist() == [3, 2, 2, 2]

    def test_what_another_toolchain_made_is_another_group(self) -> None:
        store = store_of(*(("a", n, ok(n + 1.0), "x") for n in range(3)))
        for n in range(3, 5):
            trial = Trial("a", Candidate(CandidateKind.TRACE, f"[{n}]", "test"))
            record = Record(trial, ok(n + 1.0), Provenance("w", "x", "newer"))
            store.append_many([(record, np.full(4, n, dtype=np.float32))])
        examples = training_set([store], columns=4)
        assert np.bincount(examples.groups).tolist() == [3, 2]

    def test_a_failure_without_a_device_goes_with_the_others(self) -> None:
        store = store_of(("a", 0, ok(1.0), "x"), ("a", 1, ok(2.0), "x"), ("a", 2, FAILED, ""))
        examples = training_set([store], columns=4)
        assert np.bincount(examples.groups).tolist() == [3]
        assert np.isinf(examples.latencies_s[2])

    def test_vectors_of_another_length_are_left_out(self) -> None:
        old = store_of(*(("a", n, ok(1.0 + n), "x") for n in range(5)), columns=3)
        new = store_of(*(("b", n, ok(1.0 + n), "x") for n in range(2)))
        assert len(training_set([old, new], columns=4)) == 2

    def test_nothing_to_learn_from_is_said(self) -> None:
        none = training_set([store_of(("a", 0, ok(1.0), "x"))], columns=4)
        with pytest.raises(TunerError, match="nothing to learn from"):
            learn(none, {}, "llvm-znver4", "1-4", 0.0)

    def test_settings_are_described_anew_and_programs_are_none_of_them(self) -> None:
        store = store_of(*(("a", n, ok(n + 1.0), "x") for n in range(6)))

        def describe(task: Task) -> Callable[[Candidate], Features | None]:
            def of(candidate: Candidate) -> Features | None:
                number = int(candidate.payload[1:-1])
                return np.full(7, number, dtype=np.float32) if number > 2 else None

            return of

        ((form, examples),) = settings_set([store], describe).items()
        assert form == "test"
        assert examples.features.shape == (3, 7)
        assert examples.latencies_s.tolist() == [4.0, 5.0, 6.0]


class TestLearning:
    def test_of_programs_and_settings_there_are_models_apart(self) -> None:
        programs, settings = together([rows(60, 0, 0), rows(60, 1, 1)]), rows(40, 0, 2)
        base = learn(programs, {"kernel:a-1": settings}, "llvm-znver4", "1-8", 3.0)
        assert (base.tasks, base.records, base.created_s) == (3, 160, 3.0)
        assert base.accuracy == accuracy_on_others(programs)
        assert [*load_priors(base.priors)] == ["kernel:a-1"]
        XgbModel(0).load(base.model)
        assert base_model_from_json(base.to_json(), where="here") == base

    def test_without_programs_there_are_no_trees(self) -> None:
        settings = together([rows(40, 0, 0), rows(40, 1, 1)])
        none = settings.only(np.zeros(0, dtype=np.intp))
        base = learn(none, {"kernel:a-1": settings}, "f", "1-8", 0.0)
        assert base.model == b""
        assert base.accuracy == accuracy_on_others(settings, PriorModel)


class TestTraining:
    def test_what_was_learned_ranks_a_task_never_seen(self) -> None:
        model = XgbModel(0)
        model.load(train(together([rows(200, 0, 0), rows(200, 1, 1)])))
        unseen = rows(100, 2, 2)
        found = pairwise_accuracy(model.predict(unseen.features), unseen.latencies_s, unseen.groups)
        assert found is not None
        assert found > 0.9

    def test_accuracy_is_of_tasks_left_out(self) -> None:
        alike = accuracy_on_others(together([rows(150, 0, 0), rows(150, 1, 1)]))
        opposite = accuracy_on_others(together([rows(150, 0, 0), rows(150, 1, 1, slope=-1.0)]))
        assert alike is not None
        assert opposite is not None
        assert alike > 0.8
        assert opposite < 0.2
        assert accuracy_on_others(rows(150, 0, 0)) is None


class TestStartingFromABase:
    def base(self) -> bytes:
        return train(together([rows(300, 0, 0), rows(300, 1, 1)]))

    def score(self, model: XgbModel, unseen: Examples) -> float:
        found = pairwise_accuracy(model.predict(unseen.features), unseen.latencies_s, unseen.groups)
        assert found is not None
        return found

    def test_a_model_is_its_base_until_it_is_fitted(self) -> None:
        unseen = rows(100, 2, 2)
        base, other = self.base(), XgbModel(5)
        other.load(base)
        np.testing.assert_array_equal(
            XgbModel(0, base=base).predict(unseen.features), other.predict(unseen.features)
        )

    def test_a_fit_on_few_rows_keeps_what_the_base_knew(self) -> None:
        few, unseen = rows(12, 2, 2), rows(200, 2, 3)
        scratch, further = XgbModel(0), XgbModel(0, base=self.base())
        for model in (scratch, further):
            model.fit(few.features, few.latencies_s, few.groups)
        assert self.score(further, unseen) > max(0.85, self.score(scratch, unseen))

    def test_a_base_that_is_wrong_is_unlearned(self) -> None:
        many, unseen = rows(300, 2, 2, slope=-1.0), rows(200, 2, 3, slope=-1.0)
        model = XgbModel(0, base=self.base())
        assert self.score(model, unseen) < 0.2
        model.fit(many.features, many.latencies_s, many.groups)
        assert self.score(model, unseen) > 0.6

    def test_fits_do_not_pile_up_and_the_same_rows_give_the_same_model(self) -> None:
        few = rows(30, 2, 2)
        model = XgbModel(0, base=self.base())
        dumps = []
        for _ in range(2):
            model.fit(few.features, few.latencies_s, few.groups)
            dumps.append(model.dump())
        assert dumps[0] == dumps[1]

    def test_the_first_model_of_a_learner_is_its_base(self) -> None:
        base = self.base()
        learner = InlineLearner(base=base, last_version=4)
        first = learner.poll()
        assert first is not None
        assert (first.version, first.model, first.records) == (5, base, 0)
        assert learner.poll() is None

    def test_the_first_fit_says_how_good_the_base_was(self) -> None:
        fitter = Fitter("tuner.cost_models.xgb:XgbModel", 0, self.base())
        fit = fitter.fit(0, rows(30, 2, 2))
        assert fit.pairs > 0
        assert fit.right / fit.pairs > 0.9

    def test_bytes_that_are_no_model_are_refused_at_once(self) -> None:
        with pytest.raises(ValueError, match="not a cost model"):
            InlineLearner(base=b"{ no")


class TestFile:
    def test_is_read_as_it_was_written(self, tmp_path: Path) -> None:
        path = tmp_path / "base.json"
        path.write_text(BASE.to_json())
        assert read_base_model(path) == BASE

    @pytest.mark.parametrize(
        "text",
        [
            "",
            "[]",
            "{}",
            '{"format": 3}',
            BASE.to_json()[:40],
            json.dumps({**json.loads(BASE.to_json()), "model": "§"}),
            json.dumps({**json.loads(BASE.to_json()), "family": 3}),
            json.dumps({**json.loads(BASE.to_json()), "more": 3}),
        ],
    )
    def test_anything_else_is_refused_in_one_line(self, text: str) -> None:
        with pytest.raises(TunerError, match="here is no base model") as caught:
            base_model_from_json(text, where="here")
        assert "\n" not in str(caught.value)

    def test_a_later_format_is_named(self) -> None:
        text = json.dumps({**json.loads(BASE.to_json()), "format": 4})
        with pytest.raises(TunerError, match="format 4"):
            base_model_from_json(text, where="here")

    def test_a_missing_file_and_a_binary_one_are_refused(self, tmp_path: Path) -> None:
        with pytest.raises(TunerError, match="there is no base model"):
            read_base_model(tmp_path / "none.json")
        (tmp_path / "odd.json").write_bytes(b"\xff\xfe\x00")
        with pytest.raises(TunerError, match="is no base model"):
            read_base_model(tmp_path / "odd.json")
        with pytest.raises(TunerError, match="cannot read"):
            read_base_model(tmp_path)


class TestFit:
    def test_the_same_kind_and_features_pass(self) -> None:
        refuse_misfit(BASE, target=ZEN, features="1-552", name="x")
        other = replace(BASE, family="llvm-skylake-avx512")
        refuse_misfit(other, target=ZEN, features="1-552", name="x")

    def test_other_features_are_refused(self) -> None:
        with pytest.raises(TunerError, match=r"x reads features of version 1-552.*version 2-552"):
            refuse_misfit(BASE, target=ZEN, features="2-552", name="x")

    def test_another_kind_of_target_is_refused(self) -> None:
        with pytest.raises(TunerError, match="x is for llvm-znver4, not for cuda"):
            refuse_misfit(BASE, target='{"arch":"sm_90","kind":"cuda"}', features="1-552", name="x")
