"""CUDA's compiler: where it is, and how kernels are compiled with it.

It is called by its path, so that which one is called does not depend on the PATH of a worker. The
flags are ours alone: TVM's own call always adds `--use_fast_math`, with which functions are
instructions of few right bits (`spaces.check.errors.fast_math`). Ours does for targets that ask for
it by a key.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path

from spaces.codegen.cuda import nvrtc
from tuner.errors import TunerError
from tuner.request.target_text import arithmetic_of

PACKAGE = "nvidia-cuda-nvcc"
MISSING = (
    "CUDA's compiler is missing: python -m pip install 'elastic-tuner[cuda]', or set CUDA_HOME to "
    "a toolkit"
)
FLAGS = (
    "--cubin",
    "-O3",
    "-std=c++17",
    # What TVM emits uses operators and conversions of these types.
    "-U__CUDA_NO_HALF_OPERATORS__",
    "-U__CUDA_NO_HALF_CONVERSIONS__",
    "-U__CUDA_NO_BFLOAT16_OPERATORS__",
    "-U__CUDA_NO_BFLOAT16_CONVERSIONS__",
    "-U__CUDA_NO_BFLOAT162_OPERATORS__",
    "-U__CUDA_NO_BFLOAT162_CONVERSIONS__",
    "--expt-relaxed-constexpr",
    "--expt-extended-lambda",
    "-diag-suppress=177",  # variables that are not used, of which TVM emits hundreds
    "--ptxas-options=-v,--register-usage-level=10",
)
"""What each call says, besides the architecture and the files."""
FAST_MATH = "--use_fast_math"
"""What a call says as well for a target of fast math, to nvcc and to NVRTC."""

_HOMES = ("CUDA_HOME", "CUDA_PATH")
_USUAL = Path("/usr/local/cuda")
_VERSION_LIMIT_S = 60.0
_OWN_FEATURES = re.compile(r"\bwgmma\.|\bsetmaxnreg\b|\btcgen05\.")
"""Instructions that ptxas takes for one architecture alone, whose name then ends in `a`."""
_WITH_OWN = frozenset({90, 100, 101, 103, 110, 120, 121})
"""Architectures that have such a name."""


def find_nvcc(environ: Mapping[str, str] = os.environ) -> Path:
    """The compiler to call: that of the toolkit that CUDA_HOME or CUDA_PATH names, of the package
    in this environment, on the path, or in its usual place.

    Raises:
        TunerError: there is none; it names the extra that brings it.
    """
    for found in _places(environ):
        if found.is_file():
            return found
    raise TunerError(MISSING)


def _places(environ: Mapping[str, str]) -> Iterator[Path]:
    for name in _HOMES:
        if home := environ.get(name):
            yield Path(home) / "bin" / "nvcc"
    if packaged := find_packaged_nvcc():
        yield packaged
    if on_path := shutil.which("nvcc", path=environ.get("PATH", "")):
        yield Path(on_path)
    yield _USUAL / "bin" / "nvcc"


@lru_cache(maxsize=1)
def find_packaged_nvcc() -> Path | None:
    """The compiler of the package that is installed in this environment."""
    try:
        files = importlib.metadata.files(PACKAGE) or []
    except importlib.metadata.PackageNotFoundError:
        return None
    found = (Path(str(file.locate())).resolve() for file in files if file.name == "nvcc")
    return next(found, None)


@lru_cache(maxsize=4)
def nvcc_version(nvcc: Path) -> str:
    """A compiler's version, such as `13.5.37`.

    Raises:
        TunerError: it does not say.
    """
    try:
        said = subprocess.run(
            [str(nvcc), "--version"], capture_output=True, text=True, timeout=_VERSION_LIMIT_S
        ).stdout
    except (OSError, subprocess.SubprocessError) as error:
        why = getattr(error, "strerror", None) or error
        raise TunerError(f"{nvcc} does not run: {why}") from error
    found = re.search(r"\bV(\d+(?:\.\d+)+)", said)
    if found is None:
        raise TunerError(f"{nvcc} does not say its version")
    return found[1]


def nvcc_fingerprint(target_json: str) -> str:
    """The compiler's version, and a hash of the flags that we call it and NVRTC with for a target.
    A machine that only measures may have none."""
    said = (*FLAGS, *nvrtc.OPTIONS, *((FAST_MATH,) if arithmetic_of(target_json).fast_math else ()))
    flags = hashlib.sha256(" ".join(said).encode()).hexdigest()[:8]
    try:
        version = nvcc_version(find_nvcc())  # NVRTC is used if it makes the same code
    except TunerError:
        version = "none"
    return f"nvcc={version} flags={flags}"


def stock_environment(target_json: str) -> dict[str, str]:
    """The variables with which TVM's own call of the compiler says what ours does for a target."""
    # TVM asks whether it is empty, and a process may inherit one that is not.
    refused = "" if arithmetic_of(target_json).fast_math else "1"
    return {"TVM_CUDA_COMPILE_MODE": "nvcc", "TVM_CUDA_NVCC_NO_FAST_MATH": refused}


def architecture(arch: str, source: str) -> str:
    """The architecture to compile a source for, such as `sm_90`.

    Args:
        arch: the target's. It gets the suffix `a` where the source has instructions that its
            devices have and later ones do not, as warpgroup products of sm_90.
    """
    digits = arch.removeprefix("sm_")
    own = digits.isdigit() and int(digits) in _WITH_OWN and _OWN_FEATURES.search(source)
    return f"{arch}a" if own else arch


def command(
    nvcc: Path, arch: str, source: Path, output: Path, *, fast_math: bool = False
) -> list[str]:
    """The call that compiles a source to a cubin for one architecture, such as `sm_90a`."""
    number = arch.removeprefix("sm_")
    return [
        str(nvcc),
        *FLAGS,
        *([FAST_MATH] if fast_math else []),
        "-gencode",
        f"arch=compute_{number},code=sm_{number}",
        "-o",
        str(output),
        str(source),
    ]
