"""The same seed gives the same trials, in the same order, in any process: nothing that a session
decides follows from the order of a set, from addresses, threads, or the time of day."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[1]


def printed(kind: str, *seeds: int, trials: int) -> list[list[Any]]:
    """The trials of sessions with these seeds, each in a process with a hash seed and a number of
    threads of its own; the processes run at the same time."""
    command = [sys.executable, "-m", "tests.tuner.replay.whole_session", kind]
    started = [
        subprocess.Popen(
            [*command, str(seed), str(trials)],
            cwd=ROOT,
            env={
                **os.environ,
                "PYTHONPATH": str(ROOT),
                "PYTHONHASHSEED": str(number),
                "OMP_NUM_THREADS": str(1 + number),
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for number, seed in enumerate(seeds)
    ]
    found = []
    for process in started:
        out, err = process.communicate(timeout=240)
        assert process.returncode == 0, err
        found.append([json.loads(line) for line in out.splitlines()])
    return found


def test_on_recorded_spaces_with_a_cost_model_a_base_model_and_seeds() -> None:
    one, same = printed("recorded", 3, 3, trials=32)
    assert len({row[0] for row in one}) == 3, "several tasks take part"
    assert any(row[3] for row in one), "finalists too"
    assert one == same


@pytest.mark.long
def test_on_recorded_spaces_another_seed_gives_others() -> None:
    one, other = printed("recorded", 3, 4, trials=32)
    assert one != other


@pytest.mark.tvm
@pytest.mark.long
def test_on_real_spaces_static_and_with_a_symbolic_dimension() -> None:
    one, same, other = printed("real", 3, 3, 4, trials=80)
    assert any(row[2] for row in one), "shapes of a symbolic dimension"
    assert any(not row[2] for row in one), "a static program"
    assert one == same
    assert one != other
