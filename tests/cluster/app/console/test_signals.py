"""The first signal asks for an orderly end, a second SIGINT leaves at once."""

from __future__ import annotations

import os
import signal
import threading

import pytest

from cluster.app.console.signals import StopSignals


def send(number: signal.Signals) -> None:
    os.kill(os.getpid(), number)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_first_signal_sets_stop(number: signal.Signals) -> None:
    stop = threading.Event()
    left: list[int] = []
    with StopSignals(stop, leave=left.append) as signals:
        signals.install()
        assert signals.note == ""
        send(number)
        assert stop.wait(10)
        assert signals.exit_code == 128 + number
        assert "results are kept" in signals.note
        assert left == []


def test_a_second_sigint_leaves_and_a_second_sigterm_does_not() -> None:
    left: list[int] = []
    with StopSignals(threading.Event(), leave=left.append) as signals:
        signals.install()
        send(signal.SIGTERM)
        send(signal.SIGTERM)
        assert left == []
        send(signal.SIGINT)
        assert left == [130]
        assert signals.exit_code == 143


def test_before_anyone_waits_a_signal_interrupts() -> None:
    with StopSignals(threading.Event()) as signals:
        with pytest.raises(KeyboardInterrupt):
            send(signal.SIGTERM)
        assert signals.exit_code == 143


def test_a_second_sigint_leaves_even_before_anyone_waits() -> None:
    left: list[int] = []
    with StopSignals(threading.Event(), leave=left.append):
        with pytest.raises(KeyboardInterrupt):
            send(signal.SIGINT)
        send(signal.SIGINT)
    assert left == [130]


def test_handlers_are_put_back() -> None:
    before = [signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM)]
    with StopSignals(threading.Event()) as signals:
        signals.install()
    assert [signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM)] == before
