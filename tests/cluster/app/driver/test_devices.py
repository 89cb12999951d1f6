"""Asking machines what a target is on them: for a while, and not against the user's will."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pytest

from cluster.app.driver import devices
from cluster.app.driver.devices import Device, ready_of
from tuner.errors import TunerError

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


@pytest.mark.parametrize(
    ("target", "expected"), [("llvm", ("other", "one")), ('{"kind":"llvm"}', ("other",))]
)
def test_a_kind_is_each_unlike_device_and_a_target_the_most_frequent_that_fits(
    target: str, expected: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = (Device(target, name) for name in ("one", "other"))
    no_such = devices._Answer(None, TunerError("no such device"))
    answers = [devices._Answer(one), no_such, devices._Answer(other), devices._Answer(other)]
    monkeypatch.setattr(devices, "machines_for", lambda asked, wait: (asked, []))
    monkeypatch.setattr(devices, "_ask", lambda *_: answers)
    wait: Any = SimpleNamespace(stop=threading.Event())
    found = devices.devices_on_cluster(target, wait)
    assert tuple(device.fingerprint for device in found) == expected
