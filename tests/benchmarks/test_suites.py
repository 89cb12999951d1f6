"""Programs by name and arguments, and the fixed lists of them."""

from __future__ import annotations

import math

import pytest

from benchmarks.suites import SUITES, defaults, gemm_shape, parsed, suite, workload
from tuner.errors import UsageError


def test_arguments_that_are_not_given_have_their_defaults() -> None:
    chosen = parsed("gemm", ["n=33"])
    assert dict(chosen.args) == {"m": 512, "n": 33, "k": 512, "constant": 0}
    assert chosen.label == "gemm n=33"


def test_a_program_is_named_to_the_tuner_as_a_file_and_a_function() -> None:
    source, *args = workload("softmax", [("rows", 4)]).command_line()
    assert source.endswith("benchmarks/workloads.py:softmax")
    assert args == ["--arg=rows=4", "--arg=cols=128"]


@pytest.mark.parametrize(
    ("name", "args", "said"),
    [
        ("gem", [], "no such workload"),
        ("_program", [], "no such workload"),
        ("gemm", ["q=3"], "gemm takes m, n, k, constant"),
        ("gemm", ["m=3.5"], "whole number"),
        ("gemm", ["m=x"], "whole number"),
        ("gemm", ["m=-1"], "whole number"),
        ("gemm", ["m"], "m"),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(name: str, args: list[str], said: str) -> None:
    with pytest.raises(UsageError, match=said) as refused:
        parsed(name, args)
    assert "\n" not in str(refused.value)


def test_a_shape_of_three_is_a_product_and_of_four_a_batch() -> None:
    assert gemm_shape("64,32,16") == workload("gemm", [("m", 64), ("n", 32), ("k", 16)])
    batch = gemm_shape("3,64,32,16,tb")
    assert batch.name == "batch_gemm"
    assert dict(batch.args) == {
        "b": 3,
        "m": 64,
        "n": 32,
        "k": 16,
        "transpose_a": 0,
        "transpose_b": 1,
    }


@pytest.mark.parametrize("text", ["", "1,2", "1,2,3,4,5", "a,b,c", "64,0,64", "64,64,64,tb", "tb"])
def test_any_other_shape_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="give m,n,k"):
        gemm_shape(text)


def test_every_suite_names_programs_that_exist_once_each() -> None:
    for name in SUITES:
        chosen = suite(name)
        assert len(set(chosen)) == len(chosen) >= 3
    with pytest.raises(UsageError, match="geomean"):
        suite("nothing")


def test_the_blas_suite_has_ten_products_from_64_to_2048_odd_ones_included() -> None:
    products = [dict(w.args) for w in suite("blas") if w.name == "gemm"]
    sizes = [args[key] for args in products for key in "mnk"]
    assert len(products) == 10
    assert (min(sizes), max(sizes)) == (64, 2048)
    assert sum(any(args[key] % 2 for key in "mnk") for args in products) >= 3


def test_no_suite_asks_for_more_memory_than_a_small_machine_has() -> None:
    for name in SUITES:
        for chosen in suite(name):
            args = dict(chosen.args)
            sides = [args[key] for key in ("rows", "cols") if key in args]
            assert math.prod(sides) <= 64 << 20
    assert defaults("gemm_int8")["k"] == 512
