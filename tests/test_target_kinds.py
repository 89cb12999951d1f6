"""Kinds of target are told apart in one place: the rows of `spaces/targets/backends.py`.

Whoever wants to know what a kind is like asks its row. Code that compares names of kinds, or looks
them up in a table of its own, would have to be found by whoever adds a kind.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tuner.request.target_text import TARGET_KINDS

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("tuner", "spaces", "actors", "cluster")
KINDS = {*TARGET_KINDS, "rocm", "metal", "vulkan", "opencl", "hip"}
"""Those there are, and those that somebody may want next."""

ALLOWED = {
    "tuner/request/target_text.py": "names the kinds there are, where TVM is not known",
    "tuner/search/dynamic/specialization.py": "on which kinds copies were measured",
    "spaces/codegen/cuda/packing.py": "for CUDA alone; the kinds are a compiled library's",
    "spaces/codegen/library_threads.py": "for CPUs alone; the kind is a compiled library's",
    "spaces/ir/nan_kept.py": "what LLVM makes of a maximum with NaN",
    "spaces/intrinsics/registration.py": "names of TVM's modules of intrinsics",
    "cluster/app/console/doctor_features.py": "the device that a feature needs, and what brings it",
}
"""Files that may, each with why."""


def told_apart(source: str) -> Iterator[int]:
    """Lines that compare something with the name of a kind, or keep a collection of such names."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Compare(left=left, comparators=others):
                asked = [left, *others]
            case ast.Call(func=ast.Attribute(attr="startswith" | "endswith"), args=asked):
                pass
            case ast.Tuple(elts=asked) | ast.List(elts=asked) | ast.Set(elts=asked):
                pass
            case ast.Dict(keys=keys):
                asked = [key for key in keys if key is not None]
            case ast.MatchValue(value=value):
                asked = [value]
            case _:
                continue
        if any(isinstance(one, ast.Constant) and one.value in KINDS for one in asked):
            yield node.lineno if hasattr(node, "lineno") else 0


def test_only_the_files_that_are_named_here_tell_kinds_apart() -> None:
    found = {
        file.relative_to(ROOT).as_posix()
        for package in PACKAGES
        for file in sorted((ROOT / package).rglob("*.py"))
        if [*told_apart(file.read_text(encoding="utf-8"))]
    }
    assert found == ALLOWED.keys()


@pytest.mark.parametrize(
    "source",
    [
        'if kind == "cuda": pass',
        'on_cpu = "llvm" == target_kind(target)',
        'if kind not in ("llvm", "rocm"): pass',
        '_KINDS = ("llvm", "cuda")',
        'rules = {"cuda": 1, **more}[kind]',
        'text.startswith("cuda")',
        'text.startswith(("cuda", "nvidia/"))',
        'match kind:\n    case "llvm" | "cuda": pass',
    ],
)
def test_kinds_that_are_told_apart_are_found(source: str) -> None:
    assert [*told_apart(source)]


@pytest.mark.parametrize(
    "source",
    [
        'resolve_target("llvm")',
        'Backend(kind="cuda")',
        'target = {"kind": "llvm"}',
        'if model.kind == "onnx": pass',
        'print("cuda")',
    ],
)
def test_naming_a_kind_is_no_such_thing(source: str) -> None:
    assert [*told_apart(source)] == []
