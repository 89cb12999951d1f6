"""What a property test draws does not depend on what else was imported."""

from __future__ import annotations

from hypothesis.internal.conjecture.providers import HypothesisProvider


def test_no_constants_of_modules_that_other_tests_import_are_drawn() -> None:
    assert len(HypothesisProvider(None)._local_constants) == 0
