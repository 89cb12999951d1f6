"""The search of a run, found while it may just be going."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from cluster.search import client, looks
from cluster.search.client import answering_search, search_at_work, watch_search
from cluster.search.job import SearchState
from tuner.errors import TunerError
from tuner.run_location import RunLocation

pytestmark = pytest.mark.ray

RUN = RunLocation.of("run")
AT_WORK, ENDED = SearchState(None), SearchState(None, "trials")

Listed = Callable[..., None]


@pytest.fixture
def listed(monkeypatch: pytest.MonkeyPatch) -> Listed:
    """Says what each question finds: no search, one that answers, or one that is dead."""

    def say(*answers: SearchState | TunerError | None) -> None:
        left, asked = list(answers), []

        def find(run: RunLocation) -> Any:
            asked.append(left.pop(0))
            return asked[-1]

        def state(actor: Any) -> SearchState:
            if isinstance(actor, TunerError):
                raise actor
            assert isinstance(actor, SearchState)
            return actor

        monkeypatch.setattr(client, "_WATCH_S", 0.0)
        monkeypatch.setattr(client, "find_search", find)
        monkeypatch.setattr(client, "_state", state)

    return say


def test_one_that_answers_is_found_with_its_answer(listed: Listed) -> None:
    listed(ENDED)
    assert answering_search(RUN) == (ENDED, ENDED)


def test_one_that_dies_between_the_list_and_the_question_is_none(listed: Listed) -> None:
    listed(TunerError("gone"), TunerError("gone"), None)
    assert answering_search(RUN) is None


def test_one_that_stays_on_the_list_without_an_answer_is_an_error(
    listed: Listed, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed(TunerError("gone"))
    monkeypatch.setattr(client, "_GONE_S", -1.0)
    with pytest.raises(TunerError, match="gone"):
        answering_search(RUN)


def test_the_runs_beside_one_are_those_that_measure_on_its_devices(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def at(run: str, ended: str = "") -> SearchState:
        return SearchState(None, ended, run=run)

    found = {
        "search-1@cuda": at("mine"),
        "search-2@cuda-nvidia-h200": at("theirs"),
        "search-3@cpu": at("elsewhere"),
        "search-4@cuda": at("over", "trials"),
        "search-5@cuda": "no answer",
    }
    monkeypatch.setattr(looks, "looks", lambda timeout_s: found)
    assert looks.runs_beside("search-1@cuda") == ["theirs"]


def test_one_of_ours_that_does_not_end_by_itself_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    import ray

    late = SearchState(None, deadline_s=time.monotonic() - client.END_GRACE_S - 1.0)
    killed: list[Any] = []
    monkeypatch.setattr(client, "_state", lambda actor: late)
    monkeypatch.setattr(ray, "kill", killed.append)
    with pytest.raises(TunerError, match="does not end"):
        watch_search("actor", None, threading.Event(), ours=True)
    assert killed == ["actor"]


def test_the_next_in_its_place_is_taken(listed: Listed) -> None:
    listed(ENDED, TunerError("gone"), AT_WORK)
    assert search_at_work(RUN) is AT_WORK


def test_none_is_at_work_once_it_has_gone(listed: Listed) -> None:
    listed(ENDED, ENDED, None)
    assert search_at_work(RUN) is None


def test_one_known_to_have_ended_is_not_asked_again(listed: Listed) -> None:
    listed()
    assert watch_search(TunerError("gone"), None, threading.Event(), known=ENDED) is ENDED
