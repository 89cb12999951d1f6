"""What the search of a run is called: by its folder, or the same everywhere by its URL, and by its
device."""

from __future__ import annotations

from pathlib import Path

import pytest

from cluster.scaling.scaling_policy import Share
from cluster.search.naming import run_name, search_name, search_of, share_of_cpus, share_of_devices
from tuner.run_location import RunLocation

at = RunLocation.of


def test_the_same_folder_has_one_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert run_name(at("runs/a")) == run_name(at(tmp_path / "runs" / "b" / ".." / "a"))


def test_the_same_url_has_one_name() -> None:
    assert run_name(at("s3://bucket/a")) == run_name(at("s3://bucket/a/"))
    runs = ("s3://bucket/a", "s3://bucket/b", Path("s3://bucket/a"))
    names = {run_name(at(run)) for run in runs}
    assert len(names) == 3


def test_a_search_is_found_whatever_it_measures_on() -> None:
    names = [
        search_name(at("s3://b/a"), "cuda NVIDIA H200 cc=9.0"),
        search_name(at("s3://b/b"), "cpu"),
    ]
    assert search_of(at("s3://b/a"), names) == names[0]
    assert search_of(at("s3://b/b"), names) == names[1]
    assert search_of(at("s3://b/c"), names) is None


def test_devices_are_shared_with_those_that_measure_on_the_same() -> None:
    a100, h200, gpu = "cuda NVIDIA A100 cc=8.0", "cuda NVIDIA H200 cc=9.0", "cuda"
    names = [
        search_name(at(run), device) for run, device in zip("abc", (a100, h200, a100), strict=True)
    ]
    assert share_of_devices(names[0], names) == Share(2, 0)
    assert share_of_devices(names[1], names) == Share(1, 0)
    assert share_of_devices(names[2], names) == Share(2, 1)
    assert share_of_cpus(names[1], names) == Share(3, 1)
    unknown = search_name(at("d"), gpu)
    assert share_of_devices(unknown, [*names, unknown]) == Share(4, 3)


def test_a_number_of_threads_is_not_the_beginning_of_another() -> None:
    names = [
        search_name(at("a"), "cpu threads=1"),
        search_name(at("b"), "cpu threads=16"),
    ]
    assert share_of_devices(names[0], names) == Share(1, 0)


def test_one_that_is_not_listed_yet_has_all() -> None:
    assert share_of_cpus(search_name(at("a"), "cpu"), []) == Share(1, 0)
