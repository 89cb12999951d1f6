"""TVMScript in a module that is being imported, parsed without asking every other module.

For each function TVM's parser takes the whole stack (`inspect.stack`), and of a frame whose file
does not exist `inspect` asks all modules of the process whether it is theirs. While a module is
imported there are some of importlib's. Of 17 s that `tvm.s_tir.tensor_intrin` took in a process
with 1,100 modules 14 went there, and more where a user has imported more.
"""

from __future__ import annotations

import inspect

_FROZEN = {
    "importlib._bootstrap": "_frozen_importlib",
    "importlib._bootstrap_external": "_frozen_importlib_external",
    "runpy": "runpy",
}
"""Modules without a file, below whatever is imported: their names in frames, and their own."""


def know_frozen_frames() -> None:
    """Tell `inspect` whose these frames are, for as long as this process lives."""
    for name, module in _FROZEN.items():
        inspect.modulesbyfile[f"<frozen {name}>"] = module
