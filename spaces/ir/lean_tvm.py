"""Imports TVM without PyTorch and without sessions of many processes, in processes of ours.

TVM and `tvm_ffi` import PyTorch wherever it is installed, to be safe from clashing symbols on
Windows and to convert its tensors: 1.3 s of processor time and 200 MB in each process. Whoever
needs PyTorch after that imports it as ever; its tensors go to TVM by DLPack. What TVM does need and
would not find, the CUDA runtime of a package, is loaded before it.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from importlib.util import spec_from_file_location
from types import ModuleType

from spaces.ir.cuda_runtime import load_cudart
from tuner.process.lean_import import without

_LIBRARIES = ("tvm", "tvm_ffi")
_EXTRAS = ("torch", "tvm.runtime.disco")
"""PyTorch, and TVM's sessions of many processes, which take a quarter of its import."""


class _Loader(SourceFileLoader):
    def exec_module(self, module: ModuleType) -> None:
        if module.__name__ == _LIBRARIES[0]:
            load_cudart()
        with without(*_EXTRAS):
            super().exec_module(module)


class _Finder(MetaPathFinder):
    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name not in _LIBRARIES or (found := PathFinder.find_spec(name, path)) is None:
            return None
        return spec_from_file_location(name, found.origin, loader=_Loader(name, str(found.origin)))


_FINDER = _Finder()


def import_tvm_lean() -> None:
    """Leave PyTorch out when TVM is imported in this process, unless either is there already."""
    if _FINDER not in sys.meta_path:
        sys.meta_path.insert(0, _FINDER)
