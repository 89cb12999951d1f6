"""TVM's runtime for CUDA: brought in where its libraries are, and why it is not there.

TVM loads it when it is imported, and goes on in silence where the loader refuses. It needs the CUDA
runtime, which the extra `cuda` brings in a package where the loader does not look, and the driver.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Iterable
from importlib.util import find_spec
from pathlib import Path

CUDART = "libcudart.so.13"
"""What TVM's wheel is linked with."""
_RUNTIME = "libtvm_runtime_cuda.so"
_PROOF = "device_api.cuda"
"""A function that is registered where TVM's runtime for CUDA is loaded."""


def load_cudart(folders: Iterable[Path] | None = None, name: str = CUDART) -> bool:
    """Load the CUDA runtime of this environment's packages: what is linked with it then finds it.

    Args:
        folders: where packages put it; None is this environment's. A parameter for tests, as is the
            library's name.

    Returns:
        Whether it is loaded now. Where it is not, the loader may find it elsewhere.
    """
    for folder in package_folders() if folders is None else folders:
        if (library := folder / name).is_file():
            try:
                ctypes.CDLL(str(library), mode=ctypes.RTLD_GLOBAL)
            except OSError:
                continue
            return True
    return False


def why_no_runtime(runtime: Path | None = None) -> str:
    """Why TVM has no runtime for CUDA here, in the words of the loader, which name the library that
    it misses; empty where TVM has it, or has it from now on.

    Args:
        runtime: TVM's library; None is that of the wheel. A parameter for tests.
    """
    import tvm

    if runtime is None:
        if tvm.get_global_func(_PROOF, allow_missing=True) is not None:
            return ""
        runtime = Path(str(tvm.__file__)).parent / "lib" / _RUNTIME
    load_cudart()
    try:
        ctypes.CDLL(str(runtime))
    except OSError as error:
        return str(error)
    return ""


def package_folders() -> list[Path]:
    """Folders of the libraries of NVIDIA's packages."""
    if "nvidia" in sys.modules:
        roots = list(getattr(sys.modules["nvidia"], "__path__", ()))
    else:
        spec = find_spec("nvidia")
        roots = list(spec.submodule_search_locations or ()) if spec is not None else []
    return sorted(folder for root in roots for folder in Path(root).glob("*/lib"))
