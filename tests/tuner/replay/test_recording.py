"""Recorded spaces as files: what comes back, how large they are, and what a replay makes of it."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tuner.candidate import Draft
from tuner.errors import TunerError
from tuner.record import Measurement, Status
from tuner.replay.recording import Recording, Row, load, save, stand_in
from tuner.replay.replay import ReplaySpacePool
from tuner.task import Task

GOLDEN = Path(__file__).parents[2] / "golden"
TASK = Task("k" * 16, "gemm", '{"nodes": []}', '{"kind":"llvm"}', flops=2.0)


def row(number: int, *, status: Status = Status.OK, parent: str = "") -> Row:
    seconds = (1e-3 * (1 + number), float("inf")) if status is Status.OK else (np.inf, np.inf)
    return Row(f"{number:016x}", "test", f"{number:016x}", parent, status, seconds, 0.25, 0.5)


def recording(count: int = 400, *, columns: int = 552) -> Recording:
    rng = np.random.default_rng(0)
    vectors = np.zeros((count, columns), dtype=np.float32)
    vectors[:, 3] = 7.5
    vectors[:, 10:200] = rng.integers(0, 40, size=(count, 190)) / 8
    vectors[:, 200] = np.linspace(0, 1, count, dtype=np.float32) ** 2
    rows = [row(n, status=Status.WRONG if n % 10 == 9 else Status.OK) for n in range(count)]
    keys = [r.key for r in rows[:2]]
    return Recording(
        task=TASK,
        device="cpu x",
        features="1-552",
        rows=tuple(rows),
        vectors=vectors,
        default=Measurement(Status.OK, (1.5,), build_s=0.5),
        refused=(7, 3),
        payloads={k: f"payload {k}" for k in keys},
        exact={k: vectors[n] for n, k in enumerate(keys)},
    )


class TestFile:
    def test_everything_comes_back(self, tmp_path: Path) -> None:
        was = recording()
        save(was, path := tmp_path / "gemm.npz")
        now = load(path)
        assert now.task == was.task
        assert (now.device, now.features, now.refused) == (was.device, was.features, was.refused)
        assert (now.default, now.payloads) == (was.default, was.payloads)
        assert [replace(r, seconds=()) for r in now.rows] == [
            replace(r, seconds=()) for r in was.rows
        ]
        np.testing.assert_allclose(
            [r.seconds for r in now.rows], [r.seconds for r in was.rows], rtol=1e-6
        )
        for key, vector in was.exact.items():
            np.testing.assert_array_equal(now.exact[key], vector)

    def test_columns_with_few_values_lose_nothing_and_others_little(self, tmp_path: Path) -> None:
        was = recording()
        save(was, path := tmp_path / "gemm.npz")
        now = load(path)
        few = [c for c in range(552) if c != 200]
        np.testing.assert_array_equal(now.vectors[:, few], was.vectors[:, few])
        assert np.abs(now.vectors[:, 200] - was.vectors[:, 200]).max() < 0.01

    def test_two_thousand_candidates_fit_into_their_share(self, tmp_path: Path) -> None:
        save(recording(2000), path := tmp_path / "gemm.npz")
        assert path.stat().st_size < 1_100_000  # nine of them into 10 MB

    def test_one_candidate_and_equal_candidates_can_be_kept(self, tmp_path: Path) -> None:
        for count in (1, 3):
            was = recording(count, columns=201)
            alike = replace(was, vectors=np.ones((count, 9), np.float32), payloads={}, exact={})
            save(alike, path := tmp_path / "one.npz")
            np.testing.assert_array_equal(load(path).vectors, alike.vectors)

    def test_what_is_no_recording_is_refused(self, tmp_path: Path) -> None:
        with pytest.raises(TunerError, match="cannot read the recording"):
            load(tmp_path / "none.npz")
        (tmp_path / "odd.npz").write_bytes(b"PK\x03\x04 not really")
        with pytest.raises(TunerError, match="cannot read the recording"):
            load(tmp_path / "odd.npz")
        np.savez(tmp_path / "other.npz", something=np.zeros(3))
        with pytest.raises(TunerError, match="cannot read the recording"):
            load(tmp_path / "other.npz")


class TestLatency:
    def test_later_rounds_count_where_there_are_any(self) -> None:
        assert replace(row(0), seconds=(1.0, np.inf)).latency_s == 1.0
        assert replace(row(0), seconds=(1.0, 3.0, 2.0, 4.0)).latency_s == 3.0

    def test_a_failure_has_none_and_a_cut_candidate_its_bound(self) -> None:
        assert row(0, status=Status.WRONG).latency_s == np.inf
        assert replace(row(0), status=Status.CENSORED, seconds=(9.0,)).latency_s == 9.0

    def test_the_best_is_of_those_that_are_right(self) -> None:
        wrong = replace(row(0, status=Status.WRONG), seconds=(1e-9, np.inf))
        one = replace(recording(2), rows=(wrong, row(4)), payloads={}, exact={})
        assert one.best_s == row(4).latency_s
        assert one.best_keys(5) == [row(4).key]


class TestInAReplay:
    def answers(self, found: Recording, parent: str | None) -> list[str]:
        pool = ReplaySpacePool({"t": found.recorded()}, capacity=10**6)
        draft = stand_in(parent, "test") if parent is not None else None
        pool.submit([Draft("t", n, seed=n, parent=draft) for n in range(3000)])
        return [a.candidate.payload if a.candidate else "refused" for a in pool.collect(0.0)]

    def bred(self) -> Recording:
        """Half fresh samples, half mutations: of the first, and of a candidate of another task."""
        was = recording(100)
        rows = [
            replace(r, parent="" if n < 50 else was.rows[0].key if n < 80 else "elsewhere")
            for n, r in enumerate(was.rows)
        ]
        return replace(was, rows=tuple(rows), refused=(50, 25))

    def test_fresh_drafts_are_fresh_samples_refused_as_often(self) -> None:
        seen = Counter(self.answers(self.bred(), None))
        assert 1350 < seen.pop("refused") < 1650  # 50 of 100
        assert set(seen) == {r.key for r in self.bred().rows[:50]}

    def test_mutations_are_neighbours_refused_as_often(self) -> None:
        found = self.bred()
        seen = Counter(self.answers(found, found.rows[3].key))
        assert 850 < seen.pop("refused") < 1150  # 25 of 75
        assert len(seen) == 12
        assert found.rows[3].key not in seen

    def test_children_of_another_tasks_candidate_are_those_recorded(self) -> None:
        found = self.bred()
        seen = set(self.answers(found, "elsewhere")) - {"refused"}
        assert seen == {r.key for r in found.rows[80:]}

    def test_an_unknown_parent_gives_a_fresh_sample(self) -> None:
        found = self.bred()
        seen = set(self.answers(found, "who knows")) - {"refused"}
        assert seen == {r.key for r in found.rows[:50]}


def test_recordings_of_the_first_version_are_read() -> None:
    found = load(GOLDEN / "cost-model-gemm.npz")
    assert found.task.name == "gemm"
    assert len(found.rows) >= 300
    assert np.isfinite(found.best_s)
    assert found.examples().features.shape[0] == len(found.rows)
    assert set(found.payloads) == set(found.exact)
