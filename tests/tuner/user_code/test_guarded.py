"""A user's object whose calls may raise or hang, in a process that goes on."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import Any, Protocol, runtime_checkable

import pytest

from tuner.source import Source
from tuner.user_code.faults import LayerFailed
from tuner.user_code.guarded import guard
from tuner.user_code.load import load

TEXT = """import time
class Layer:
    def __init__(self, start=1):
        if start < 0: raise ValueError("too small")
        self.count = start

    def add(self, n, *, times=1):
        self.count += n * times
        return self.count

    def fail(self):
        return {}["missing"]

    def hang(self):
        time.sleep(1000)

    @property
    def large(self):
        return self.count > 5

    def counted(self):
        for n in range(self.count): yield n

    def thread(self):
        import threading
        return threading.get_ident()
"""
SOURCE = Source("theirs.py", TEXT, "Layer")


def layer_of(deadline_s: float = 60.0, **arguments: Any) -> Any:
    kind = load(SOURCE)
    return guard(lambda: kind(**arguments), SOURCE, "strategy", deadline_s=deadline_s)


def test_it_has_the_methods_and_properties_of_what_it_stands_for() -> None:
    layer = layer_of()
    assert layer.add(2, times=3) == 7
    assert layer.large is True
    assert not hasattr(layer, "other")


@runtime_checkable
class Counts(Protocol):
    def counted(self) -> Iterator[int]: ...


def test_it_has_the_protocols_of_what_it_stands_for() -> None:
    layer = layer_of(start=3)
    assert isinstance(layer, Counts)
    assert list(layer.counted()) == [0, 1, 2]


def test_its_calls_are_made_on_one_thread_of_its_own() -> None:
    layer = layer_of()
    assert layer.thread() == layer.thread() != threading.get_ident()


def test_what_it_raises_is_one_line_with_its_place() -> None:
    with pytest.raises(LayerFailed, match=r"theirs\.py:12: KeyError: 'missing' \(strategy, fail\)"):
        layer_of().fail()
    with pytest.raises(LayerFailed, match=r"theirs\.py:4: ValueError: too small"):
        layer_of(start=-1)


def test_what_hangs_is_named_with_its_line_at_the_deadline() -> None:
    layer = layer_of(deadline_s=0.3)
    began_s = time.monotonic()
    with pytest.raises(LayerFailed, match=r"theirs\.py:15: strategy: hang has not returned"):
        layer.hang()
    assert time.monotonic() - began_s < 30
    with pytest.raises(LayerFailed, match="add has not returned"):
        layer.add(1)  # its thread is still at work
