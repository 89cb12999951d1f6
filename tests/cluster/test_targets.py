"""Asking machines what a target is on them: for a while, and not against the user's will."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from cluster.targets import ready_of

pytestmark = pytest.mark.ray


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """Who has answered at each look; nobody at later ones."""
    import ray

    looks: list[list[str]] = []

    def wait(refs: list[str], **_: Any) -> tuple[list[str], list[str]]:
        ready = looks.pop(0) if looks else []
        return ready, [ref for ref in refs if ref not in ready]

    monkeypatch.setattr(ray, "wait", wait)
    return looks


def test_a_question_is_over_when_enough_have_answered(answers: list[list[str]]) -> None:
    answers += [[], ["a"], ["a", "b"]]
    assert ready_of(["a", "b"], 2, 1e9, threading.Event()) == ["a", "b"]
    assert answers == []


def test_it_is_over_when_its_time_is(answers: list[list[str]]) -> None:
    answers += [["a"]]
    assert ready_of(["a", "b"], 2, 0.0, threading.Event()) == ["a"]


def test_a_question_can_be_stopped(answers: list[list[str]]) -> None:
    stop = threading.Event()
    stop.set()
    with pytest.raises(KeyboardInterrupt):
        ready_of(["a"], 1, 1e9, stop)
