"""The best predicted settings of each template of some programs, on this machine's GPU, beside
PyTorch.

    python -m benchmarks.gpu.best 'product f16 4096' 'decode f16 1x4096x4096' 'attention f16'

Prints a line of JSON for each program: for each setting the largest error over the largest value,
by PyTorch in float64, what was predicted, and what was measured.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterator
from typing import Any

from benchmarks.gpu.torch_side import call_of, time_call
from benchmarks.gpu.workloads import ON_A_DEVICE, Workload

_SETTINGS = 12
"""Of each template."""


def main() -> None:
    """Build, run, compare and time."""
    for workload in ON_A_DEVICE:
        if workload.name in sys.argv[1:]:
            print(json.dumps(measure(workload)), flush=True)


def measure(workload: Workload) -> dict[str, Any]:
    """Times of a program in microseconds; nothing runs after some of a device's errors."""
    import torch
    import tvm

    function, arguments = call_of(workload)
    want = function(*(each.double() for each in arguments))
    result = torch.full_like(want, math.nan, dtype=arguments[0].dtype)
    tensors = [tvm.runtime.from_dlpack(each) for each in (*arguments, result)]
    torch_us = time_call(function, arguments) * 1e6
    settings: list[dict[str, Any]] = []
    for space, knobs, target in _draw_best(workload):
        said = {"space": space.name, "knobs": dict(knobs)}
        settings.append(said)
        result.fill_(math.nan)
        torch.cuda.synchronize()
        try:
            took_us = _time(space, knobs, target, tensors) * 1e6
        except RuntimeError as failure:
            said["failed"] = str(failure).splitlines()[-1]
            break
        said["largest_error"] = float((result.double() - want).abs().max() / want.abs().max())
        said["predicted_us"] = (space.describe(knobs).estimate_s or math.inf) * 1e6
        said["us"] = took_us
    best_us = min((said["us"] for said in settings if "us" in said), default=None)
    return {"name": workload.name, "torch_us": torch_us, "best_us": best_us, "settings": settings}


def _draw_best(workload: Workload) -> Iterator[tuple[Any, Any, str]]:
    """The best predicted settings of each template, each with its space and the target."""
    from spaces.design_space.knob_space import KnobSpace
    from spaces.targets.target import resolve_target
    from spaces.templates.registry import templates_of

    target = resolve_target("cuda")
    task = workload.task(target)
    for template in templates_of(task):
        space = KnobSpace(task, template)
        for knobs in space.ranked[:_SETTINGS]:
            yield space, knobs, target


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


if __name__ == "__main__":
    main()
