"""Candidates as data: what they are known by, and what older files call them."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.candidate import (
    Candidate,
    CandidateKind,
    generic_of,
    knobs_of,
    of_knobs,
    specialise_for,
)

KNOBS = {"rows": 6, "lanes": 16, "unroll": 0}
TRACE = '[[["GetSBlock",[],["C","main"],["b0"]]],[]]'
WRITTEN = Candidate(CandidateKind.TRACE, TRACE, "rules:llvm")
NAMES = st.text("abc_", min_size=1, max_size=4)


@given(st.dictionaries(NAMES, st.integers(-(2**40), 2**40), max_size=6))
def test_settings_are_canonical_and_come_back(knobs: dict[str, int]) -> None:
    candidate = of_knobs(knobs, "kernel:a")
    shuffled = dict(reversed(list(knobs.items())))
    assert of_knobs(shuffled, "kernel:a") == candidate
    assert knobs_of(candidate) == knobs


def test_settings_belong_to_their_space_and_traces_to_none() -> None:
    assert of_knobs(KNOBS, "kernel:a").key != of_knobs(KNOBS, "kernel:b").key
    assert WRITTEN.key == replace(WRITTEN, space="rules:cuda").key
    assert knobs_of(WRITTEN) is None


def test_a_candidate_is_the_same_once_it_is_written() -> None:
    candidate = of_knobs(KNOBS, "kernel:product-1")
    written = replace(candidate, trace=TRACE)
    assert written == candidate
    assert written.key == candidate.key


@pytest.mark.parametrize(
    "kernel", [WRITTEN, replace(of_knobs(KNOBS, "kernel:a"), trace=TRACE), of_knobs({}, "b")]
)
def test_a_copy_for_one_shape_names_its_kernel(kernel: Candidate) -> None:
    copy = specialise_for(kernel, (("n", 4), ("m", 7)))
    assert generic_of(copy) == (kernel, (("n", 4), ("m", 7)))
    assert generic_of(copy)[0].trace == kernel.trace
    assert copy.key != kernel.key


def test_keys_of_stored_candidates_never_change() -> None:
    """They are in the files of every run there is."""
    keys = [c.key for c in (WRITTEN, specialise_for(WRITTEN, (("n", 4),)))]
    assert keys == ["7ea6debeb7e70745", "85255dc4976a2110"]
    assert of_knobs(KNOBS, "kernel:product-1").key == "62485b3f4760477f"
