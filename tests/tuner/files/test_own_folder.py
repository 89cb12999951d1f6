"""A user's folder among the temporary files: what others may have planted there is not used."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from tuner.errors import TunerError
from tuner.files.own_folder import make_own, own_folder


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return tmp_path


def test_it_is_for_its_owner_alone_whatever_the_mask(temporary: Path) -> None:
    before = os.umask(0)
    try:
        folder = own_folder()
    finally:
        os.umask(before)
    assert folder.parent == temporary
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert own_folder() == folder


def test_it_needs_no_name_of_the_user(temporary: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in containers that run as a number of nobody's."""
    for name in ("USER", "LOGNAME", "LNAME", "USERNAME"):
        monkeypatch.delenv(name, raising=False)

    def unknown(_: int) -> None:
        raise KeyError("uid not found")

    monkeypatch.setattr("pwd.getpwuid", unknown)
    assert own_folder().name == f"elastic-tuner-{os.geteuid()}"


def link(folder: Path) -> None:
    victim = folder.with_name("victim")
    victim.mkdir()
    folder.symlink_to(victim)


def another_ones(folder: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can plant what is another's")
    folder.mkdir(mode=0o700)
    os.chown(folder, 12345, 12345)


def writable(folder: Path) -> None:
    folder.mkdir()
    folder.chmod(0o777)


@pytest.mark.parametrize(
    ("plant", "why"),
    [
        (link, "is a link"),
        (lambda folder: folder.symlink_to(folder.with_name("nothing")), "is a link"),
        (another_ones, r"belongs to another user \(number 12345\)"),
        (writable, r"may be written by others \(mode 777\)"),
        (Path.touch, "is not a folder"),
    ],
)
def test_what_was_planted_in_its_place_is_refused_in_one_line(
    temporary: Path, plant: Callable[[Path], None], why: str
) -> None:
    planted = temporary / f"elastic-tuner-{os.geteuid()}"
    plant(planted)
    with pytest.raises(TunerError, match=f"{planted.name} {why}.*set TMPDIR") as caught:
        own_folder()
    assert "\n" not in str(caught.value)
    assert not (temporary / "victim").exists() or os.listdir(temporary / "victim") == []


def test_one_that_cannot_be_made_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(TunerError, match="cannot make"):
        make_own(tmp_path / "file" / "own")
