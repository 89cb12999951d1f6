"""The search for kernels: pairs of a kernel and a shape, each once, while they gain something."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.tuner.search.dynamic.kernel_world import (
    SETTINGS,
    SIZES,
    answered,
    breaks,
    evaluated,
    kernel_candidate,
    latency_s,
    least_loss,
    loss_of,
    measured,
    search_on,
    setting_of,
    shape,
    world_task,
)
from tuner.candidate import Candidate
from tuner.dynamic.shapes import MEASURED_SHAPES
from tuner.measure import Evaluated, OnShapes
from tuner.record import Measurement, Record, Status, Trial
from tuner.search.base import ChoosesFinalists
from tuner.search.dynamic.kernel_search import KernelSearch, KernelSearchSettings
from tuner.search.registry import search_maker
from tuner.task import Task

TASK = world_task()


def kernel_search(task: Task = TASK, *, seed: int = 3, most: int = 2) -> KernelSearch:
    return KernelSearch(task, seed, most)


def filled(search: KernelSearch, task: Task = TASK) -> KernelSearch:
    """With a pool of kernels, and nothing on order."""
    while drafts := search.drafts(16):
        search.absorb(answered(draft, task) for draft in drafts)
    return search


def failed(trial: Trial, status: Status = Status.RUN_FAILED) -> Record:
    return Record(trial, Measurement(status, error="crash"))


def best_pair_loss(kernels: Iterable[Candidate], sizes: Sequence[int]) -> float:
    """Of the best two of one layout."""
    pairs = combinations(kernels, 2)
    return min(loss_of(pair, sizes) for pair in pairs if len({setting_of(c)[2] for c in pair}) == 1)


# What every search keeps to.


def test_a_task_with_shapes_gets_this_search_whatever_the_strategy() -> None:
    for strategy in ("evolutionary", "random"):
        assert isinstance(search_maker(strategy)(TASK, 3), KernelSearch)
        assert not isinstance(search_maker(strategy)(replace(TASK, shapes=()), 3), KernelSearch)


def test_gives_no_more_drafts_than_asked_for() -> None:
    search = kernel_search()
    assert len(search.drafts(5)) == 5
    assert search.drafts(0) == []


def test_stops_ordering_when_enough_is_on_order() -> None:
    search = kernel_search()
    ordered = 0
    while drafts := search.drafts(16):
        ordered += len(drafts)
        assert ordered < 10_000
    assert ordered > 0


def test_same_seed_same_first_drafts() -> None:
    assert kernel_search(seed=3).drafts(8) == kernel_search(seed=3).drafts(8)
    assert kernel_search(seed=3).drafts(8) != kernel_search(seed=4).drafts(8)


def test_same_seed_same_trials() -> None:
    first, second = (search_on(kernel_search(), TASK, 25) for _ in range(2))
    assert [r.trial for r in first] == [r.trial for r in second]


def test_proposes_each_pair_once() -> None:
    trials = [r.trial for r in search_on(kernel_search(), TASK, 80)]
    assert len(trials) == 80
    assert len({trial.key for trial in trials}) == 80
    assert {trial.instance for trial in trials} <= {instance for instance, _ in TASK.shapes}
    assert {trial.rung for trial in trials} == {0}


def test_proposes_one_of_kernels_that_realise_to_the_same_program() -> None:
    search = kernel_search()
    drafts = search.drafts(40)
    search.absorb(replace(answered(draft, TASK), code_hash="same") for draft in drafts)
    proposed = search.propose(16)
    assert len({trial.candidate.key for trial in proposed}) == 1


def test_a_space_that_only_repeats_itself_is_exhausted() -> None:
    search = kernel_search()
    for _ in range(2000):
        if search.exhausted:
            return
        search.absorb(evaluated(draft, (8, 2, "rows"), TASK) for draft in search.drafts(16))
        search.observe([measured(trial) for trial in search.propose(16)])
    pytest.fail("never noticed")


def test_a_space_that_gives_nothing_valid_is_exhausted() -> None:
    search = kernel_search()
    for _ in range(2000):
        if search.exhausted:
            return
        search.absorb(Evaluated(draft, error="refused") for draft in search.drafts(16))
    pytest.fail("never noticed")


def test_a_small_space_ends_with_all_that_matters_measured() -> None:
    sizes = (5, 64)
    task = world_task(sizes=sizes)
    search = kernel_search(task, most=2)
    records = search_on(search, task, 5000)
    assert search.exhausted
    assert search.propose(4) == []
    found = {r.trial.candidate for r in records if r.latency_s is not None}
    assert best_pair_loss(found, sizes) <= 1.02 * least_loss(2, sizes)


def test_what_is_no_kernel_is_never_proposed() -> None:
    """A candidate without an estimate for each shape, such as a trace."""
    search = kernel_search()
    search.absorb(replace(answered(draft, TASK), on_shapes=None) for draft in search.drafts(16))
    assert search.propose(16) == []


@given(st.lists(st.integers(0, 60), max_size=50), st.integers(0, 3))
def test_any_interleaving_proposes_only_valid_pairs_once(script: list[int], seed: int) -> None:
    search = kernel_search(seed=seed)
    valid: set[str] = set()
    proposed: list[Trial] = []
    waiting: list[Evaluated] = []
    for step in script:
        for draft in search.drafts(step % 13):
            answer = answered(draft, TASK)
            if step % 5 and answer.candidate is not None:
                valid.add(answer.candidate.key)
            waiting.append(answer if step % 5 else Evaluated(draft, error="refused"))
        given_now, waiting = waiting[: step % 17], waiting[step % 17 :]
        search.absorb(given_now)
        proposed += search.propose(step % 4)
        if proposed and step % 2:
            search.observe([measured(proposed[-1])])
    keys = [trial.key for trial in proposed]
    assert len(keys) == len(set(keys))
    assert {trial.candidate.key for trial in proposed} <= valid


# What it does besides.


def test_drafts_are_for_shapes_of_the_task_and_heavy_ones_get_more() -> None:
    task = replace(TASK, shapes=((shape(5), 1.0), (shape(64), 9.0)))
    wanted = Counter(draft.instance for draft in kernel_search(task).drafts(40))
    assert set(wanted) == {shape(5), shape(64)}
    assert wanted[shape(64)] > 2 * wanted[shape(5)]


@pytest.mark.parametrize(
    ("sizes", "most", "least"),
    [((1, *range(64, 71)), 2, 2), ((5, 24, 43, 62, 81, 100, 119, 128), 4, 4)],
)
def test_each_shape_is_looked_at_though_others_promise_more(
    sizes: Sequence[int], most: int, least: int
) -> None:
    task = world_task(sizes=sizes)
    trials = [r.trial for r in search_on(kernel_search(task, seed=1, most=most), task, 64)]
    looks = Counter(trial.instance for trial in trials)
    assert min(looks[shape(size)] for size in sizes) >= least


def test_of_many_shapes_few_are_measured() -> None:
    task = world_task(sizes=range(1, 129))
    trials = [r.trial for r in search_on(kernel_search(task), task, 60)]
    assert len({trial.instance for trial in trials}) <= MEASURED_SHAPES


def test_nothing_is_proposed_while_there_is_no_choice_yet() -> None:
    search = kernel_search()
    first, *_ = search.drafts(16)
    search.absorb([answered(first, TASK)])
    assert search.propose(4) == []


def test_the_first_pair_waits_for_few_kernels_and_later_ones_for_a_choice() -> None:
    search = kernel_search()
    search.absorb(answered(draft, TASK) for draft in search.drafts(16)[:6])
    (first,) = search.propose(1)
    search.observe([measured(first)])
    assert len(search.propose(8)) < 3, "more are on order"
    assert len(filled(search).propose(8)) == 8


def test_a_kernel_of_each_space_is_tried_whatever_its_estimate() -> None:
    """On the shape that it should be least bad for; a space may be estimated wrongly as a whole."""
    search = kernel_search()
    answers = [answered(draft, TASK) for draft in search.drafts(16)]
    best = answers[0]
    assert best.candidate is not None
    hopeless = tuple(100.0 + place for place in range(len(SIZES) - 1))
    other = replace(
        best,
        candidate=replace(best.candidate, payload="[]", space="other"),
        code_hash="other",
        on_shapes=OnShapes((*hopeless, 1e-3), "rows"),
    )
    search.absorb([*answers[1:], other])
    first, second = search.propose(2)
    assert first.candidate.space == "test"
    assert (second.candidate.space, second.instance) == ("other", shape(SIZES[-1]))
    assert all(trial.candidate.space == "test" for trial in search.propose(8))


def test_a_space_that_was_bad_once_is_tried_on_other_shapes_where_it_promises_something() -> None:
    """One trial may have been on the only shape where a space is bad."""
    search = kernel_search()
    answers = [answered(draft, TASK) for draft in search.drafts(40)]
    search.absorb(in_space(a, "other" if n % 2 else "test") for n, a in enumerate(answers))
    tried: list[Trial] = []
    for _ in range(20):
        (trial,) = search.propose(1)
        tried.append(trial)
        record = measured(trial)
        slow = tuple(10 * s for s in record.measurement.samples_s)
        bad = replace(record, measurement=replace(record.measurement, samples_s=slow))
        search.observe([bad if trial.candidate.space == "other" else record])
    others = [trial.instance for trial in tried if trial.candidate.space == "other"]
    assert len(set(others)) == len(others) == 4


def test_a_space_is_not_given_up_for_one_kernel_that_only_promises() -> None:
    """One that should be the best of its space on every shape, and is bad on all of them."""
    search = kernel_search()
    answers = [answered(draft, TASK) for draft in search.drafts(40)]
    others = [in_space(answer, "other") for answer in answers[1::2]]
    estimates_s = [answer.on_shapes.costs_s for answer in others if answer.on_shapes]
    least = tuple(0.99 * min(of_shape) for of_shape in zip(*estimates_s, strict=True))
    promising = replace(others[0], on_shapes=OnShapes(least, "rows"))
    search.absorb([*answers[::2], promising, *others[1:]])
    tried = []
    for _ in range(20):
        (trial,) = search.propose(1)
        record = measured(trial)
        bad = tuple(20 * s for s in record.measurement.samples_s)
        failing = trial.candidate == promising.candidate
        slow = replace(record, measurement=replace(record.measurement, samples_s=bad))
        search.observe([slow if failing else record])
        tried.append(trial.candidate)
    assert promising.candidate in tried
    assert len({candidate for candidate in tried if candidate.space == "other"}) > 1


def test_each_way_to_pack_weights_is_tried_before_one_is_settled_for() -> None:
    """A set of kernels is one layout's: a kernel of another, later, has all of it to beat."""
    search = kernel_search()
    answers = [answered(draft, TASK) for draft in search.drafts(40)]
    search.absorb(with_costs(a, 0.9 if layout_of(a) == "columns" else 1.0) for a in answers)
    tried = []
    for _ in range(3):
        (trial,) = search.propose(1)
        search.observe([measured(trial)])
        tried.append(setting_of(trial.candidate)[2])
    assert "rows" in tried


def layout_of(answer: Evaluated) -> str:
    return answer.on_shapes.layout if answer.on_shapes else ""


def with_costs(answer: Evaluated, times: float) -> Evaluated:
    """What is predicted of it is so many times as much."""
    assert answer.on_shapes is not None
    costs_s = tuple(times * cost_s for cost_s in answer.on_shapes.costs_s)
    return replace(answer, on_shapes=replace(answer.on_shapes, costs_s=costs_s))


def in_space(answer: Evaluated, space: str) -> Evaluated:
    assert answer.candidate is not None
    moved = replace(answer.candidate, space=space)
    return replace(answer, candidate=moved, code_hash=f"{answer.code_hash} {space}")


def test_those_who_could_be_better_are_timed_again_with_the_chosen() -> None:
    """Where one kernel is best for all shapes, the next ones after it."""
    search = kernel_search(most=1)
    search_on(search, TASK, 60)
    shapes_of = Counter(candidate for candidate, _ in search.finalists())
    whole = [candidate for candidate, count in shapes_of.items() if count == len(SIZES)]
    assert len(whole) == 1 + KernelSearchSettings().spare


def test_a_kernel_in_flight_waits_before_another_shape_is_tried() -> None:
    """It may not run at all."""
    search = filled(kernel_search())
    proposed = search.propose(12)
    assert len({trial.candidate.key for trial in proposed}) == len(proposed) == 12


@pytest.mark.parametrize("status", [Status.RUN_FAILED, Status.WRONG, Status.TIMEOUT])
def test_a_kernel_that_failed_is_never_proposed_again(status: Status) -> None:
    search = filled(kernel_search())
    victims: set[str] = set()
    for n in range(60):
        search.absorb(answered(draft, TASK) for draft in search.drafts(8))
        for trial in search.propose(1):
            assert trial.candidate.key not in victims
            if n % 4 == 0:
                victims.add(trial.candidate.key)
                search.observe([failed(trial, status)])
            else:
                search.observe([measured(trial)])
    assert victims
    assert not victims & {candidate.key for candidate, _ in search.finalists()}


def test_a_pair_that_was_lost_says_nothing_of_its_kernel() -> None:
    """The machines lost it: what is known of the kernel stays, and other pairs are tried."""
    search = filled(kernel_search())
    (first,) = search.propose(1)
    search.observe([measured(first)])
    other = replace(first, instance=shape(1 if first.instance != shape(1) else 128))
    search.observe([failed(other, Status.LOST)])
    assert first.candidate in {candidate for candidate, _ in search.finalists()}
    assert other.key not in {r.trial.key for r in search_on(search, TASK, 60)}


def test_parents_are_kernels_that_were_measured() -> None:
    search = KernelSearch(TASK, 3, 2, KernelSearchSettings(pool_size=120))
    tried = {r.trial.candidate.key for r in search_on(search, TASK, 20)}
    drafts = search.drafts(100)
    parents = [draft.parent for draft in drafts if draft.parent is not None]
    assert len(parents) > len(drafts) / 2
    assert {parent.key for parent in parents} <= tried
    assert not any(breaks(setting_of(parent)) for parent in parents)


def test_finalists_are_all_pairs_of_chosen_kernels_and_measured_shapes() -> None:
    search = KernelSearch(TASK, 3, 2, KernelSearchSettings(spare=0))
    search_on(search, TASK, 40)
    found = search.finalists()
    kernels = {candidate for candidate, _ in found}
    assert len(kernels) == 2
    assert Counter(found) == Counter((c, shape(size)) for c in kernels for size in SIZES)


def test_finalists_of_the_set_have_all_shapes_and_rivals_those_where_they_could_win() -> None:
    search = kernel_search(most=2)
    assert isinstance(search, ChoosesFinalists)
    assert search.finalists() == []
    search_on(search, TASK, 40)
    found = search.finalists()
    kernels = {candidate for candidate, _ in found}
    together = Counter(instance for _, instance in found).values()
    assert 2 <= min(together) <= max(together) <= 2 + KernelSearchSettings().spare + 1
    assert len({setting_of(candidate)[2] for candidate in kernels}) == 1, "layouts are mixed"
    assert max(Counter(found).values()) == 1
    shapes_of = Counter(candidate for candidate, _ in found)
    whole = [candidate for candidate, count in shapes_of.items() if count == len(SIZES)]
    assert len(whole) >= 2
    shapes = [instance for _, instance in found]
    runs = [instance for n, instance in enumerate(shapes) if shapes[:n][-1:] != [instance]]
    assert len(runs) == len(set(runs)), "those of one shape are not together"


@pytest.mark.parametrize("seed", range(3))
def test_a_finalist_is_as_fast_as_any_on_the_smallest_shape(seed: int) -> None:
    """Though that hardly weighs anything, and so decides nothing else."""
    shapes = tuple((shape(size), 1e-3 if size < 5 else 1.0) for size in SIZES)
    task = replace(TASK, shapes=shapes)
    search = KernelSearch(task, seed, 1)
    records = [r for r in search_on(search, task, 40) if r.latency_s is not None]
    pairs = search.finalists()
    finalists = {setting_of(candidate) for candidate, _ in pairs}
    (layout,) = {setting[2] for setting in finalists}
    tried = {setting_of(r.trial.candidate) for r in records}
    least_s = min(latency_s(s, 1) for s in tried if s[2] == layout and not breaks(s))
    assert min(latency_s(s, 1) for s in finalists) <= 1.1 * least_s
    together = Counter(instance for _, instance in pairs).values()
    assert max(together) <= 1 + KernelSearchSettings().spare + 1


def test_what_seems_as_good_on_one_shape_is_timed_again_there() -> None:
    """Though it would gain next to nothing of the whole."""
    search = KernelSearch(TASK, 3, 1)
    first, *others = [setting for setting in SETTINGS if setting[2] == "rows" and setting[1] == 2]
    tried = [first, *others]
    search.absorb(
        evaluated(draft, s, TASK) for draft, s in zip(search.drafts(16), tried, strict=False)
    )
    for place, setting in enumerate(tried):
        for size in SIZES:
            seconds = 1e-6 * size * (1.0 if place == 0 else 1.02 if size == 5 else 1.5)
            trial = Trial(TASK.key, kernel_candidate(setting), shape(size))
            search.observe([Record(trial, Measurement(Status.OK, (seconds,) * 3))])
    found = search.finalists()
    again = {instance for candidate, instance in found if setting_of(candidate) != first}
    assert shape(5) in again
    assert len(again) == 1


@pytest.mark.parametrize("seed", range(4))
def test_few_trials_find_a_set_nearly_as_good_as_the_best_of_all(seed: int) -> None:
    """118 kernels that run on 10 shapes are more than a thousand pairs."""
    search = kernel_search(seed=seed, most=2)
    search_on(search, TASK, 60)
    found = {candidate for candidate, _ in search.finalists()}
    assert best_pair_loss(found, SIZES) <= 1.1 * least_loss(2)


# From records alone.


def resumed(records: list[Record]) -> KernelSearch:
    search = kernel_search(seed=8)
    search.observe(records)
    return search


def test_half_of_the_trials_need_no_new_build() -> None:
    searches = [search_on(kernel_search(seed=seed), TASK, 80) for seed in range(4)]
    kernels = sum(len({record.trial.candidate.key for record in found}) for found in searches)
    assert kernels <= sum(map(len, searches)) / 2


def test_a_search_that_goes_on_asks_what_it_does_not_know_of_its_kernels() -> None:
    records = search_on(kernel_search(), TASK, 30)
    search = resumed(records)
    kernels = {r.trial.candidate for r in records}
    drafts = search.drafts(len(kernels) + 4)
    told = [draft for draft in drafts if draft.describe]
    assert drafts[: len(told)] == told
    assert Counter(draft.parent for draft in told) == Counter(kernels)
    assert not any(draft.describe for draft in search.drafts(50))


def test_a_search_that_goes_on_is_not_exhausted_while_it_asks() -> None:
    search = resumed(search_on(kernel_search(), TASK, 30))
    assert not search.exhausted
    search.drafts(1000)
    assert not search.exhausted


def test_a_search_that_goes_on_has_the_same_finalists() -> None:
    before = kernel_search()
    records = search_on(before, TASK, 30)
    search = resumed(records)
    search.absorb(answered(draft, TASK) for draft in search.drafts(1000))
    assert Counter(search.finalists()) == Counter(before.finalists())


def test_a_search_that_goes_on_proposes_no_pair_again_and_no_failed_kernel() -> None:
    records = search_on(kernel_search(), TASK, 40)
    bad = {r.trial.candidate.key for r in records if r.latency_s is None}
    after = search_on(resumed(records), TASK, 40)
    assert len(after) == 40
    assert not {r.trial.key for r in records} & {r.trial.key for r in after}
    assert not bad & {r.trial.candidate.key for r in after}


def test_a_kernel_that_can_no_longer_be_described_is_left_alone() -> None:
    records = search_on(kernel_search(), TASK, 10)
    search = resumed(records)
    search.absorb(
        Evaluated(draft, error="refused") if draft.describe else answered(draft, TASK)
        for draft in search.drafts(1000)
    )
    assert search.finalists() == []
    known = {r.trial.candidate.key for r in records}
    assert not known & {trial.candidate.key for trial in search.propose(8)}
