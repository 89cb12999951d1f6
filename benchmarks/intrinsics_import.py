"""TVM's tensor intrinsics, imported in a quarter of the time.

`import tvm.s_tir.tensor_intrin` parses a hundred programs, and for each TVMScript asks
`inspect.getmodule` thousands of times for the same few answers. Here these are kept.
"""

from __future__ import annotations

import inspect
import types
from typing import Any


def import_intrinsics() -> None:
    """Import them; once in a process is enough."""
    usual = inspect.getmodule
    known: dict[Any, Any] = {}

    def getmodule(thing: Any, _filename: str | None = None) -> Any:
        code = thing.f_code if isinstance(thing, types.FrameType) else thing
        if not isinstance(code, types.CodeType):
            return usual(thing, _filename)
        # Equal code of two files is not the same code.
        key = (id(code), code.co_filename, _filename)
        if key not in known:
            known[key] = (usual(thing, _filename), code)
        return known[key][0]

    inspect.getmodule = getmodule  # type: ignore[assignment]
    try:
        import tvm.s_tir.tensor_intrin  # noqa: F401
    finally:
        inspect.getmodule = usual
