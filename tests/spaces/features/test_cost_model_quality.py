"""The cost model ranks schedules it has not seen: the promise of 0.75, held on recordings.

The recordings are of `benchmarks.replay.record_space`: features and latencies of candidates of two
tasks, in today's form or the older one. Nothing is timed here, so nothing here depends on how busy
the machine is.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tuner.candidate import Candidate, CandidateKind
from tuner.cost_models.base import CostModel, pairwise_accuracy
from tuner.cost_models.random_model import RandomModel
from tuner.cost_models.xgb import XgbModel
from tuner.replay.recording import Recording, load

pytestmark = pytest.mark.slow

GOLDEN = Path(__file__).parents[2] / "golden"
TASKS = ("gemm", "conv")
SEEDS = range(8)
LEARNED_FROM = 200
PROMISED = 0.75


@pytest.fixture(scope="module", params=TASKS)
def path(request: pytest.FixtureRequest) -> Path:
    return GOLDEN / f"cost-model-{request.param}.npz"


@pytest.fixture(scope="module")
def recording(path: Path) -> Recording:
    return load(path)


def held_out_accuracies(recording: Recording, make: Callable[[int], CostModel]) -> list[float]:
    """Accuracy on the records that were not learned from, for another split with each seed."""
    examples = recording.examples()
    features, latencies = examples.features, examples.latencies_s
    accuracies = []
    for seed in SEEDS:
        order = np.random.default_rng(seed).permutation(len(latencies))
        seen, unseen = order[:LEARNED_FROM], order[LEARNED_FROM:]
        assert len(unseen) >= 100
        model = make(seed)
        model.fit(features[seen], latencies[seen], np.zeros(len(seen), np.int32))
        accuracy = pairwise_accuracy(
            model.predict(features[unseen]), latencies[unseen], np.zeros(len(unseen), np.int32)
        )
        assert accuracy is not None
        accuracies.append(accuracy)
    return accuracies


def test_ranks_unseen_candidates_after_200_records(recording: Recording) -> None:
    accuracies = held_out_accuracies(recording, XgbModel)
    assert min(accuracies) >= PROMISED, accuracies


def test_a_random_model_does_not_pass(recording: Recording) -> None:
    accuracies = held_out_accuracies(recording, RandomModel)
    assert max(accuracies) < 0.6, accuracies


def test_learning_two_tasks_at_once_costs_neither() -> None:
    features, latencies, groups, unseen = [], [], [], []
    for group, name in enumerate(TASKS):
        examples = load(GOLDEN / f"cost-model-{name}.npz").examples()
        rows, times = examples.features, examples.latencies_s
        features.append(rows[:LEARNED_FROM])
        latencies.append(times[:LEARNED_FROM])
        groups.append(np.full(LEARNED_FROM, group, np.int32))
        unseen.append((rows[LEARNED_FROM:], times[LEARNED_FROM:]))
    model = XgbModel(0)
    model.fit(np.concatenate(features), np.concatenate(latencies), np.concatenate(groups))
    for rows, times in unseen:
        accuracy = pairwise_accuracy(model.predict(rows), times, np.zeros(len(times), np.int32))
        assert accuracy is not None
        assert accuracy >= PROMISED


def test_the_rounds_of_the_recording_agree(path: Path) -> None:
    """A recording of a busy machine would prove nothing."""
    with np.load(path) as file:
        seconds = file["seconds"]
    seconds = seconds[:, np.isfinite(seconds[2])]
    zeros = np.zeros(seconds.shape[1], np.int32)
    accuracy = pairwise_accuracy(-seconds[1], seconds[2:].min(axis=0), zeros)
    assert accuracy is not None
    assert accuracy > 0.9


@pytest.mark.tvm
def test_recorded_features_are_those_of_today(recording: Recording) -> None:
    """Where this fails the features changed: record again (`benchmarks.replay.record_space`)."""
    from spaces.design_space.realize import realize
    from spaces.features.vectors import PROGRAM_LENGTH, FeatureExtractor

    task, spaces = recording.task, {row.key: row.space for row in recording.rows}
    candidates = [
        Candidate(CandidateKind.TRACE, payload, spaces[key])
        for key, payload in recording.payloads.items()
    ]
    assert candidates
    extractor = FeatureExtractor(task.target)
    found = extractor.extract(task.module, [realize(task, c) for c in candidates])
    recorded = list(recording.exact.values())
    # Recordings that are older than the knobs of templates have none of their columns.
    columns = len(recorded[0])
    assert columns in (PROGRAM_LENGTH, len(found[0]))
    now = [vector[:columns] for vector in found]
    np.testing.assert_allclose(now, recorded, rtol=1e-5, atol=1e-5)
