"""How a user's class is named: by file, by module, by a package's entry point, or as it is."""

from __future__ import annotations

import sys
import types
from pathlib import Path

import pytest

from cluster.app.api.keywords import tune_options
from cluster.app.driver.layers import find_layers, refuse_pickled_layers
from tuner.errors import UsageError
from tuner.request.model_spec import ModelSpec
from tuner.request.options import TuneOptions
from tuner.source import Source
from tuner.user_code.find import find_layer
from tuner.user_code.load import load

TEXT = "class Mine:\n    def order(self, views): return []\nALLOCATOR = Mine\n"
MODEL = ModelSpec("m.onnx")


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An installed package that gives a name to its allocator."""
    (tmp_path / "their_allocators.py").write_text(TEXT)
    info = tmp_path / "their_package-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: their-package\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[elastic_tuner.allocator]\nfair = their_allocators:Mine\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "their_allocators", raising=False)
    return tmp_path


def test_a_file_has_a_usual_name_for_each_layer(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text(TEXT)
    usual, named = find_layer(str(file), "allocator"), find_layer(f"{file}:Mine", "allocator")
    assert load(usual) is load(named)
    assert (usual.name, named.name) == ("ALLOCATOR", "Mine")


def test_a_package_gives_it_a_name(package: Path) -> None:
    source = find_layer("fair", "allocator")
    assert source == find_layer("their_allocators:Mine", "allocator")
    assert load(source).__name__ == "Mine"
    with pytest.raises(UsageError, match=r"entry point of elastic_tuner\.store"):
        find_layer("fair", "store")


def test_a_class_goes_along_as_its_file(package: Path) -> None:
    import their_allocators  # type: ignore[import-not-found]

    options = tune_options(MODEL, {"allocator": their_allocators.Mine})
    assert find_layers(options).allocator == Source(
        str(package / "their_allocators.py"), TEXT, "Mine"
    )
    refuse_pickled_layers(options)


def test_a_class_that_no_file_has_works_on_this_machine_only() -> None:
    module = types.ModuleType("nowhere")
    exec(TEXT, vars(module))
    sys.modules["nowhere"] = module
    try:
        options = tune_options(MODEL, {"allocator": type("Local", (module.Mine,), {})})
    finally:
        del sys.modules["nowhere"]
    (allocator,) = [source for _, source in find_layers(options)]
    assert allocator.pickled
    with pytest.raises(UsageError, match="allocator: on a cluster other machines"):
        refuse_pickled_layers(options)


def test_there_can_be_many_observers_and_one_strategy(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text("OBSERVERS = STRATEGY = int\n")
    many = TuneOptions(MODEL, layers=(("observers", str(file)), ("observers", f"{file}:STRATEGY")))
    assert len(find_layers(many).observers) == 2
    with pytest.raises(UsageError, match="there can be one search strategy only"):
        find_layers(TuneOptions(MODEL, strategy=str(file), layers=(("strategy", str(file)),)))


def test_ours_are_no_layers() -> None:
    assert not find_layers(TuneOptions(MODEL, strategy="replay-function"))
