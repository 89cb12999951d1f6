"""Where a run is, as users name it: in one way for each of the doors."""

from __future__ import annotations

from pathlib import Path

import pytest

from tuner.errors import UsageError
from tuner.run_location import RunLocation

at = RunLocation.of


def test_text_is_a_path_unless_it_is_a_url() -> None:
    assert at("runs/a") == at("runs/a/") == at(Path("runs/a")) == at(at("runs/a"))
    assert (at("runs/a").folder, at("runs/a").named) == (Path("runs/a"), Path("runs/a"))
    assert not at("runs/a").is_url
    assert at("s3://b/a") == at("s3://b/a/") == at(at("s3://b/a"))
    assert at("s3://b/a").named == str(at("s3://b/a")) == "s3://b/a"
    assert at("s3://b/a").is_url


def test_a_path_that_looks_like_a_url_is_a_path() -> None:
    for named in (Path("s3://b/a"), "runs/x://y"):
        assert not at(named).is_url
        assert at(named).folder == Path(named)


@pytest.mark.parametrize("named", ["", " ", "s3://", "http://host/run", 7])
def test_what_can_name_no_run_is_refused(named: object) -> None:
    with pytest.raises(UsageError):
        at(named)  # type: ignore[arg-type]


@pytest.mark.parametrize("text", ["runs/a", "/mnt/a", "s3://b/a"])
def test_a_run_below_has_its_name(text: str) -> None:
    below = at(text).below("gpu")
    assert str(below) == f"{text}/gpu"
    assert below.name == "gpu"
    assert below == at(f"{text}/gpu/")


def test_it_is_the_same_from_any_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert at("a").resolved() == at(tmp_path / "b" / ".." / "a").resolved() == at(tmp_path / "a")
    assert at("s3://b/a").resolved() == at("s3://b/a")
