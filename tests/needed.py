"""Programs and packages that tests need: a test is left out where one is missing, except where
nothing may be."""

from __future__ import annotations

import importlib
import os
import shutil
from pathlib import Path
from typing import Any, NoReturn

import pytest

from spaces.codegen.cuda.nvcc import find_nvcc, find_packaged_nvcc, nvcc_version
from spaces.codegen.cuda.nvrtc import find_nvrtc
from tuner.errors import TunerError

NOTHING_SKIPPED = "TUNER_TEST_NOTHING_SKIPPED"
"""Variable that makes what is missing a failure; `.ci/run` sets it, and installs all of it."""

needs_nvcc = pytest.mark.usefixtures("nvcc")
"""Marks tests that compile CUDA code; the fixture is in tests/conftest.py."""


def needed(program: str) -> str:
    """The path of a program of Debian's. Without it the calling test is skipped, or fails."""
    return shutil.which(program) or _go_without(
        f"{program} is missing: apt-get install --no-install-recommends {program}"
    )


def needed_package(name: str) -> Any:
    """A package of the extra `tests`, imported. Without it the calling test, or the module that
    calls it, is skipped, or fails."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name == name:
            _go_without(f"the package {name} is missing: make env")
        raise  # it is there, and cannot be used


def needed_nvcc() -> str:
    """The path of CUDA's compiler. Without it the calling test is skipped, or fails."""
    try:
        return str(find_nvcc())
    except TunerError:
        return _go_without("nvcc is missing: make env")


def needed_nvrtc() -> Path:
    """The path of that compiler as a library. Without it the calling test is skipped, or fails."""
    nvcc = Path(needed_nvcc())
    found = find_nvrtc(nvcc.parent.parent, nvcc_version(nvcc))
    return found or _go_without("NVRTC of nvcc's version is missing: make env")


def with_cuda_programs(path: str) -> str:
    """A PATH on which those that the environment's own packages bring come first."""
    packaged = find_packaged_nvcc()
    found = [] if packaged is None else [str(packaged.parent)]
    folders = path.split(os.pathsep)
    return os.pathsep.join([*found, *(folder for folder in folders if folder not in found)])


def _go_without(why: str) -> NoReturn:
    if os.environ.get(NOTHING_SKIPPED):
        pytest.fail(why)
    pytest.skip(why, allow_module_level=True)
