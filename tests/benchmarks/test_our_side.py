"""A run that a benchmark goes on with: what the whole of it took."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from benchmarks import our_side
from benchmarks.our_side import OurRun, tune_once
from benchmarks.process_tree import Seen, Watched


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The runs that the command was called for; it takes ten seconds, and more each time."""
    made: list[Path] = []

    def tune(model: Any, run: Path, **settings: Any) -> OurRun:
        made.append(run)
        failure = "out of memory" if model == ("large",) else ""
        watched = Watched(failure, 5.0, 10.0 * len(made), '{"trials": 8}', "", Seen())
        return OurRun(run, failure, watched, (), None, {"trials": 8})

    monkeypatch.setattr(our_side, "tune", tune)
    return made


def test_what_was_done_is_not_done_again_and_took_as_long(
    calls: list[Path], tmp_path: Path
) -> None:
    first, second = (tune_once(("model",), tmp_path / "run", trials=8) for _ in range(2))
    assert len(calls) == 1
    assert (first.watched.wall_s, second.watched.wall_s) == (10.0, 10.0)
    assert second.report == {"trials": 8}
    assert not second.failure


def test_another_order_is_carried_out(calls: list[Path], tmp_path: Path) -> None:
    for trials in (8, 9):
        tune_once(("model",), tmp_path / "run", trials=trials)
    assert len(calls) == 2


def test_what_failed_is_tried_again(calls: list[Path], tmp_path: Path) -> None:
    for _ in range(2):
        assert tune_once(("large",), tmp_path / "run", trials=8).failure
    assert len(calls) == 2
