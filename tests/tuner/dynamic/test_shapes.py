"""The shapes a dynamic program is tuned for: all combinations, weighed, and a few that stand for
them."""

from __future__ import annotations

import json
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.dynamic.shapes import (
    NO_DOMAIN,
    Domain,
    joint,
    merge_shapes,
    read_weights,
    sample_shapes,
    shape_text,
)
from tuner.errors import UsageError
from tuner.task import Instance, Shapes

DIMS = (("T", (5, 24)), ("B", (1, 8)))


def at(b: int, t: int) -> Instance:
    return (("B", b), ("T", t))


def line(*sizes: int) -> Shapes:
    return tuple(((("T", size),), 1.0) for size in sizes)


# All combinations.


def test_combinations_are_in_the_order_of_their_values_with_names_sorted() -> None:
    assert joint(DIMS) == ((at(1, 5), 1.0), (at(1, 24), 1.0), (at(8, 5), 1.0), (at(8, 24), 1.0))


def test_no_dimension_has_no_shapes() -> None:
    assert joint(()) == ()
    assert NO_DOMAIN.shapes() == ()
    assert NO_DOMAIN.largest == {}


def test_only_shapes_with_a_weight_occur_where_weights_are_given() -> None:
    weights = {at(8, 24): 0.5, at(1, 5): 2.0}
    assert joint(DIMS, weights) == ((at(1, 5), 2.0), (at(8, 24), 0.5))


def test_a_weight_of_a_shape_that_no_dimension_has_is_refused() -> None:
    with pytest.raises(UsageError, match=r"--weights: no --dim has B=2, T=5"):
        joint(DIMS, {at(2, 5): 1.0})


def test_too_many_combinations_are_refused_before_they_are_made() -> None:
    values = tuple(range(1, 2000))
    with pytest.raises(UsageError, match=r"M and N have too many combinations.* larger step"):
        joint((("M", values), ("N", values)))


def test_a_domain_has_the_largest_value_of_each_dimension() -> None:
    domain = Domain(DIMS, {at(1, 24): 3.0})
    assert domain.largest == {"T": 24, "B": 8}
    assert domain.shapes() == ((at(1, 24), 3.0),)


def test_equal_shapes_are_merged_with_the_sum_of_their_weights() -> None:
    assert merge_shapes(line(9, 5, 9)) == (((("T", 5),), 1.0), ((("T", 9),), 2.0))
    assert merge_shapes(()) == ()


def test_a_shape_is_written_as_people_read_it() -> None:
    assert shape_text(at(1, 5)) == "B=1, T=5"
    assert shape_text(()) == "static"


# Weights.


def test_weights_of_one_dimension_are_an_object() -> None:
    text = '{"24": 1, "5": 0.25}'
    assert read_weights(text, ["T"]) == {(("T", 24),): 1.0, (("T", 5),): 0.25}


def test_weights_of_any_number_of_dimensions_are_a_list() -> None:
    text = '[{"T": 5, "B": 1, "weight": 0.5}, {"B": 8, "T": "24", "weight": 2}]'
    assert read_weights(text, ["T", "B"]) == {at(1, 5): 0.5, at(8, 24): 2.0}
    assert read_weights('[{"T": 5, "weight": 2}]', ["T"]) == {(("T", 5),): 2.0}


@pytest.mark.parametrize(
    ("text", "names", "said"),
    [
        ("", ["T"], "not JSON"),
        ("{", ["T"], "not JSON"),
        ("[" * 100_000, ["T"], "not JSON"),
        ("3", ["T"], "write {"),
        ("null", ["T"], "write {"),
        ('"T=5"', ["T"], "write {"),
        ("[]", ["T"], "write {"),
        ("{}", ["T"], "write {"),
        ("[5, 24]", ["T"], "write {"),
        ('[{"T": 5, "weight": 1}, 24]', ["T"], "write {"),
        ('{"5": 1}', ["T", "B"], '{"T": 5, "weight": 0.2}'),
        ('{"5": 1}', [], "write {"),
        ('[{"T": 5}]', ["T"], '{"T": 5} must have T, weight and nothing else'),
        ('[{"weight": 1}]', ["T"], "must have T, weight"),
        ('[{"T": 5, "weight": 1}]', ["T", "B"], "must have T, B, weight"),
        ('[{"T": 5, "S": 1, "weight": 1}]', ["T"], "nothing else"),
        ('{"5": 0}', ["T"], "'0' is no weight: it must be above 0"),
        ('{"5": -1}', ["T"], "'-1' is no weight"),
        ('{"5": true}', ["T"], "'True' is no weight"),
        ('{"5": "1"}', ["T"], "'1' is no weight"),
        ('{"5": null}', ["T"], "'None' is no weight"),
        ('{"5": [1]}', ["T"], "'[1]' is no weight"),
        ('{"5": NaN}', ["T"], "'nan' is no weight"),
        ('{"5": Infinity}', ["T"], "'inf' is no weight"),
        ('{"5": 1e999}', ["T"], "'inf' is no weight"),
        ('{"five": 1}', ["T"], "'five' is no size of T"),
        ('{"": 1}', ["T"], "'' is no size of T"),
        ('{"5.5": 1}', ["T"], "'5.5' is no size of T"),
        ('[{"T": 5.5, "weight": 1}]', ["T"], "'5.5' is no size of T"),
        ('[{"T": true, "weight": 1}]', ["T"], "'True' is no size of T"),
        ('[{"T": null, "weight": 1}]', ["T"], "'None' is no size of T"),
        ('[{"T": 5, "weight": 1}, {"T": 5, "weight": 2}]', ["T"], "T=5 is given twice"),
        ('[{"T": 5, "weight": 1}, {"T": "5", "weight": 1}]', ["T"], "T=5 is given twice"),
    ],
)
def test_bad_weights_get_one_clear_line(text: str, names: list[str], said: str) -> None:
    with pytest.raises(UsageError) as caught:
        read_weights(text, names)
    assert str(caught.value).startswith("--weights: ")
    assert said in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1


_json = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.floats() | st.text(max_size=4),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["T", "B", "weight", "5"]), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(_json, st.sampled_from([["T"], ["T", "B"]]))
def test_any_json_is_read_or_refused(value: object, names: list[str]) -> None:
    try:
        found = read_weights(json.dumps(value), names)
    except UsageError:
        return
    assert all([n for n, _ in instance] == sorted(names) for instance in found)
    assert all(weight > 0 for weight in found.values())


# A few that stand for all.


def test_few_shapes_are_kept_as_they_are() -> None:
    shapes = line(1, 2, 3)
    assert sample_shapes(shapes, 3) == shapes
    assert sample_shapes((), 3) == ()


def test_two_of_a_range_are_its_ends_and_the_larger_stands_for_more() -> None:
    """Where size 28 is nearer to 100 than to 1."""
    assert sample_shapes(line(*range(1, 101)), 2) == (((("T", 1),), 28.0), ((("T", 100),), 72.0))


def test_one_of_many_is_the_largest() -> None:
    assert sample_shapes(line(*range(1, 9)), 1) == (((("T", 8),), 8.0),)


def test_a_sample_of_a_range_has_no_large_gaps() -> None:
    kept = [instance[0][1] for instance, _ in sample_shapes(line(*range(1, 129)), 16)]
    assert max(after - before for before, after in pairwise(kept)) <= 16


def test_a_sample_of_a_range_has_small_sizes_closer_together() -> None:
    """What is best for 1 is not for 9, while 120 and 128 are much the same."""
    kept = [instance[0][1] for instance, _ in sample_shapes(line(*range(1, 129)), 16)]
    assert max(after / before for before, after in pairwise(kept)) <= 3
    assert sum(size < 10 for size in kept) >= 3


def test_a_sample_of_two_dimensions_has_all_corners() -> None:
    values = tuple(range(1, 33))
    kept = {instance for instance, _ in sample_shapes(joint((("M", values), ("N", values))), 16)}
    assert {(("M", m), ("N", n)) for m in (1, 32) for n in (1, 32)} <= kept


_shapes = st.dictionaries(
    st.tuples(st.integers(1, 64), st.integers(1, 64)).map(lambda v: at(*v)),
    st.floats(1e-3, 1e3),
    min_size=1,
    max_size=60,
).map(lambda found: tuple(sorted(found.items())))


@given(_shapes, st.integers(1, 20))
def test_a_sample_stands_for_all_shapes(shapes: Shapes, most: int) -> None:
    kept = sample_shapes(shapes, most)
    instances = [instance for instance, _ in shapes]
    places = [instances.index(instance) for instance, _ in kept]
    assert len(kept) == min(most, len(shapes))
    assert places == sorted(set(places)), "in another order, or one of them twice"
    assert places[-1] == len(shapes) - 1
    assert sum(w for _, w in kept) == pytest.approx(sum(w for _, w in shapes))
    given_weights = dict(shapes)
    assert all(weight >= given_weights[instance] for instance, weight in kept)
