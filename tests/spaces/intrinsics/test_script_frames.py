"""TVMScript in a module that is imported: who looks through all modules for the frames above it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.tvm

FUNCTIONS = """
from __main__ import touched
from tvm.script import tirx as T

def double(n):
    @T.prim_func(s_tir=True)
    def main(a: T.Buffer((n,), "float32"), b: T.Buffer((n,), "float32")):
        for i in range(n):
            with T.sblock("double"):
                v = T.axis.remap("S", [i])
                b[v] = a[v] * T.float32(2)
    return main

FOUND = [double(4)]
touched.clear()  # by now it is known which module this file is
FOUND += [double(n) for n in (8, 16)]
"""
LOOKS = """
import inspect, sys

touched = []

class Touchy:
    def __getattribute__(self, name):
        touched.append(name)
        raise AttributeError(name)

sys.modules["touchy"] = Touchy()

def touches(call):
    touched.clear()
    return call(), bool(touched)
"""
FRAMES = (
    LOOKS
    + """
from spaces.intrinsics.script_frames import know_frames_of_no_file

names = "<frozen importlib._bootstrap>", "<frozen importlib._bootstrap_external>", "<string>"
frames = [eval(compile("sys._getframe()", name, "eval")) for name in names]
for know in (lambda: None, know_frames_of_no_file):
    know()
    print([touches(lambda: inspect.getmodule(f, inspect.getfile(f))) for f in frames])
"""
)
IMPORTS = (
    LOOKS
    + """
import tvm
from tvm_ffi import structural_equal
from spaces.intrinsics.script_frames import know_frames_of_no_file

before, looked = touches(lambda: __import__("before"))
know_frames_of_no_file()
after, looks = touches(lambda: __import__("after"))
same = [structural_equal(a, b) for a, b in zip(before.FOUND, after.FOUND, strict=True)]
print(looked, looks, same)
"""
)


def printed(program: str, folder: Path) -> list[str]:
    """The lines that a program prints which begins in a process without TVM."""
    (folder / "program.py").write_text(program)
    command = [sys.executable, str(folder / "program.py")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


def test_a_frame_of_no_file_is_known_to_be_no_modules(tmp_path: Path) -> None:
    before, after = printed(FRAMES, tmp_path)
    assert before == str([(None, True)] * 3)
    assert after == str([(None, False)] * 3)


def test_functions_of_a_module_that_is_imported_are_parsed_to_the_same_programs(
    tmp_path: Path,
) -> None:
    for name in ("before", "after"):
        (tmp_path / f"{name}.py").write_text(FUNCTIONS)
    assert printed(IMPORTS, tmp_path) == ["True False [True, True, True]"]
