"""Numbers of things, in words."""

from __future__ import annotations

from tuner.view.words import all_of, amount


def test_one_is_singular_and_all_else_plural() -> None:
    assert [amount(n, "trial") for n in (0, 1, 2)] == ["0 trials", "1 trial", "2 trials"]


def test_all_of_one_is_the_only_one() -> None:
    assert [all_of(n, "kernel") for n in (1, 3)] == ["the only kernel", "all 3 kernels"]
