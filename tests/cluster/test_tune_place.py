"""A run that lives where several machines see it, on real TVM and Ray; each has its own cache."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tuner.storage.objects.url import open_object_store
from tuner.storage.segments.format import Measured
from tuner.storage.segments.log import Position, read_on

pytestmark = [pytest.mark.tvm, pytest.mark.ray, pytest.mark.long]

EXAMPLES = Path(__file__).parents[2] / "examples"
MODEL = [f"{EXAMPLES / 'gemm.py'}:gemm", "--arg", "m=96", "--arg", "n=64", "--arg", "k=80"]


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "tuner", *arguments]


def tuner(cache: Path, *arguments: str) -> dict[str, Any]:
    """What a command prints on a machine with this cache."""
    done = subprocess.run(
        command(*arguments),
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
        env={**os.environ, "XDG_CACHE_HOME": str(cache)},
    )
    assert done.returncode == 0, done.stderr
    printed: dict[str, Any] = json.loads(done.stdout) if "--json" in arguments else {}
    return printed


def stored(url: str) -> list[tuple[Any, ...]]:
    """Keys of the records in the segments, in order, doubles included."""
    segments = (segment for _, segment in read_on(open_object_store(url), Position()))
    found = [e.record.trial.key for s in segments for e in s.entries if isinstance(e, Measured)]
    return [(key.task_key, key.candidate_key, key.instance, key.rung) for key in found]


def test_it_is_killed_here_goes_on_there_and_is_read_anywhere(tmp_path: Path) -> None:
    here, there, reader = (tmp_path / name for name in ("here", "there", "reader"))
    url = (tmp_path / "shared" / "run1").as_uri()
    flags = ["tune", *MODEL, "--target", "llvm", "--run", url, "--json", "--trials"]

    with subprocess.Popen(
        command(*flags, "500"),
        stdout=subprocess.DEVNULL,
        env={**os.environ, "XDG_CACHE_HOME": str(here)},
        start_new_session=True,
    ) as victim:
        deadline_s = time.monotonic() + 180.0
        while len(stored(url)) < 12 and time.monotonic() < deadline_s and victim.poll() is None:
            time.sleep(0.5)
        assert victim.poll() is None
        os.killpg(victim.pid, signal.SIGKILL)
    before = stored(url)
    assert len(before) >= 12

    status = tuner(reader, "status", url, "--json")
    assert status["trials"] >= 12

    trials = status["trials"] + 16
    result = tuner(there, *flags, str(trials))
    assert result["run"] == url
    assert result["trials"] >= trials
    after = stored(url)
    assert after[: len(before)] == before
    assert len(set(after)) == len(after)

    assert tuner(reader, "status", url, "--json")["trials"] == result["trials"]
    (task,) = tuner(reader, "best", url, "--json")["tasks"]
    assert task["latency_ms"] > 0
    tuner(reader, "export", url, "--lib", str(tmp_path / "model.so"))
    assert (tmp_path / "model.so").stat().st_size > 0
    tuner(reader, "export", url, "--records", str(tmp_path / "records.jsonl"))
    assert len((tmp_path / "records.jsonl").read_text().splitlines()) == len(after)
