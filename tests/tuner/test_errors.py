"""An error in one line, for people."""

from __future__ import annotations

import pytest

from tuner.errors import TunerError, describe_error, first_line


@pytest.mark.parametrize(
    ("text", "first", "named"),
    [
        ("no device", "no device", "TunerError: no device"),
        ("\n  no device \n more", "no device", "TunerError: no device"),
        (" \n", "TunerError", "TunerError"),
        ("", "TunerError", "TunerError"),
        ("x" * 999, "x" * 200, "TunerError: " + "x" * 200),
    ],
)
def test_the_first_line_that_says_something(text: str, first: str, named: str) -> None:
    assert first_line(TunerError(text)) == first
    assert describe_error(TunerError(text)) == named
