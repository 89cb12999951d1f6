"""Candidates as data: what they are known by, and what older files call them."""

from __future__ import annotations

import json
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
    specialised_for,
)

KNOBS = {"rows": 6, "lanes": 16, "unroll": 0}
TRACE = json.dumps(
    [
        [
            ["GetSBlock", [], ["C", "main"], ["b0"]],
            ["Annotate", ["b0", '"lanes=16 rows=6 unroll=0"'], ["tuner.knobs"], []],
            ["Unannotate", ["b0"], ["tuner.knobs"], []],
        ],
        [],
    ]
)
"""As a template's point was recorded before points were settings."""
RECORDED = Candidate(CandidateKind.TRACE, TRACE, "kernel:product-1")
NAMES = st.text("abc_", min_size=1, max_size=4)


@given(st.dictionaries(NAMES, st.integers(-(2**40), 2**40), max_size=6))
def test_settings_are_canonical_and_come_back(knobs: dict[str, int]) -> None:
    candidate = of_knobs(knobs, "kernel:a")
    shuffled = dict(reversed(list(knobs.items())))
    assert of_knobs(shuffled, "kernel:a") == candidate
    assert knobs_of(candidate) == knobs


def test_settings_belong_to_their_space_and_traces_to_none() -> None:
    assert of_knobs(KNOBS, "kernel:a").key != of_knobs(KNOBS, "kernel:b").key
    assert RECORDED.key == replace(RECORDED, space="kernel:product-2").key


def test_a_recorded_trace_is_known_by_its_settings_as_well() -> None:
    assert knobs_of(RECORDED) == KNOBS
    assert RECORDED.keys == (RECORDED.key, of_knobs(KNOBS, "kernel:product-1").key)
    of_rules = Candidate(CandidateKind.TRACE, "[[],[]]", "rules:llvm")
    assert knobs_of(of_rules) is None
    assert of_rules.keys == (of_rules.key,)


def test_a_candidate_is_the_same_once_it_is_written() -> None:
    candidate = of_knobs(KNOBS, "kernel:product-1")
    written = replace(candidate, trace=TRACE)
    assert written == candidate
    assert (written.key, written.keys) == (candidate.key, candidate.keys)


@pytest.mark.parametrize(
    "kernel", [RECORDED, replace(of_knobs(KNOBS, "kernel:a"), trace=TRACE), of_knobs({}, "b")]
)
def test_a_copy_for_one_shape_names_its_kernel(kernel: Candidate) -> None:
    copy = specialised_for(kernel, (("n", 4), ("m", 7)))
    assert generic_of(copy) == (kernel, (("n", 4), ("m", 7)))
    assert generic_of(copy)[0].trace == kernel.trace
    assert copy.key != kernel.key


def test_keys_of_stored_candidates_never_change() -> None:
    """They are in the files of every run there is."""
    keys = [c.key for c in (RECORDED, specialised_for(RECORDED, (("n", 4),)))]
    assert keys == ["d2f7c5767c6ba6e0", "f048f75f198473c0"]
    assert of_knobs(KNOBS, "kernel:product-1").key == "62485b3f4760477f"
