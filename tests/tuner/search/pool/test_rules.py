"""The rules that choose the next setting."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from tests.tuner.search.pool.grid import OTHER, candidate, pool, settings, true_s
from tuner.candidate import knobs_of
from tuner.search.pool.rules import Improvement, Neighbours, Rule, Trials, fit
from tuner.search.pool.settings_pool import SettingsPool

RULES = [Neighbours(), Improvement()]


def try_settings(made: SettingsPool, *values: tuple[int, int]) -> Trials:
    numbers = [made.number(candidate(*value)) for value in values]
    return Trials({n: true_s(made.candidate(n)) for n in numbers if n is not None})


def choose(rule: Rule, made: SettingsPool, trials: Trials) -> dict[str, int]:
    untried = trials.untried(made)
    number = rule.choose(made, trials, untried).number
    assert number in untried
    return knobs_of(made.candidate(number)) or {}


@pytest.mark.parametrize("rule", RULES)
def test_before_any_time_is_known_it_is_the_best_estimate(rule: Rule) -> None:
    assert choose(rule, pool(), Trials())["rows"] == 0


@pytest.mark.parametrize("rule", RULES)
def test_nothing_is_tried_twice(rule: Rule) -> None:
    made, trials = pool(settings([(1, 1), (1, 2), (1, 3), (1, 4)])), Trials()
    trials.waiting.add(0)
    trials.failed.add(1)
    trials.times_s[2] = 1.0
    assert rule.choose(made, trials, trials.untried(made)).number == 3


def test_a_neighbour_is_near_the_fastest_and_the_best_estimated_of_these() -> None:
    made = pool(settings([(8, 8), (7, 8), (9, 8), (2, 2)], space=OTHER), settings([(1, 1)]))
    trials = Trials({0: 1e-3})
    assert choose(Neighbours(), made, trials) == {"rows": 2, "lanes": 2}, "two knobs away"
    trials.waiting.add(3)
    assert choose(Neighbours(), made, trials) == {"rows": 7, "lanes": 8}
    trials.waiting.update((1, 2))
    assert choose(Neighbours(), made, trials) == {"rows": 1, "lanes": 1}, "nothing near is left"


def test_the_fastest_is_found_after_a_fraction_of_the_pool() -> None:
    """Of 144 settings, though the estimate likes another corner."""
    rule = Improvement()
    made = pool()
    trials = try_settings(made, (0, 0), (3, 9), (9, 3), (11, 11))
    for _ in range(30):
        number = rule.choose(made, trials, trials.untried(made)).number
        trials.times_s[number] = true_s(made.candidate(number))
    assert min(trials.times_s.values()) <= 1.1e-3


def test_the_process_predicts_times_it_has_not_seen() -> None:
    made = pool()
    numbers = np.random.default_rng(0).permutation(len(made))
    seen, unseen = numbers[:40].tolist(), numbers[40:]
    model = fit(made, {n: true_s(made.candidate(n)) for n in seen})
    means = model.means(made.features[unseen])
    spreads = model.spreads(made.features[unseen], made.features[[]])
    off = np.log([true_s(made.candidate(n)) for n in unseen.tolist()]) - means
    assert np.abs(off).mean() < 0.03
    assert (np.abs(off) < 3 * spreads).mean() > 0.95


def test_one_lucky_time_does_not_raise_the_bar() -> None:
    """A time that contradicts its neighbours is no incumbent that nothing can improve on."""
    values = list(product(range(3, 10), range(5, 12)))
    made = pool(settings(values))
    trials = try_settings(made, *set(values) - {(6, 8), (9, 11), (3, 11)})
    lucky = made.number(candidate(9, 5))
    assert lucky is not None
    trials.times_s[lucky] = 0.5e-3
    assert choose(Improvement(), made, trials) == {"rows": 6, "lanes": 8}


def test_settings_in_flight_keep_others_from_their_neighbourhood() -> None:
    made = pool()
    trials = try_settings(made, (0, 0), (3, 9), (9, 3), (11, 11))
    first = choose(Improvement(), made, trials)
    number = made.number(candidate(**first))
    assert number is not None
    trials.waiting.add(number)
    second = choose(Improvement(), made, trials)
    assert first != second
