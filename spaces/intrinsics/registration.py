"""Tensor intrinsics, registered only when a target needs them.

TVM's tune context imports the package `tvm.s_tir.tensor_intrin`, which parses TVMScript for every
intrinsic of every target: 20 to 35 CPU seconds in each new process. Here the package is replaced
by an empty one with the same path, and a target gets only the submodule it needs. The CUDA one
takes seconds in itself, so its parsed intrinsics are kept as TVM JSON in the user's cache and read
from there by every later process.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import re
import sys
import types
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from spaces.intrinsics.script_frames import know_frames_of_no_file
from tuner.files.atomic import atomic_file

_PACKAGE = "tvm.s_tir.tensor_intrin"
_SLOW_TO_PARSE = frozenset({"cuda"})
_NAMES: Mapping[str, re.Pattern[str]] = {
    "cuda": re.compile(r'"(?:wmma|mma)_\w+"'),
    "arm_cpu": re.compile(r'"(?:dot_4x4_\w+_(?:neon|sdot|hdot|udot)|sme_\w+)"'),
    "x86": re.compile(r'"dot_16x4_(?:vnni|avx512)"'),
    "dot_product_common": re.compile(r'"dp4a_\w+"'),
}
"""What the names of a family's intrinsics look like in JSON."""
_MISSING = re.compile(r"TensorIntrin '(\w+)' is not registered")
_registered: set[str] = set()


def stub_intrinsics() -> None:
    """Keep TVM from importing every intrinsic; harmless to call again, or too late. Whoever imports
    some of them all the same does not wait long."""
    know_frames_of_no_file()
    if _PACKAGE in sys.modules:
        return
    import tvm.s_tir

    package = types.ModuleType(_PACKAGE)
    package.__path__ = [str(Path(tvm.s_tir.__file__).parent / "tensor_intrin")]
    sys.modules[_PACKAGE] = package


def register_intrinsics(family: str, *, cache_dir: Path | None = None) -> None:
    """Register the intrinsics of one family, once in this process.

    Args:
        family: a submodule of TVM's intrinsics: `arm_cpu` or `cuda`.
        cache_dir: folder of parsed intrinsics; None is the user's cache.
    """
    stub_intrinsics()
    if family in _registered:
        return
    if family in _SLOW_TO_PARSE:
        _register_cached(family, cache_dir or default_cache_dir())
    else:
        importlib.import_module(f"{_PACKAGE}.{family}")
    _registered.add(family)


def families_named(text: str) -> list[str]:
    """The families of the intrinsics that a trace's JSON names."""
    return [family for family, pattern in _NAMES.items() if pattern.search(text)]


def register_named(text: str) -> None:
    """Register each of TVM's intrinsics that a text names, such as a trace or a database, by
    family, a second time for nothing: a trace applies only where its intrinsics are registered."""
    for family in families_named(text):
        register_intrinsics(family)


def register_missing(error: str) -> bool:
    """Register the family of an intrinsic that TVM says it lacks, so that the same can be tried
    again; False where that is not what it says, or was done before."""
    lacks = _MISSING.search(error)
    families = families_named(f'"{lacks[1]}"') if lacks else []
    missing = [family for family in families if family not in _registered]
    for family in missing:
        register_intrinsics(family)
    return bool(missing)


def default_cache_dir() -> Path:
    """The folder of parsed intrinsics for this user."""
    import platformdirs

    return Path(platformdirs.user_cache_dir("elastic-tuner"))


def _register_cached(family: str, cache_dir: Path) -> None:
    import tvm
    import tvm_ffi
    from tvm.s_tir import TensorIntrin

    path = cache_dir / f"intrinsics-{family}-{tvm.__version__}.json"
    try:
        saved = tvm.ir.load_json(path.read_text())
    except (OSError, ValueError, RuntimeError):
        if parsed := _parse(family):  # nothing, where TVM's module was imported before
            _keep(path, tvm.ir.save_json(parsed))
        return
    for name, (description, implementation) in saved.items():
        TensorIntrin.register(str(name), description, implementation, override=True)
    for index_map, lanes in _INDEX_MAPS.items():
        # TVM's module may have been imported before, as dlight does.
        tvm_ffi.register_global_func(index_map, lanes, override=True)
    _may_come_again(frozenset(map(str, saved)))


def _may_come_again(names: frozenset[str]) -> None:
    """Let TVM's own module register intrinsics of these names, and its index maps, a second time:
    it does once somebody imports it, as dlight's rules for tensor cores do."""
    import tvm_ffi
    from tvm.s_tir import TensorIntrin

    register, register_map = TensorIntrin.register, tvm_ffi.register_global_func

    def again(name: str, desc: Any, impl: Any, override: bool = False) -> Any:
        return register(name, desc, impl, override or name in names)

    def map_again(name: Any, f: Any = None, override: bool = False) -> Any:
        return register_map(name, f, override or name in _INDEX_MAPS)

    TensorIntrin.register = staticmethod(again)
    tvm_ffi.register_global_func = map_again


def _accumulator_of_m16n8k8(place: Any) -> Any:
    """Where an element of 16 rows and 8 columns of sums lies: the half of the rows, the column of
    such tiles, and the element of a thread."""
    from tvm.runtime import convert

    row, column = place[0], place[1]
    return convert([row // 8 // 2, column // 8, row // 8 % 2, column % 8 % 2])


def _lane_of_ldmatrix(place: Any) -> Any:
    """The thread, and its element, that has an element of 16 rows and 16 columns."""
    from tvm.runtime import convert

    row, column = place[0], place[1]
    lane = 4 * (row % 8) + column % 8 // 2
    return convert([lane, 4 * (column // 8) + row // 8 * 2 + column % 2])


_INDEX_MAPS: Mapping[str, Callable[[Any], Any]] = {
    "tirx.index_map_m16n8k8.matrixC": _accumulator_of_m16n8k8,
    "tirx.index_map.shared_16x16_to_ldmatrix_32x8_layout": _lane_of_ldmatrix,
}
"""What TVM's module for CUDA registers beside intrinsics, and TVM asks for when it lowers `mma`."""


def _parse(family: str) -> dict[str, Any]:
    """Import a family the slow way, and record the intrinsics that it registers."""
    from tvm.s_tir import TensorIntrin

    noted: dict[str, Any] = {}
    register = TensorIntrin.register

    def note(name: str, desc: Any, impl: Any, override: bool = False) -> Any:
        noted[name] = [desc, impl]
        return register(name, desc, impl, override)

    TensorIntrin.register = staticmethod(note)
    try:
        importlib.import_module(f"{_PACKAGE}.{family}")
    finally:
        TensorIntrin.register = staticmethod(register)
    return noted


def _keep(path: Path, text: str) -> None:
    """Write a file of the cache if possible: an unwritable cache costs time, not results."""
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        with atomic_file(path) as file:
            file.write(text)


def arm_family(target: Mapping[str, Any]) -> str | None:
    """The intrinsics that rules may use on a CPU, if any: those of Arm.

    Args:
        target: options of an llvm target.
    """
    triple = str(target.get("mtriple", ""))
    arm = "aarch64" in triple or (not triple and os.uname().machine == "aarch64")
    # TVM 0.27's VNNI intrinsic does not fit the signature it has in LLVM 22: every program that
    # uses it fails to compile.
    return "arm_cpu" if arm else None
