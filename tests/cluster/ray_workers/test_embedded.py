"""A cluster of one's own starts on a busy machine, too, and wherever its files have to be."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from cluster.ray_workers import embedded
from cluster.ray_workers.embedded import job_config, short_folder, start_patiently
from tuner.errors import TunerError
from tuner.search_path import ROOT

SLOW = "The current node timed out during startup. This could happen because it is overloaded."


@pytest.fixture(autouse=True)
def _nothing_to_clear(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedded, "_clear", lambda: None)


def start(*outcomes: Exception | None) -> list[Exception | None]:
    """Start a cluster whose starts end like this; return those that were not made."""
    left = [*outcomes]

    def start() -> None:
        if (outcome := left.pop(0)) is not None:
            raise outcome

    try:
        start_patiently(start)
    except Exception as error:
        error.add_note(str(len(left)))
        raise
    return left


@pytest.mark.parametrize("slow", [Exception(SLOW), RuntimeError(SLOW), ConnectionError(SLOW)])
def test_a_node_that_was_not_up_in_time_is_started_once_more(slow: Exception) -> None:
    assert start(slow, None) == []


def test_a_second_start_in_vain_is_told_in_one_line() -> None:
    with pytest.raises(TunerError, match=r"does not start, tried twice: The current.*busy") as told:
        start(Exception(SLOW), Exception(f"{SLOW}\nTraceback"), None)
    assert "\n" not in str(told.value)
    assert told.value.__notes__ == ["1"]


@pytest.mark.parametrize("error", [OSError("no space left"), ValueError("x"), TunerError("x")])
def test_what_time_does_not_mend_is_not_tried_again(error: Exception) -> None:
    with pytest.raises(type(error)) as told:
        start(error, None)
    assert told.value.__notes__ == ["1"]


@pytest.mark.parametrize("name", ["TMPDIR", "RAY_TMPDIR"])
def test_files_of_ray_are_elsewhere_where_its_folder_would_not_do(name: str) -> None:
    assert short_folder({}) is None
    assert short_folder({name: "/scratch/me"}) is None
    assert short_folder({name: "/" + 60 * "x"}) == "/tmp/ray"
    assert short_folder({name: "/für mich"}) == "/tmp/ray"


def test_without_any_folder_that_would_do_one_line_says_what_to_set(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(embedded, "_SHORT", (str(tmp_path / "missing"),))
    with pytest.raises(TunerError, match="set TMPDIR to a shorter path"):
        short_folder({"TMPDIR": "/" + 60 * "x"})


@pytest.mark.ray
def test_workers_look_for_modules_in_the_current_folder_last(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    import ray  # before there is a path without it

    assert ray
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", ["", "/a", "/b"])
    config: Any = job_config(same_python=True)
    assert config._client_job, "else Ray adds the current folder"
    assert config._py_driver_sys_path == [str(tmp_path.resolve()), "/b", "/a"]


@pytest.mark.ray
def test_our_own_folder_is_left_to_ray(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    config: Any = job_config(same_python=True)
    assert not config._client_job
    assert config._py_driver_sys_path == []


AWKWARD = """
import ray
from cluster.ray_workers.ray_cluster import ray_cluster

def word():
    import fractions, neighbour
    return fractions.Fraction(1, 2), neighbour.word

with ray_cluster("local"):
    print(ray.get(ray.remote(word).remote()))
"""


@pytest.mark.ray
def test_a_long_temporary_folder_and_modules_of_a_user_do_not_matter(tmp_path: Path) -> None:
    long = tmp_path / ("ü" + 90 * "x")
    long.mkdir()
    for name in ("random", "queue", "fractions"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('not this one')\n")
    (tmp_path / "neighbour.py").write_text("word = 'found'\n")
    done = subprocess.run(
        [sys.executable, "-P", "-c", f"import sys; sys.path.append({str(tmp_path)!r})\n{AWKWARD}"],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env={**os.environ, "PYTHONPATH": ROOT, "TMPDIR": str(long)},
        cwd=tmp_path,
    )
    assert done.stdout == "(Fraction(1, 2), 'found')\n", done.stderr
