"""The page on layers: its classes keep to their contracts, and have the flags that it lists."""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import pytest

from cluster.app.console.layer_flags import _FLAGS
from tuner.contracts.contracts import CONTRACTS, why_not
from tuner.layers import Layers
from tuner.source import Source

ROOT = Path(__file__).resolve().parents[1]
PAGE = (ROOT / "docs" / "layers.md").read_text()
FILES = [
    text
    for text in re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    if "Contract" in text
]
NAMES = [field.name for field in fields(Layers)]


def test_every_layer_is_listed_with_its_flag_and_what_it_is_made_with() -> None:
    rows = re.findall(r"^\| `(\w+)` \| `(--[\w-]+)` \| ([^|]+) \|", PAGE, re.MULTILINE)
    flags = {"strategy": "--strategy", **{name: flag for name, (flag, _) in _FLAGS.items()}}
    assert [name for name, _, _ in rows] == sorted(NAMES, key=[r[0] for r in rows].index)
    assert {name for name, _, _ in rows} == set(NAMES)
    assert {name: flag for name, flag, _ in rows} == flags
    said = {name: with_.replace("the run's folder", "a folder") for name, _, with_ in rows}
    assert {n: s.partition(",")[0] for n, s in said.items()} == {
        name: contract.made_with for name, contract in CONTRACTS.items()
    }


def test_a_class_of_each_layer_is_shown() -> None:
    shown = "\n".join(FILES)
    missing = [name for name in NAMES if not re.search(rf"\b{name.upper()}\b", shown)]
    assert missing == []


@pytest.mark.tvm
def test_what_is_shown_is_taken_before_a_run() -> None:
    for text in FILES:
        for name in NAMES:
            if re.search(rf"^(\w+, )?{name.upper()}\b", text, re.MULTILINE):
                source = Source("shown.py", text, name.upper())
                many = name in ("mutators", "postprocs", "observers", "libraries")
                layers = Layers(**{name: (source,) if many else source})  # type: ignore[arg-type]
                assert why_not(layers) == ""


@pytest.mark.tvm
@pytest.mark.slow
def test_what_is_shown_keeps_to_its_suite(tmp_path: Path) -> None:
    for number, text in enumerate(FILES):
        (tmp_path / f"test_shown_{number}.py").write_text(text)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stdout[-3000:]
    assert int(re.findall(r"(\d+) passed", done.stdout)[0]) > 40


LACKING = {
    "strategy": "class S:\n    def drafts(self, n): ...\nSTRATEGY = S",
    "cost_model": "class S:\n    def fit(self, features): ...\nCOST_MODEL = S",
    "allocator": "ALLOCATOR = 3",
    "observers": "OBSERVERS = undefined",
}


@pytest.mark.parametrize(
    ("layer", "said"),
    [
        ("strategy", "theirs.py: S has no absorb: a search strategy has drafts, absorb"),
        ("cost_model", "theirs.py: S.fit cannot be called with (features, latencies_s,"),
        ("allocator", "theirs.py: 3 is no allocator: a class is wanted"),
        ("observers", "theirs.py:1: NameError: name 'undefined' is not defined"),
    ],
)
def test_what_a_class_lacks_is_named_before_anything_starts(layer: str, said: str) -> None:
    source = Source("theirs.py", LACKING[layer], layer.upper())
    layers = Layers(**{layer: (source,) if layer == "observers" else source})  # type: ignore[arg-type]
    assert why_not(layers).startswith(said)
