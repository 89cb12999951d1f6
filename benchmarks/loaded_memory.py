"""How much memory a compiled model takes: `python -m benchmarks.loaded_memory FOLDER`.

It loads `model.so` as the tour has users do it, runs the first sample once, and prints by how many
bytes this process grew: its `memory`, what of that is `private`, without pages of files, and
its `peak` on the way; and the seconds that loading took.
"""

from __future__ import annotations

import json
import re
import sys
import time
from pathlib import Path

import numpy as np

_PEAK_STARTS_ANEW = "5"
"""Linux's word, in `/proc/self/clear_refs`."""


def main() -> None:
    """Load, run once, print."""
    import psutil
    import tvm

    folder, own = Path(sys.argv[1]), psutil.Process()
    names = json.loads((folder / "about.json").read_text())["inputs"]
    with np.load(folder / "samples.npz") as arrays:
        given = [tvm.runtime.tensor(arrays[f"0 in {name}"]) for name in names]
    Path("/proc/self/clear_refs").write_text(_PEAK_STARTS_ANEW)
    before, started_s = own.memory_info(), time.perf_counter()
    machine = tvm.relax.VirtualMachine(tvm.runtime.load_module(str(folder / "model.so")), tvm.cpu())
    load_s = time.perf_counter() - started_s
    machine["main"](*given)
    after, peak = own.memory_info(), _peak_bytes()
    grown, of_files = after.rss - before.rss, after.shared - before.shared
    found = {"memory": grown, "private": grown - of_files, "peak": peak - before.rss}
    print(json.dumps({**found, "load_s": load_s}))


def _peak_bytes() -> int:
    """The most that was resident since the peak started anew."""
    found = re.search(r"^VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text(), re.M)
    assert found is not None
    return int(found[1]) << 10


if __name__ == "__main__":
    main()
