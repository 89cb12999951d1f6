"""What is there after a power cut: all of it or nothing."""

from __future__ import annotations

import ctypes
import errno
import os
from pathlib import Path
from typing import Any

import pytest

from tests.contracts.power_cut import Disk
from tuner.files.atomic import NotExclusive, atomic_file, name_first, put_file, put_folder


@pytest.fixture
def disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Disk:
    return Disk(tmp_path, monkeypatch)


def test_a_folder_is_whole_before_it_has_its_name(tmp_path: Path, disk: Disk) -> None:
    made = tmp_path / "part"
    (made / "inner").mkdir(parents=True)
    content = {"model/a": b"1", "model/inner/b": b"2"}
    for name, data in content.items():
        (made / Path(name).relative_to("model")).write_bytes(data)
    put_folder(made, tmp_path / "model")
    assert any("part/a" in moment for moment in disk.moments)
    for moment in disk.moments:
        named = {name: data for name, data in moment.items() if name.startswith("model/")}
        assert named in ({}, content)
    assert disk.left() == content


def test_a_file_is_whole_before_it_has_its_name(tmp_path: Path, disk: Disk) -> None:
    for text in ("old", "new"):
        with atomic_file(tmp_path / "file") as file:
            file.write(text)
        assert all(moment.get("file", b"") is not None for moment in disk.moments)
        assert disk.left() == {"file": text.encode()}


def test_what_others_wrote_is_whole_before_it_takes_a_files_place(
    tmp_path: Path, disk: Disk
) -> None:
    for text in (b"old", b"new"):
        (tmp_path / "made").write_bytes(text)
        put_file(tmp_path / "made", tmp_path / "file")
        assert all(moment.get("file", b"") is not None for moment in disk.moments)
        assert disk.left() == {"file": text}


class TestTheFirstName:
    """Where there are no hard links."""

    @pytest.fixture(autouse=True)
    def _without_links(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def refused(*_: Any) -> None:
            raise OSError(errno.EPERM, "Operation not permitted")

        monkeypatch.setattr(os, "link", refused)

    def test_is_given_once(self, tmp_path: Path) -> None:
        for name in ("first", "second"):
            (tmp_path / name).write_text(name)
        name_first(tmp_path / "first", tmp_path / "it")
        with pytest.raises(FileExistsError):
            name_first(tmp_path / "second", tmp_path / "it")
        assert {p.name: p.read_text() for p in tmp_path.iterdir()} == {
            "it": "first",
            "second": "second",
        }

    def test_of_a_file_that_is_not_there_is_an_error(self, tmp_path: Path) -> None:
        with pytest.raises(FileNotFoundError):
            name_first(tmp_path / "none", tmp_path / "it")

    def test_is_refused_where_nobody_can_tell(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(ctypes, "CDLL", lambda *_, **__: object())
        (tmp_path / "first").touch()
        with pytest.raises(NotExclusive):
            name_first(tmp_path / "first", tmp_path / "it")
        assert os.listdir(tmp_path) == ["first"]
