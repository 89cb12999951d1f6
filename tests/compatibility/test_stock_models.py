"""Cost models and features, stock's and ours: each takes the other's, and both tell and rank."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from spaces.testing import programs
from tests.compatibility.worker_programs import stock
from tuner.arrays import Floats32
from tuner.cost_models.base import pairwise_accuracy
from tuner.cost_models.random_model import RandomModel
from tuner.cost_models.xgb import XgbModel
from tuner.testing import FeaturesContract

pytestmark = [pytest.mark.tvm]

KNOWN, UNSEEN = 32, 16
COLUMNS = {"float_addsub": 1, "vec_len": 18, "unroll_len": 29, "parallel_len": 40}
GPU = {"is_gpu": 49, "blockIdx_x_len": 50, "threadIdx_x_len": 53}
STORES = 2 * 172
"""Column of our vectors that holds the number of stores; stock's of the heaviest one come first."""
CUDA = '{"arch":"sm_80","kind":"cuda","max_num_threads":1024,"thread_warp_size":32}'


def context(module: Any, target: str = programs.TARGET) -> Any:
    from spaces.targets.target import parse_target

    return stock().TuneContext(module, target=parse_target(target), num_threads=1, rand_state=1)


def stores(module: Any, schedules: Sequence[Any], target: str = programs.TARGET) -> list[Any]:
    """Stock's features: one row for each store of each schedule."""
    extractor = stock().feature_extractor.PerStoreFeature()
    found = extractor.extract_from(context(module, target), [measured(s) for s in schedules])
    return [array.numpy().astype(np.float32) for array in found]


def vectors(module: Any, schedules: Sequence[Any], target: str = programs.TARGET) -> list[Any]:
    """Our features: one vector for each schedule."""
    import tvm

    from spaces.features.vectors import FeatureExtractor

    return list(FeatureExtractor(target).extract(tvm.ir.save_json(module), schedules))


def measured(schedule: Any) -> Any:
    return stock().MeasureCandidate(schedule, [])


def results(latencies_s: Floats32) -> list[Any]:
    return [stock().runner.RunnerResult([float(s)], None) for s in latencies_s]


def module_of(*arguments: Any) -> Any:
    import tvm
    from tvm import te

    return tvm.IRModule({"main": te.create_prim_func(list(arguments))})


def product(rows: int = 32, terms: int = 16, *, activated: bool = False) -> Any:
    from tvm import te, topi

    a, b = te.placeholder((rows, terms), name="a"), te.placeholder((terms, 64), name="b")
    out = topi.nn.matmul(a, b)
    return module_of(a, b, topi.nn.relu(out) if activated else out)


def scheduled(module: Any, change: Callable[..., None] | None = None) -> Any:
    """A schedule whose first block's loops were changed."""
    import tvm

    schedule = tvm.s_tir.Schedule(module, debug_mask="all")
    if change is not None:
        block = schedule.get_child_blocks(schedule.get_sblock("root"))[0]
        change(schedule, *schedule.get_loops(block))
    return schedule


class Pooled:
    """A features layer of a user's: what stock says of a program's stores, summed."""

    def __init__(self, target: str) -> None:
        self._target = target

    def extract(self, module_json: str, schedules: Sequence[Any]) -> list[Floats32]:
        import tvm

        found = stores(tvm.ir.load_json(module_json), schedules, self._target)
        return [rows.sum(axis=0) for rows in found]


class TestStocksFeaturesAsALayerOfOurs(FeaturesContract):
    made = Pooled


@dataclass(frozen=True)
class Data:
    """Schedules of one program, with times that follow from how they are written."""

    module: Any
    schedules: Sequence[Any]
    latencies_s: Floats32
    pooled: Floats32

    @property
    def groups(self) -> Any:
        return np.zeros(len(self.schedules), np.int32)

    @property
    def candidates(self) -> list[Any]:
        return [measured(schedule) for schedule in self.schedules]

    def accuracy(self, scores: Any) -> float:
        """Share of the unseen pairs that scores order rightly; chance is a half."""
        unseen = slice(KNOWN, None)
        found = pairwise_accuracy(
            np.asarray(scores, np.float32), self.latencies_s[unseen], self.groups[unseen]
        )
        assert found is not None
        return found


@cache
def data() -> Data:
    from spaces.ir.schedules import task_module

    schedules = programs.schedules(KNOWN + UNSEEN)
    texts = [str(schedule.mod) for schedule in schedules]
    times = [(1 + t.count("for ")) / (8 if "vectorized" in t else 1) for t in texts]
    task = programs.task()
    pooled = np.stack(Pooled(programs.TARGET).extract(task.module, schedules)).astype(np.float32)
    latencies_s = 1e-6 * np.array(times, np.float32)
    return Data(task_module(task.module), schedules, latencies_s, pooled)


@cache
def fitted_by_stock() -> Any:
    known = data()
    ms = stock()
    model = ms.cost_model.XGBModel(
        extractor=ms.feature_extractor.PerStoreFeature(),
        num_warmup_samples=8,
        num_tuning_cores=1,
        early_stopping_rounds=3,
    )
    half = KNOWN // 2
    for rows in (slice(0, half), slice(half, KNOWN)):  # further rows come on top of the first
        model.update(
            context(known.module), known.candidates[rows], results(known.latencies_s[rows])
        )
    return model


def fitted_by_us(model: Any) -> Any:
    known = data()
    model.fit(known.pooled[:KNOWN], known.latencies_s[:KNOWN], known.groups[:KNOWN])
    return model


class TestModels:
    def test_both_rank_unseen_schedules_far_better_than_chance_by_the_same_features(self) -> None:
        known = data()
        theirs = fitted_by_stock().predict(context(known.module), known.candidates[KNOWN:])
        mine = fitted_by_us(XgbModel(1)).predict(known.pooled[KNOWN:])
        assert known.accuracy(theirs) > 0.7
        assert known.accuracy(mine) > 0.7

    def test_both_predict_the_same_again_once_they_were_saved_and_loaded(
        self, tmp_path: Path
    ) -> None:
        known, path = data(), str(tmp_path / "model")
        model, ms = fitted_by_stock(), stock()
        again = ms.cost_model.XGBModel(
            extractor=ms.feature_extractor.PerStoreFeature(), num_warmup_samples=8
        )
        model.save(path)
        again.load(path)
        assert again.data_size == KNOWN, "stock keeps the rows in the file; our store has them"
        where = context(known.module), known.candidates[KNOWN:]
        np.testing.assert_array_equal(again.predict(*where), model.predict(*where))
        mine, loaded = fitted_by_us(XgbModel(1)), XgbModel(2)
        loaded.load(mine.dump())
        np.testing.assert_array_equal(
            loaded.predict(known.pooled[KNOWN:]), mine.predict(known.pooled[KNOWN:])
        )

    def test_both_take_programs_without_features_and_rows_without_times(self) -> None:
        from tvm import topi

        module = module_of(topi.full((2, 3), "float32", 1.0))
        schedule, ms = scheduled(module), stock()
        model = ms.cost_model.XGBModel(num_warmup_samples=0, num_tuning_cores=1)
        model.update(context(module), [measured(schedule)], results(np.array([1e-3], np.float32)))
        assert np.isfinite(model.predict(context(module), [measured(schedule)])).all()
        rows = np.stack(vectors(module, [schedule, schedule]))
        mine = XgbModel(1)
        for latencies_s in ([1e-3, np.inf], [0.0, 0.0], [np.inf, np.inf]):
            mine.fit(rows, np.array(latencies_s, np.float32), np.zeros(2, np.int32))
            assert np.isfinite(mine.predict(rows)).all()

    def test_random_scores_are_bounded_and_follow_from_the_seed(self) -> None:
        known, many = data(), data().candidates[:20]
        ms = stock()
        first, second = (ms.cost_model.RandomModel(seed=7) for _ in range(2))
        theirs = first.predict(context(known.module), many)
        assert (min(theirs) >= 0, max(theirs) <= first.max_range) == (True, True)
        np.testing.assert_array_equal(theirs, second.predict(context(known.module), many))
        mine = fitted_by_us(RandomModel(7)).predict(known.pooled[:20])
        assert (min(mine) >= 0, max(mine) <= 1) == (True, True)
        np.testing.assert_array_equal(mine, fitted_by_us(RandomModel(7)).predict(known.pooled[:20]))
        assert len(set(mine.tolist())) > 1

    def test_random_models_go_on_as_they_were_saved(self, tmp_path: Path) -> None:
        """Stock's draws go on from its state; ours score a row the same whenever it comes."""
        known, many = data(), data().candidates[:20]
        model, path = stock().cost_model.RandomModel(seed=7), str(tmp_path / "state.npy")
        model.predict(context(known.module), many)
        model.save(path)
        drawn = model.predict(context(known.module), many)
        model.load(path)
        np.testing.assert_array_equal(model.predict(context(known.module), many), drawn)
        mine, loaded = fitted_by_us(RandomModel(7)), RandomModel(8)
        loaded.load(mine.dump())
        np.testing.assert_array_equal(loaded.predict(known.pooled), mine.predict(known.pooled))

    def test_a_cost_model_of_a_users_works_in_both_and_predicts_the_same(self) -> None:
        from tvm.ir.utils import derived_object

        from examples.own_cost_model import Ridge

        known, ms = data(), stock()

        @derived_object
        class Theirs(ms.cost_model.PyCostModel):  # type: ignore[misc, name-defined]
            def __init__(self) -> None:
                super().__init__()
                self.model, self.features = Ridge(1), Pooled(programs.TARGET)
                self.saved = b""

            def rows(self, context: Any, candidates: Sequence[Any]) -> Floats32:
                import tvm

                text = tvm.ir.save_json(context.mod)
                found = self.features.extract(text, [c.sch for c in candidates])
                return np.stack(found).astype(np.float32)

            def update(self, context: Any, candidates: Any, results: Any) -> None:
                times = np.array([float(r.run_secs[0]) for r in results], np.float32)
                groups = np.zeros(len(times), np.int32)
                self.model.fit(self.rows(context, candidates), times, groups)

            def predict(self, context: Any, candidates: Any) -> Any:
                return self.model.predict(self.rows(context, candidates)).astype(np.float64)

            def save(self, path: str) -> None:
                Path(path).write_bytes(self.model.dump())

            def load(self, path: str) -> None:
                self.model.load(Path(path).read_bytes())

        theirs = Theirs()
        where = context(known.module)
        theirs.update(where, known.candidates[:KNOWN], results(known.latencies_s[:KNOWN]))
        scores = theirs.predict(where, known.candidates[KNOWN:])
        mine = fitted_by_us(Ridge(1)).predict(known.pooled[KNOWN:])
        np.testing.assert_allclose(scores, mine, rtol=1e-4, atol=1e-4)
        assert known.accuracy(scores) > 0.7


def test_a_features_layer_of_ours_is_an_extractor_that_stocks_model_learns_from() -> None:
    import tvm
    from tvm.ir.utils import derived_object

    known, ms = data(), stock()

    @derived_object
    class Ours(ms.feature_extractor.PyFeatureExtractor):  # type: ignore[misc, name-defined]
        def extract_from(self, context: Any, candidates: Any) -> list[Any]:
            found = vectors(context.mod, [candidate.sch for candidate in candidates])
            return [tvm.runtime.tensor(vector.reshape(1, -1)) for vector in found]

    extractor, where = Ours(), context(known.module)
    rows = extractor.extract_from(where, known.candidates[:2])
    assert {array.numpy().ndim for array in rows} == {2}
    model = ms.cost_model.XGBModel(
        extractor=extractor, num_warmup_samples=8, num_tuning_cores=1, early_stopping_rounds=5
    )
    model.update(where, known.candidates[:KNOWN], results(known.latencies_s[:KNOWN]))
    assert known.accuracy(model.predict(where, known.candidates[KNOWN:])) > 0.7


class TestFeatures:
    """Both extractors on the same schedules."""

    @pytest.mark.parametrize(
        ("column", "change"),
        [
            ("vec_len", lambda s, i, j, k: s.vectorize(s.split(j, [None, 8])[1])),
            ("unroll_len", lambda s, i, j, k: s.unroll(k)),
            ("parallel_len", lambda s, i, j, k: s.parallel(i)),
        ],
    )
    def test_both_see_that_a_loop_was_annotated(
        self, column: str, change: Callable[..., None]
    ) -> None:
        module = product()
        pair = [scheduled(module), scheduled(module, change)]
        at = COLUMNS[column]
        plain, changed = stores(module, pair)
        assert (plain[0, at], changed[0, at] > 1) == (0, True)
        mine = vectors(module, pair)
        assert (mine[0][at], mine[1][at]) == (0, changed[0, at])

    def test_both_see_in_which_order_loops_are(self) -> None:
        module = product()
        pair = [scheduled(module), scheduled(module, lambda s, i, j, k: s.reorder(k, j, i))]
        for plain, changed in (stores(module, pair), vectors(module, pair)):
            assert (plain != changed).any()

    def test_both_count_as_many_operations_and_more_where_there_are_more(self) -> None:
        at, counted = COLUMNS["float_addsub"], []
        for rows in (32, 64):
            module = product(rows)
            (theirs,), (mine,) = (f(module, [scheduled(module)]) for f in (stores, vectors))
            assert theirs[0, at] == pytest.approx(np.log2(1 + rows * 64 * 16), abs=1e-5)
            assert mine[at] == theirs[0, at]
            counted.append(theirs[0, at])
        assert counted[1] > counted[0]

    def test_a_fused_program_has_two_stores_for_both(self) -> None:
        module = product(activated=True)
        (theirs,), (mine,) = (f(module, [scheduled(module)]) for f in (stores, vectors))
        assert len(theirs) == 2
        assert mine[STORES] >= 2
        assert mine[COLUMNS["float_addsub"]] == theirs[:, COLUMNS["float_addsub"]].max()

    def test_a_program_that_only_writes_a_constant_has_no_rows_and_a_vector_of_zeros(self) -> None:
        from tvm import topi

        module = module_of(topi.full((2, 3), "float32", 1.0))
        (theirs,), (mine,) = (f(module, [scheduled(module)]) for f in (stores, vectors))
        assert theirs.shape == (0, 164)
        assert not mine.any()

    def test_both_see_the_threads_of_a_gpu_without_one(self) -> None:
        def bind(schedule: Any, i: Any, j: Any, k: Any) -> None:
            schedule.bind(i, "blockIdx.x")
            schedule.bind(j, "threadIdx.x")

        module = product()
        pair = [scheduled(module, bind)]
        (theirs,), (mine,) = stores(module, pair, CUDA), vectors(module, pair, CUDA)
        for name, size in (("is_gpu", 1), ("blockIdx_x_len", 32), ("threadIdx_x_len", 64)):
            at = GPU[name]
            assert theirs[0, at] == pytest.approx(np.log2(1 + size), abs=1e-5), name
            assert mine[at] == theirs[0, at], name

    def test_indices_that_divide_and_wrap_are_described_by_both(self) -> None:
        from tvm import te, topi

        x = te.placeholder((1, 16, 7, 7), name="x")
        out = topi.layout_transform(x, "NCHW", "NCHW4c")
        module = module_of(x, topi.reshape(out, (1, 4, 4, 49)))
        (theirs,), (mine,) = (f(module, [scheduled(module)]) for f in (stores, vectors))
        assert len(theirs) > 0
        assert np.isfinite(theirs).all()
        assert np.isfinite(mine).all()
        assert mine.any()

    def test_a_loop_that_never_runs_touches_nothing_and_harms_neither(self) -> None:
        module = never()
        (theirs,), (mine,) = (f(module, [scheduled(module)]) for f in (stores, vectors))
        assert theirs[0, 61] == 0, "bytes of its first buffer that are touched"
        assert np.isfinite(mine).all()


def never() -> Any:
    """A loop from 3 to 1."""
    import tvm
    from tvm.script import tirx as T

    @T.prim_func(s_tir=True)  # type: ignore[untyped-decorator]
    def main(x: T.Buffer((4,), "float32")) -> None:  # type: ignore[valid-type]
        for i in range(3, 1):
            x[i] = x[i] * T.float32(2)

    return tvm.IRModule({"main": main})
