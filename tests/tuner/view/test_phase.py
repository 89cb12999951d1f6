"""How far a session is."""

from __future__ import annotations

from tuner.view.phase import Phase


def test_the_one_that_is_furthest_behind() -> None:
    assert Phase.least([Phase.DONE, Phase.ENDING, Phase.FINALISTS]) is Phase.ENDING


def test_it_is_its_text_where_it_is_stored_or_shown() -> None:
    assert f"{Phase.SEARCH}" == Phase("search") == "search"
