"""Run artifacts once, as a program that compute-sanitizer can watch.

    compute-sanitizer --tool memcheck python -m benchmarks.gpu.sanitized FOLDER

FOLDER holds `NAME.artifact` and `NAME.json`: shapes and types of the arguments.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path


def main() -> None:
    """Run each artifact of a folder on the first device."""
    from spaces.ir.lean_tvm import import_tvm_lean

    import_tvm_lean()
    import tvm

    from spaces.codegen.artifact import load_kernel

    device = tvm.cuda()
    for path in sorted(Path(sys.argv[1]).glob("*.artifact")):
        kernel = load_kernel(path.read_bytes())
        shapes = json.loads(path.with_suffix(".json").read_text())
        tensors = [tvm.runtime.empty(shape, dtype, device) for shape, dtype in shapes]
        kernel.module.get_function("main", query_imports=True)(*tensors)
        device.sync()
        print(f"ran {path.stem}", flush=True)


if __name__ == "__main__":
    main()
