"""What a sample on the emulated device costs: seconds of one core to build it, and to run it once.

    python -m benchmarks.gpu.emulation_cost --out benchmarks/results/gpu/emulation.json

Products of 256^3: of the space that a search draws from, in float32 and in float16 with sums in
float32, and the program for Hopper (wgmma). Times are the CPU's, of this process and its
compilers, which are kept on one core; the first build of all, which compiles the device, is not
counted.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from benchmarks.gpu.workloads import Workload
from benchmarks.machine import about, spent_cpu_s
from tuner.files.atomic import write_bytes

_SIZE = 256
_EMULATED = '{"kind":"cuda","arch":"sm_80"}'
_HOPPER = '{"kind":"cuda","arch":"sm_90a"}'


Build = Callable[[], Callable[..., object]]


def main() -> int:
    """Run the command line."""
    flags = argparse.ArgumentParser(prog="python -m benchmarks.gpu.emulation_cost")
    flags.add_argument("--samples", type=int, default=10)
    flags.add_argument("--out", type=Path)
    options = flags.parse_args()
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    said: dict[str, Any] = {"machine": about(), "date": time.strftime("%Y-%m-%d"), "size": _SIZE}
    for name, dtype, builds in (
        ("float32", "float32", drawn_builds("float32", options.samples)),
        ("float16", "float16", drawn_builds("float16", options.samples)),
        ("wgmma", "float16", iter([build_hopper])),
    ):
        said[name] = cost_of(builds, dtype)
    text = json.dumps(said, indent=1) + "\n"
    print(text, end="")
    if options.out is not None:
        write_bytes(options.out, text.encode())
    return 0


def drawn_builds(dtype: str, count: int) -> Iterator[Build]:
    """Builds of samples of the product's space."""
    from spaces.codegen.artifact import build_artifact, load_kernel
    from spaces.targets.target import emulate_target

    target = emulate_target(_EMULATED)
    workload = Workload("product", "product", (_SIZE, _SIZE, _SIZE), dtype)
    for module in workload.draw(target, count):

        def build(module: Any = module) -> Callable[..., object]:
            kernel: Callable[..., object] = load_kernel(build_artifact(module, target)).module[
                "main"
            ]
            return kernel

        yield build


def build_hopper() -> Callable[..., object]:
    """The best predicted setting of the template for Hopper."""
    from spaces.codegen.artifact import build_artifact, load_kernel
    from spaces.design_space.knob_space import KnobSpace
    from spaces.targets.target import emulate_target
    from spaces.templates.registry import templates_of
    from tuner.candidate import of_knobs

    target = emulate_target(_HOPPER)
    task = Workload("product", "product", (_SIZE, _SIZE, _SIZE), "float16").task(target)
    template, *_ = templates_of(task)
    space = KnobSpace(task, template)
    module = space.write(of_knobs(space.ranked[0], space.name)).mod
    kernel: Callable[..., object] = load_kernel(build_artifact(module, target)).module["main"]
    return kernel


def cost_of(builds: Iterator[Build], dtype: str) -> dict[str, Any]:
    """Medians and the largest of each figure, in seconds."""
    import numpy as np
    import tvm

    arrays = (np.ones((_SIZE, _SIZE), dtype) for _ in range(3))
    tensors = [tvm.runtime.tensor(array) for array in arrays]
    build_s, run_s = [], []
    for number, build in enumerate(builds):
        if not number:
            build()  # compiles the device and its header, where that was not done yet
        before_s = spent_cpu_s()
        kernel = build()
        built_s = spent_cpu_s()
        kernel(*tensors)
        build_s.append(built_s - before_s)
        run_s.append(spent_cpu_s() - built_s)
    return {"samples": len(run_s), "build_s": _spread(build_s), "run_s": _spread(run_s)}


def _spread(seconds: list[float]) -> dict[str, float]:
    return {"median": statistics.median(seconds), "most": max(seconds)}


if __name__ == "__main__":
    sys.exit(main())
