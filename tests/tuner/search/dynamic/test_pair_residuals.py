"""What measured pairs say of others: alike kernels err alike, on alike shapes more so."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.search.dynamic.pair_residuals import Residuals

Floats = npt.NDArray[np.float64]

FEATURES = np.array([[0.0], [1.0], [2.0], [8.0]])
SHAPES = np.array([[1.0], [8.0], [64.0], [512.0]])


def residuals(
    pairs: dict[tuple[int, int], float],
    features: Floats = FEATURES,
    shapes: Floats = SHAPES,
    traits: Floats | None = None,
    spaces: Sequence[int] | None = None,
) -> Residuals:
    """With the features and sizes of pairs as their traits, where nothing else is said."""
    kernels, places = [k for k, _ in pairs], [p for _, p in pairs]
    found = plain_traits(features, shapes) if traits is None else traits
    of = [0] * len(features) if spaces is None else spaces
    return Residuals(features, of, found, shapes, kernels, places, list(pairs.values()))


def plain_traits(features: Floats, shapes: Floats) -> Floats:
    of_kernels = np.repeat(features[:, None, :], len(shapes), axis=1)
    of_shapes = np.repeat(np.log2(shapes)[None, :, :], len(features), axis=0)
    return np.concatenate([of_kernels, of_shapes], axis=2)


def predicted(learned: Residuals, kernel: int, place: int) -> tuple[float, float]:
    mean, spread = learned.predict(np.array([kernel]), np.array([place]))
    return float(mean[0]), float(spread[0])


def mean(learned: Residuals, kernel: int, place: int) -> float:
    return predicted(learned, kernel, place)[0]


def spread(learned: Residuals, kernel: int, place: int) -> float:
    return predicted(learned, kernel, place)[1]


def test_before_any_measurement_estimates_are_taken_as_they_are() -> None:
    learned = residuals({})
    assert mean(learned, 0, 0) == 0.0
    assert spread(learned, 0, 0) > 0.1


def test_an_error_of_all_alike_is_one_of_those_not_measured() -> None:
    """Such as an estimate in other units."""
    learned = residuals({(0, 0): 0.7, (1, 2): 0.7, (3, 1): 0.7})
    found, _ = learned.predict(np.repeat(np.arange(4), 4), np.tile(np.arange(4), 4))
    assert found == pytest.approx(np.full(16, 0.7))


def test_a_measured_pair_is_predicted_as_measured() -> None:
    pairs = {(0, 0): 0.4, (1, 1): -0.3, (2, 2): 0.1, (3, 3): 0.6, (0, 3): -0.2, (3, 0): 0.0}
    learned = residuals(pairs)
    for (kernel, place), error in pairs.items():
        assert mean(learned, kernel, place) == pytest.approx(error, abs=0.02)
        assert spread(learned, kernel, place) < 0.03


def test_what_one_kernel_gets_wrong_its_neighbours_are_expected_to_get_wrong() -> None:
    learned = residuals({(0, 1): 0.6, (3, 1): 0.0, (3, 2): 0.0})
    near, nearby, far = (mean(learned, kernel, 1) for kernel in (0, 1, 2))
    assert near > nearby > far > mean(learned, 3, 1)


def test_what_a_kernel_gets_wrong_on_one_shape_it_gets_wrong_on_near_ones_most() -> None:
    learned = residuals({(0, 0): 0.6, (1, 3): 0.0, (2, 3): 0.0, (3, 3): 0.0})
    here, near, far = (mean(learned, 0, place) for place in (0, 1, 2))
    assert here > near > far > 0.0


def test_what_was_measured_is_surer_than_its_neighbours_and_these_than_strangers() -> None:
    learned = residuals({(0, 0): 0.3, (0, 1): -0.2, (1, 0): 0.1})
    assert spread(learned, 0, 0) < spread(learned, 1, 1) < spread(learned, 3, 3)


def test_every_measurement_makes_the_others_surer() -> None:
    """With errors of one size, so that the scale of all stays."""
    pairs: dict[tuple[int, int], float] = {}
    spreads = []
    for n, pair in enumerate([(3, 0), (3, 3), (1, 3), (1, 0), (0, 1), (2, 2)]):
        pairs[pair] = 0.3 * (-1) ** n
        if len(pairs) % 2 == 0:
            spreads.append(spread(residuals(pairs), 0, 0))
    assert spreads == sorted(spreads, reverse=True)
    assert spreads[-1] < 0.8 * spreads[0]


def test_a_kernel_measured_on_some_shapes_is_known_well_on_the_others() -> None:
    """A smooth error: a part of the kernel's own, and a part of the shape's."""
    rng = np.random.default_rng(0)
    features, shapes = rng.random((24, 3)), np.array([[2.0**n] for n in range(8)])
    truth = 0.4 * features @ np.array([1.0, -1.0, 0.5])
    errors = truth[:, None] + 0.02 * np.arange(8.0)
    pairs = {(k, p): float(errors[k, p]) for k in range(24) for p in (k % 3, 4 + k % 3)}
    learned = residuals(pairs, features, shapes)
    left = [(k, p) for k in range(24) for p in range(8) if (k, p) not in pairs]
    off = [abs(mean(learned, k, p) - errors[k, p]) for k, p in left]
    assert np.mean(off) < 0.25 * errors.std()


def test_a_pair_that_contradicts_its_like_says_little_about_them() -> None:
    """As one that was timed while the machine was busy."""
    shapes = np.array([[2.0**n] for n in range(8)])
    calm = {(k, p): 0.05 * k for k in range(4) for p in range(8) if p != 4}
    disturbed = {**calm, (2, 3): 1.2}
    before, after = (mean(residuals(pairs, shapes=shapes), 2, 4) for pairs in (calm, disturbed))
    assert before == pytest.approx(0.1, abs=0.02)
    assert after == pytest.approx(before, abs=0.06)
    assert mean(residuals(disturbed, shapes=shapes), 2, 3) == pytest.approx(1.2, abs=0.05)


@pytest.mark.parametrize("measurements", [0, 1])
def test_one_kernel_and_one_shape_are_enough(measurements: int) -> None:
    pairs = {(0, 0): 0.25} if measurements else {}
    learned = residuals(pairs, np.array([[3.0, 1.0]]), np.array([[16.0]]))
    assert mean(learned, 0, 0) == pytest.approx(0.25 if measurements else 0.0)
    assert (spread(learned, 0, 0) < 0.05) == bool(measurements)


def test_kernels_without_features_are_told_apart_by_what_was_measured() -> None:
    learned = residuals({(0, 0): 0.5, (1, 0): -0.5}, np.zeros((3, 0)), SHAPES)
    assert mean(learned, 0, 1) > mean(learned, 2, 1) > mean(learned, 1, 1)


def test_what_is_wrong_with_a_trait_is_wrong_wherever_the_trait_is() -> None:
    """Such as tiles of which most is padding, each kernel's on another shape."""
    shapes = np.array([[2.0**n] for n in range(4)])
    padding = np.array([[0.0, 1.0, 0.0, 0.0], [0.0, 0.0, 1.0, 0.0], [1.0, 0.0, 0.0, 1.0]])
    pairs = {(k, p): 0.5 * padding[k, p] for k in (0, 1) for p in range(4)}
    learned = residuals(pairs, np.eye(3), shapes, padding[:, :, None])
    assert [mean(learned, 2, p) for p in range(4)] == pytest.approx(0.5 * padding[2], abs=0.15)


def test_kernels_of_another_space_say_less() -> None:
    """The same numbers stand for other loops there."""
    pairs = {(0, 1): 0.6, (3, 1): 0.0, (3, 2): 0.0}
    akin, strange = residuals(pairs), residuals(pairs, spaces=[0, 1, 1, 1])
    assert mean(akin, 1, 1) > mean(strange, 1, 1) > 0.0
    assert spread(akin, 1, 1) < spread(strange, 1, 1)


def test_features_that_are_the_same_for_all_kernels_say_nothing() -> None:
    pairs = {(0, 1): 0.6, (3, 1): 0.0, (3, 2): 0.1}
    constant = np.hstack([FEATURES, np.full((4, 2), 7.0)])
    assert mean(residuals(pairs, constant), 1, 1) == mean(residuals(pairs), 1, 1)


def test_nothing_to_predict_gives_nothing() -> None:
    none = np.zeros(0, dtype=np.int64)
    found, spreads = residuals({(0, 0): 0.5}).predict(none, none)
    assert found.shape == spreads.shape == (0,)


_pairs = st.dictionaries(
    st.tuples(st.integers(0, 5), st.integers(0, 4)), st.floats(-3.0, 3.0), max_size=20
)
_table = st.lists(
    st.lists(st.integers(0, 6).map(float), min_size=2, max_size=2), min_size=6, max_size=6
).map(np.array)


@given(_pairs, _table, st.lists(st.integers(1, 4096), min_size=5, max_size=5))
def test_predictions_are_finite_and_no_less_sure_than_before_any_measurement(
    pairs: dict[tuple[int, int], float], features: Floats, sizes: list[int]
) -> None:
    """Whatever is alike, and however much the measurements contradict one another."""
    learned = residuals(pairs, features, np.array(sizes, dtype=np.float64)[:, None])
    found, spreads = learned.predict(np.repeat(np.arange(6), 5), np.tile(np.arange(5), 6))
    assert np.isfinite(found).all()
    means = learned.means(np.repeat(np.arange(6), 5), np.tile(np.arange(5), 6))
    assert means == pytest.approx(found, abs=1e-6)
    assert (spreads >= 0.0).all()
    before = spread(residuals({}), 0, 0)
    assert spreads.max() <= before / 0.3 * max(0.3, float(np.std(list(pairs.values()) or [0.0])))
