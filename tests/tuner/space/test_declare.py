"""A user's file says what to search with a few words."""

from __future__ import annotations

import sys
import threading
import types
from pathlib import Path
from typing import Any

import pytest

from tuner import space
from tuner.errors import TunerError, UsageError
from tuner.space.declare import parts_of
from tuner.space.parts import Ours, Rules, Template
from tuner.space.source import read_source, source_of


@space.manual
def by_hand(sch: Any) -> None: ...


@space.template(tasks="conv*", name="tiles")
def tiled(sch: Any) -> None: ...


@space.rule(blocks="matmul*")
def keep(sch: Any, block: Any) -> list[Any]:
    return [sch, block]


SPACE = space.union(by_hand, tiled, space.rules(keep), space.ours())


def test_a_union_has_each_part_under_its_name() -> None:
    first, second, third, last = SPACE.parts
    assert isinstance(first, Template)
    assert first.manual
    assert first.name == "by_hand"
    assert isinstance(second, Template)
    assert not second.manual
    assert (second.name, second.tasks) == ("tiles", "conv*")
    assert isinstance(third, Rules)
    assert third.members == (keep,)
    assert third.stock
    assert isinstance(last, Ours)


def test_unions_may_hold_unions_and_plain_functions() -> None:
    def plain(sch: Any) -> None: ...

    assert [p.name for p in space.union(space.union(by_hand), plain).parts] == ["by_hand", "plain"]


def test_declared_functions_can_still_be_called() -> None:
    assert keep("schedule", "block") == ["schedule", "block"]
    assert by_hand("schedule") is None


def test_a_rule_alone_is_a_space_with_tvms_own_rules() -> None:
    (part,) = parts_of(keep)
    assert isinstance(part, Rules)
    assert part.name == "keep"
    assert part.stock


@pytest.mark.parametrize(
    ("declare", "said"),
    [
        (lambda: space.union(by_hand, by_hand), "two spaces are called by_hand"),
        (lambda: space.union(3), "3 is no space"),
        (lambda: space.rules(stock=False), "a space of no rules"),
        (lambda: space.template("tiled"), "'tiled' is no function"),
    ],
)
def test_what_is_no_space_is_refused_where_it_is_said(declare: Any, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        declare()


def test_a_file_is_read_with_the_name_that_is_meant(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text("SPACE = 1\n")
    source = read_source(str(file))
    assert (source.file, source.text, source.name) == (str(file), "SPACE = 1\n", "SPACE")
    other = read_source(f"{file}:OTHER")
    assert other.name == "OTHER"
    assert len({source.version, other.version}) == 2


@pytest.mark.parametrize("text", ["mine", "mine-txt:SPACE", "mine.py:", "mine.py:not a name"])
def test_what_names_no_file_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match=r"FILE\.py:NAME"):
        read_source(text)


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file of a module in a package that can be imported."""
    folder = tmp_path / "their_package"
    folder.mkdir()
    (folder / "__init__.py").write_text("")
    (folder / "more.py").write_text("from tuner import space\n")
    file = folder / "spaces.py"
    file.write_text("from .more import space\n\ndef f(sch): ...\n\nMINE = space.manual(f)\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    return file


def test_a_package_is_imported_where_it_is_searched(package: Path) -> None:
    source = read_source("their_package.spaces:MINE")
    assert source.text.splitlines()[1:] == ["from their_package.spaces import MINE"]
    package.write_text(package.read_text() + "# changed\n")
    assert read_source("their_package.spaces:MINE").version != source.version
    with pytest.raises(TunerError, match=r"no module their_package\.nowhere"):
        read_source("their_package.nowhere:MINE")
    with pytest.raises(TunerError, match="nowhere"):
        read_source("nowhere.spaces:MINE")


def test_an_object_whose_file_needs_its_package_goes_along_as_an_import(package: Path) -> None:
    import importlib

    module = importlib.import_module("their_package.spaces")
    source = source_of(module.MINE)
    assert source.text.splitlines()[1:] == ["from their_package.spaces import MINE"]


def test_a_missing_file_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(TunerError, match=r"mine\.py: no such file"):
        read_source(str(tmp_path / "mine.py"))


def test_an_object_goes_along_as_the_file_that_names_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "from tuner import space\n@space.manual\ndef f(sch): ...\nMINE = space.union(f)\n"
    file = tmp_path / "theirs.py"
    file.write_text(text)
    module = types.ModuleType("theirs")
    module.__file__ = str(file)
    exec(text, vars(module))
    monkeypatch.setitem(sys.modules, "theirs", module)
    source = source_of(module.MINE)
    assert (source.file, source.text, source.name) == (str(file), text, "MINE")


def test_an_object_without_a_name_goes_along_itself() -> None:
    most = 7

    def steps(sch: Any) -> int:
        return most

    source = source_of(space.union(space.template(steps, name="steps"), space.ours()))
    assert source.pickled
    found: dict[str, Any] = {}
    exec(source.text, found)
    (mine, _) = found[source.name].parts
    assert (mine.name, mine.function(None)) == ("steps", 7)


def test_an_object_that_cannot_be_pickled_needs_a_name() -> None:
    lock = threading.Lock()

    def locked(sch: Any) -> Any:
        return lock

    with pytest.raises(UsageError, match=r"cannot pickle .*: give it a name at the top of a"):
        source_of(space.union(space.template(locked)))
