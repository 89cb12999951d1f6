"""TVM's runtime for CUDA: what it is linked with is brought in, and what is missing is named."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from spaces.ir.cuda_runtime import load_cudart, why_no_runtime
from tests.lean import LEAN

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="libraries of Linux")


NAME = "libcudart-of-tests.so.1"
"""A machine may have the real one where the loader finds it."""


def library(folder: Path, name: str, code: str, *options: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    source, made = folder / f"{name}.c", folder / name
    source.write_text(code)
    command = ["cc", "-shared", "-fPIC", "-o", str(made), str(source), f"-Wl,-soname,{name}"]
    subprocess.run([*command, *options], check=True, timeout=60)
    return made


@pytest.mark.tvm
def test_a_library_that_is_missing_is_named_in_the_words_of_the_loader(tmp_path: Path) -> None:
    library(tmp_path, "libnosuch.so.7", "int answer(void) { return 42; }")
    linked = library(
        tmp_path / "tvm", "librt.so", "int answer(void); int ask(void) { return answer(); }",
        str(tmp_path / "libnosuch.so.7"),
    )  # fmt: skip
    why = why_no_runtime(linked)
    assert why.startswith("libnosuch.so.7: cannot open shared object file")


@pytest.mark.tvm
def test_one_that_can_be_loaded_misses_nothing(tmp_path: Path) -> None:
    assert why_no_runtime(library(tmp_path, "librt.so", "int ask(void) { return 0; }")) == ""


def test_the_runtime_of_a_package_is_found_by_what_is_linked_with_it(tmp_path: Path) -> None:
    """In a process of its own: what is loaded stays."""
    package = tmp_path / "nvidia" / "cu13" / "lib"
    library(package, NAME, "int gives(void) { return 42; }")
    linked = library(
        tmp_path / "tvm", "librt.so", "int gives(void); int ask(void) { return gives(); }",
        str(package / NAME),
    )  # fmt: skip
    program = f"""
import ctypes, sys
from pathlib import Path
from spaces.ir.cuda_runtime import load_cudart
try:
    ctypes.CDLL({str(linked)!r})
except OSError as error:
    print(str(error).partition(":")[0])
assert load_cudart([Path({str(tmp_path)!r}), Path({str(package)!r})], {NAME!r})
print(ctypes.CDLL({str(linked)!r}).ask())
"""
    assert said(program) == [NAME, "42"]


def test_without_such_a_package_nothing_is_loaded(tmp_path: Path) -> None:
    assert not load_cudart([tmp_path], NAME)
    (tmp_path / NAME).write_text("no library")
    assert not load_cudart([tmp_path], NAME)


@pytest.mark.tvm
def test_it_is_loaded_before_tvm_is() -> None:
    program = f"""{LEAN}
from spaces.ir import lean_tvm
loaded = []
import sys
lean_tvm.load_cudart = lambda: loaded.append("tvm.base" in sys.modules)
import tvm
print(loaded)
"""
    assert said(program) == ["[False]"]


def said(program: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=True
    )
    return done.stdout.split("\n")[:-1]
