"""TVMScript in a module that is imported: how often its parser asks all modules for one frame."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.tvm

FUNCTIONS = """
from tvm.script import tirx as T

def double(n):
    @T.prim_func(s_tir=True)
    def main(a: T.Buffer((n,), "float32"), b: T.Buffer((n,), "float32")):
        for i in range(n):
            with T.sblock("double"):
                v = T.axis.remap("S", [i])
                b[v] = a[v] * T.float32(2)
    return main

FOUND = [double(n) for n in (4, 8, 16)]
"""
COUNT = """
import importlib, inspect, json, sys
import tvm
from spaces.intrinsics.script_frames import know_frames_of_no_file

asked, is_module = [0], inspect.ismodule

def counted(found):
    asked[0] += 1
    return is_module(found)

inspect.ismodule = counted
found = []
for name in ("before", "after"):
    asked[0] = 0
    importlib.import_module(name)
    found.append(asked[0] / len(sys.modules))
    know_frames_of_no_file()
print(json.dumps(found))
"""


def test_it_asks_all_modules_far_less_often_once_it_knows_who_has_none(tmp_path: Path) -> None:
    for name in ("before", "after"):
        (tmp_path / f"{name}.py").write_text(FUNCTIONS)
    (tmp_path / "count.py").write_text(COUNT)
    done = subprocess.run(
        [sys.executable, str(tmp_path / "count.py")], capture_output=True, text=True, check=True
    )
    before, after = json.loads(done.stdout)
    assert after < before / 5
