"""A product for Hopper (tensor copies, mbarriers, wgmma) on this machine's GPU, beside cuBLAS.

    python -m benchmarks.gpu.hopper 4096 [bfloat16]

Prints a line of JSON: the largest error of some rows over the largest value, and TFLOPS. It is the
program that the emulated device is tested with (`tests/spaces/emulation/hopper.py`).
"""

from __future__ import annotations

import json
import sys
from typing import Any

from benchmarks.gpu.torch_side import time_call

_ROWS = 256


def main() -> None:
    """Build, run, compare and time."""
    import torch
    import tvm

    from spaces.devices.graph_stopwatch import cuda_stopwatch
    from spaces.devices.stopwatch import Loaded
    from spaces.targets.backends import compiling
    from tests.spaces.emulation import hopper

    size, dtype = int(sys.argv[1]), (*sys.argv[2:], "float16")[0]
    target = tvm.target.Target(hopper.TARGET, host=tvm.target.Target({"kind": "llvm"}))
    module = tvm.IRModule({"main": hopper.product(size, size, size, columns=256, dtype=dtype)})
    with compiling(target):
        library = tvm.compile(module, target=target, tir_pipeline="tirx").mod
    kind = getattr(torch, dtype)
    a, b = (torch.randn(size, size, device="cuda", dtype=kind) for _ in range(2))
    c = torch.full((size, size), float("nan"), device="cuda", dtype=kind)
    tensors = [tvm.runtime.from_dlpack(each) for each in (a, b, c)]
    torch.cuda.synchronize()
    library["main"](*tensors)
    tvm.cuda().sync()
    rows = torch.randperm(size, device="cuda")[:_ROWS]
    want = a[rows].double() @ b.double().T
    error = float((c[rows].double() - want).abs().max() / want.abs().max())
    watch = cuda_stopwatch(tvm.cuda(), json.dumps(hopper.TARGET))
    loaded = Loaded(library, tensors)
    watch.wake(loaded, 10)
    ours_s = sorted(watch.samples(loaded, 20, 7))[3]
    print(json.dumps(_facts(size, dtype, error, ours_s, time_call(torch.mm, [a, b.T]))))


def _facts(size: int, dtype: str, error: float, ours_s: float, torch_s: float) -> dict[str, Any]:
    tera = 2e-12 * size**3
    return {
        "size": size,
        "dtype": dtype,
        "largest_error": error,
        "tflops": tera / ours_s,
        "torch_tflops": tera / torch_s,
    }


if __name__ == "__main__":
    main()
