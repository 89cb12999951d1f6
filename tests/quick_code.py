"""Tests compile without LLVM's optimisations, which take half the time of those that compile.

What a test tries is our schedules, passes and checks, which come before; the code is the same but
slower. Optimised code is what `make slow` and `make fuzz` run, the processes that tests start, and
tests with the mark `optimised`.
"""

from __future__ import annotations

import os
import sys
from typing import Any

_OPTIMISED = "TUNER_TEST_OPTIMISED"
_quick = False


def choose_code(optimised: bool) -> None:
    """Have TVM and the emulated device, once they are imported, optimise what they compile for this
    machine, or not."""
    global _quick
    _quick = not optimised and _OPTIMISED not in os.environ
    if (emulated := sys.modules.get("spaces.emulation.compile")) is not None:
        emulated._WELL = emulated._FAST if _quick else "-O2"  # type: ignore[attr-defined]
    build = sys.modules.get("tvm.tirx.build")
    if build is not None and build.codegen_build.__module__ == build.__name__:
        build.codegen_build = _around(build.codegen_build)  # type: ignore[attr-defined]


def _around(codegen_build: Any) -> Any:
    def quick(module: Any, target: Any) -> Any:
        from tvm.target import Target

        if _quick and target.kind.name == "llvm":
            target = Target({**target.export(), "opt-level": 0})
        return codegen_build(module, target)

    return quick
