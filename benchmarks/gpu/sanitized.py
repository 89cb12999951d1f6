"""Run artifacts once, as a program that compute-sanitizer can watch.

    compute-sanitizer --tool memcheck python -m benchmarks.gpu.sanitized FOLDER

FOLDER holds `NAME.artifact` and `NAME.json`: the target, and shapes and types of the arguments.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path


def main() -> None:
    """Run each artifact of a folder on its target's device."""
    from spaces.ir.lean_tvm import import_tvm_lean

    import_tvm_lean()
    import tvm

    from spaces.codegen.artifact import load_kernel
    from spaces.targets.target import device_of

    for path in sorted(Path(sys.argv[1]).glob("*.artifact")):
        kernel = load_kernel(path.read_bytes())
        known = json.loads(path.with_suffix(".json").read_text())
        device = device_of(known["target"])
        tensors = [tvm.runtime.empty(shape, dtype, device) for shape, dtype in known["arguments"]]
        kernel.module.get_function("main", query_imports=True)(*tensors)
        device.sync()
        print(f"ran {path.stem}", flush=True)


if __name__ == "__main__":
    main()
