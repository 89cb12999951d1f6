"""What a user's process does with an exported library, and how long a run of it takes.

    python as_user_child.py LIBRARY NAME INPUTS.npz

It loads and calls it as the README says, with TVM alone: nothing of the tuner is imported. NAME is
a tensor program's; empty for a whole model. Prints JSON: `ms`, the median of its samples, and
`threads`, how many TVM used.
"""

from __future__ import annotations

import json
import statistics
import sys
import time

import numpy as np
import tvm

_WARM_UP_S, _SAMPLE_S, _SAMPLES = 0.3, 0.02, 15


def main() -> None:
    """Load, call, print."""
    path, name, inputs = sys.argv[1:]
    library = tvm.runtime.load_module(path)
    call = library[name] if name else tvm.relax.VirtualMachine(library, tvm.cpu())["main"]
    arguments = [tvm.runtime.tensor(array) for array in np.load(inputs).values()]

    def taken_s(runs: int) -> float:
        start_s = time.perf_counter()
        for _ in range(runs):
            call(*arguments)
        return (time.perf_counter() - start_s) / runs

    until_s = time.perf_counter() + _WARM_UP_S
    run_s = taken_s(1)
    while time.perf_counter() < until_s:
        run_s = taken_s(1)
    runs = max(1, round(_SAMPLE_S / run_s))
    samples_s = [taken_s(runs) for _ in range(_SAMPLES)]
    told = {"ms": 1e3 * statistics.median(samples_s), "threads": tvm.runtime.num_threads()}
    print(json.dumps(told))


if __name__ == "__main__":
    main()
