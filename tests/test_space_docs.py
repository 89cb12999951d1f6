"""The page on spaces: its files are spaces that apply to the program that they are about."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest

from benchmarks.proposals import TARGET
from spaces.design_space.declared.fit import fit
from tuner.task import SpaceSource, Task

pytestmark = pytest.mark.tvm

ROOT = Path(__file__).resolve().parents[1]
PAGE = (ROOT / "docs" / "spaces.md").read_text()
FILES = [
    text
    for text in re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    if "SPACE =" in text
]


@cache
def task(on_gpu: bool) -> Task:
    from examples.mixed_space import program
    from spaces.lowering.extract_tasks import task_of
    from spaces.targets.target import resolve_target

    target = resolve_target(TARGET) if on_gpu else resolve_target("llvm", cores=2)
    return task_of(program(), target, name="program")


def test_every_way_to_declare_one_is_shown() -> None:
    shown = "\n".join(FILES)
    from tuner import space

    assert {word for word in space.__all__ if f"space.{word}" not in shown} == set()


@pytest.mark.parametrize("text", FILES, ids=range(len(FILES)))
def test_what_is_shown_applies_to_its_program(text: str) -> None:
    program = task("space.dlight" in text)
    found = fit(SpaceSource("shown.py", text, "SPACE"), [program])
    assert (found.error, found.notes) == ("", ())
    assert found.parts[program.key]


def test_a_function_of_arguments_is_called_with_them() -> None:
    (text,) = (text for text in FILES if "def of_rows" in text)
    found = fit(SpaceSource("shown.py", text, "of_rows", arguments='{"most": 64}'), [task(False)])
    assert (found.error, found.notes) == ("", ())
