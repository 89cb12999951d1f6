"""How much memory a compiled model takes: `python -m benchmarks.loaded_memory FOLDER`.

It prints by how many bytes this process grew when it loaded `model.so` and ran the first sample:
its `memory`, and what of that is `private`, without pages of files.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np


def main() -> None:
    """Load, run once, print."""
    import psutil
    import tvm

    folder, own = Path(sys.argv[1]), psutil.Process()
    names = json.loads((folder / "about.json").read_text())["inputs"]
    with np.load(folder / "samples.npz") as arrays:
        given = [tvm.runtime.tensor(arrays[f"0 in {name}"]) for name in names]
    before = own.memory_info()
    machine = tvm.relax.VirtualMachine(tvm.runtime.load_module(str(folder / "model.so")), tvm.cpu())
    machine["main"](*given)
    after = own.memory_info()
    grown, of_files = after.rss - before.rss, after.shared - before.shared
    print(json.dumps({"memory": grown, "private": grown - of_files}))


if __name__ == "__main__":
    main()
