"""The best predicted settings of the template for products on Hopper, on this machine's GPU, beside
cuBLAS.

    python -m benchmarks.gpu.hopper 4096 [bfloat16]

Prints a line of JSON: for each setting the largest error of some rows over the largest value, what
was predicted, and TFLOPS.
"""

from __future__ import annotations

import json
import math
import sys
from typing import Any

from benchmarks.gpu.torch_side import time_call
from benchmarks.gpu.workloads import Workload

_ROWS, _SETTINGS = 256, 12


def main() -> None:
    """Build, run, compare and time."""
    import torch
    import tvm

    from spaces.design_space.knob_space import KnobSpace
    from spaces.targets.target import resolve_target
    from spaces.templates.registry import templates_of

    size, dtype = int(sys.argv[1]), (*sys.argv[2:], "float16")[0]
    target = resolve_target("cuda")
    task = Workload("product", "product", (size, size, size), dtype).task(target)
    template, *_ = templates_of(task)
    space = KnobSpace(task, template)
    kind = getattr(torch, dtype)
    a, b = (torch.randn(size, size, device="cuda", dtype=kind) for _ in range(2))
    c = torch.full((size, size), float("nan"), device="cuda", dtype=kind)
    tensors = [tvm.runtime.from_dlpack(each) for each in (a, b, c)]
    torch.cuda.synchronize()
    rows = torch.randperm(size, device="cuda")[:_ROWS]
    want = a[rows].double() @ b.double()
    torch_tera = _tera(size) / time_call(torch.mm, [a, b])
    settings: list[dict[str, Any]] = []
    for knobs in space.ranked[:_SETTINGS]:
        c.fill_(float("nan"))
        torch.cuda.synchronize()
        try:
            seconds = _time(space, knobs, target, tensors)
        except RuntimeError as failure:  # nothing runs after some of a device's errors
            settings.append({"knobs": dict(knobs), "failed": str(failure).splitlines()[-1]})
            break
        error = float((c[rows].double() - want).abs().max() / want.abs().max())
        predicted_s = space.describe(knobs).estimate_s or math.inf
        settings.append(
            {
                "knobs": dict(knobs),
                "largest_error": error,
                "tflops": _tera(size) / seconds,
                "predicted_tflops": _tera(size) / predicted_s,
            }
        )
    said = {"size": size, "dtype": dtype, "torch_tflops": torch_tera}
    best = max((s.get("tflops", 0.0) for s in settings), default=0.0)
    print(json.dumps(said | {"tflops": best, "settings": settings}))


def _time(space: Any, knobs: Any, target: str, tensors: Any) -> float:
    """Seconds of a setting, the median of seven."""
    import tvm

    from spaces.codegen.artifact import build_artifact, load_kernel
    from spaces.devices.graph_stopwatch import cuda_stopwatch
    from spaces.devices.stopwatch import Loaded
    from tuner.candidate import of_knobs

    module = space.write(of_knobs(knobs, space.name)).mod
    library = load_kernel(build_artifact(module, target)).module
    library["main"](*tensors)
    tvm.cuda().sync()
    watch, loaded = cuda_stopwatch(tvm.cuda(), target), Loaded(library, tensors)
    watch.wake(loaded, 10)
    return float(sorted(watch.samples(loaded, 20, 7))[3])


def _tera(size: int) -> float:
    return 2e-12 * size**3


if __name__ == "__main__":
    main()
