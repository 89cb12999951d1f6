"""The choice of layouts: gains of convolutions against bytes moved for conversions."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spaces.lowering.layouts.gains import CPU
from spaces.lowering.layouts.layout_choice import Node, choose_layouts

FIRST, LAST = False, True
BIG = 10_000
"""A gain that no conversion outweighs."""


def source(result_bytes: int = 100) -> Node:
    return Node((), result_bytes, fixed=True)


def sink(*inputs: int) -> Node:
    return Node(inputs, fixed=True)


def test_a_convolution_that_gains_more_than_conversions_cost_is_moved() -> None:
    graph = [source(), Node((0,), 100, gain_bytes=401), sink(1)]
    assert choose_layouts(graph) == [FIRST, LAST, FIRST]


def test_a_convolution_that_gains_less_stays() -> None:
    graph = [source(), Node((0,), 100, gain_bytes=399), sink(1)]
    assert choose_layouts(graph) == [FIRST, FIRST, FIRST]


def test_what_lies_between_convolutions_goes_with_them() -> None:
    graph = [source(), Node((0,), 100, BIG), Node((1,), 100), Node((2,), 100, BIG), sink(3)]
    assert choose_layouts(graph) == [FIRST, LAST, LAST, LAST, FIRST]


def test_what_cannot_be_moved_stays_between_convolutions() -> None:
    graph = [source(), Node((0,), 9, BIG), Node((1,), 9, fixed=True), Node((2,), 9, BIG), sink(3)]
    assert choose_layouts(graph) == [FIRST, LAST, FIRST, LAST, FIRST]


def test_small_gains_around_a_fixed_operation_do_not_pay_for_two_conversions() -> None:
    small = 250
    chain = [source(), Node((0,), 100, small), Node((1,), 100, fixed=True), Node((2,), 100, small)]
    assert choose_layouts([*chain, sink(3)]) == [FIRST] * 5


def test_a_chain_ends_where_its_values_are_smallest() -> None:
    graph = [source(10), Node((0,), 100), Node((1,), 100, BIG), Node((2,), 50), Node((3,), 100)]
    graph.append(sink(4))
    assert choose_layouts(graph) == [FIRST, LAST, LAST, LAST, FIRST, FIRST]


def test_of_equal_choices_what_follows_a_convolution_is_moved_with_it() -> None:
    graph = [source(), Node((0,), 100, BIG), Node((1,), 100), Node((2,), 100), sink(3)]
    assert choose_layouts(graph) == [FIRST, LAST, LAST, LAST, FIRST]


def test_a_value_is_converted_once_for_all_its_readers() -> None:
    gain = 60  # three of them outweigh one conversion of 200 bytes less what follows, not three
    graph = [source(80), *(Node((0,), 0, gain) for _ in range(3)), sink(1, 2, 3)]
    assert choose_layouts(graph) == [FIRST, LAST, LAST, LAST, FIRST]
    assert choose_layouts([source(80), Node((0,), 0, gain), sink(1)]) == [FIRST] * 3


def test_a_tied_operation_follows_its_input() -> None:
    graph = [source(), Node((0,), 1 << 50), Node((1,), 5, BIG, tied=True), sink(2)]
    assert choose_layouts(graph) == [FIRST, LAST, LAST, FIRST]
    unmoved = [source(), Node((0,), 1 << 50, fixed=True), Node((1,), 5, BIG, tied=True), sink(2)]
    assert choose_layouts(unmoved) == [FIRST] * 4


@pytest.mark.parametrize(("flops", "gain"), [(0, 0), (1000, 250)])
def test_the_gain_of_a_convolution_follows_its_work(flops: int, gain: int) -> None:
    assert CPU.of_convolution(flops, "float32") == gain


def cost(nodes: list[Node], choice: tuple[bool, ...]) -> int:
    """What a choice costs, counted plainly; a forbidden one, more than any other."""
    total = 0
    for number, (node, last) in enumerate(zip(nodes, choice, strict=True)):
        total += 0 if last else node.gain_bytes
        total += 10**9 if node.fixed and last else 0
        readers = [i for i, other in enumerate(nodes) if number in other.inputs]
        if any(choice[reader] != last for reader in readers):
            total += 2 * node.result_bytes
    return total


@st.composite
def graphs(draw: st.DrawFn) -> list[Node]:
    nodes = [source(draw(st.integers(0, 20)))]
    for number in range(1, draw(st.integers(2, 7))):
        inputs = draw(st.sets(st.integers(0, number - 1), min_size=1, max_size=2))
        size, gain = draw(st.integers(0, 20)), draw(st.integers(0, 60))
        nodes.append(Node(tuple(inputs), size, gain, fixed=draw(st.integers(0, 4)) == 0))
    return nodes


@given(graphs())
@settings(max_examples=200, deadline=None)
def test_no_other_choice_costs_less(nodes: list[Node]) -> None:
    chosen = cost(nodes, tuple(choose_layouts(nodes)))
    assert chosen == min(cost(nodes, c) for c in product((FIRST, LAST), repeat=len(nodes)))
