"""Kernels that are compiled in a second: by NVRTC or by nvcc, one in each call.

    python -m benchmarks.gpu.compile_rate --out benchmarks/results/gpu/compile.json

The kernels are drawn from the spaces of `benchmarks.gpu`'s workloads, as a search draws them. Ways
take turns, on all of this machine's cores. The CPU's seconds tell most where a machine is not idle.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import re
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.gpu.instructions.compile import run_nvcc, version_of_nvcc
from benchmarks.gpu.workloads import ON_A_DEVICE
from benchmarks.machine import spent_cpu_s
from spaces.codegen.cuda.nvcc import find_nvcc
from spaces.codegen.cuda.nvrtc import compile_by_nvrtc, find_nvrtc
from tuner.errors import TunerError
from tuner.files.atomic import write_bytes

_KINDS = ("product f32 1024", "product f16 1024", "convolution f32 3x3", "softmax 4096x4096")
_EACH, _ARCHES = 4, ("sm_80", "sm_90a")


@dataclass(frozen=True, slots=True)
class Way:
    """How kernels are compiled."""

    compiler: str
    arch: str


WAYS = tuple(Way(compiler, arch) for arch in _ARCHES for compiler in ("nvrtc", "nvcc"))


def main() -> int:
    """Run the command line."""
    flags = argparse.ArgumentParser(prog="python -m benchmarks.gpu.compile_rate")
    flags.add_argument("--rounds", type=int, default=5)
    flags.add_argument("--out", type=Path)
    options = flags.parse_args()
    cores = len(os.sched_getaffinity(0))
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(cores, mp_context=context) as pool:
        sources = [s for found in pool.map(emit_sources, _KINDS) for s in found]
        rounds: dict[Way, list[dict[str, float]]] = {way: [] for way in WAYS}
        list(pool.map(compile_call, [sources[0]] * cores, [WAYS[0]] * cores))  # libraries loaded
        for _ in range(options.rounds):
            for way in WAYS:
                rounds[way].append(time_way(pool, sources, way))
    said = {
        "nvcc": version_of_nvcc(),
        "cores": cores,
        "kernels": len(sources),
        "lines": sum(len(source.splitlines()) for source in sources),
        "ways": [summarise(way, found) for way, found in rounds.items()],
    }
    text = json.dumps(said, indent=1) + "\n"
    print(text, end="")
    if options.out is not None:
        write_bytes(options.out, text.encode())
    return 0


def emit_sources(name: str) -> list[str]:
    """CUDA C of some kernels of a workload's space, each with a name of its own."""
    from spaces.codegen.artifact import compile_kernel
    from spaces.codegen.cuda.device_code import source_of
    from spaces.targets.target import parse_target, resolve_target

    workload = next(w for w in ON_A_DEVICE if w.name == name)
    target = resolve_target('{"kind":"cuda","arch":"sm_80"}')
    found: list[str] = []
    for scheduled in workload.draw(target, _EACH):
        library, _ = compile_kernel(scheduled, parse_target(target))
        for module in library.imports:
            number = f"{_KINDS.index(name)}_{len(found)}"
            found.append(re.sub(r"\bmain_kernel", f"kernel_{number}", source_of(module)))
    return found


def time_way(pool: ProcessPoolExecutor, sources: Sequence[str], way: Way) -> dict[str, float]:
    """Compile all once: kernels in a second, and seconds of a CPU for each."""
    started_s = time.perf_counter()
    cpu_s = sum(pool.map(compile_call, sources, [way] * len(sources)))
    wall_s = time.perf_counter() - started_s
    return {"kernels_per_s": len(sources) / wall_s, "cpu_s_per_kernel": cpu_s / len(sources)}


def compile_call(source: str, way: Way) -> float:
    """Compile one; seconds of the CPU that it took.

    Raises:
        RuntimeError: the compiler is not there, or refuses them.
    """
    before_s = spent_cpu_s()
    nvcc = find_nvcc()
    if way.compiler == "nvcc":
        with tempfile.TemporaryDirectory(prefix="rate-") as folder:
            target = Path(folder) / "kernels.cubin"
            if error := run_nvcc(source, target, arch=way.arch, fast_math=False):
                raise RuntimeError(error)
    else:
        path = find_nvrtc(nvcc.parent.parent, version_of_nvcc())
        if path is None:
            raise RuntimeError("there is no NVRTC of nvcc's version")
        compile_by_nvrtc(path, source, way.arch, nvcc.parent.parent)
    return spent_cpu_s() - before_s


def summarise(way: Way, rounds: Sequence[dict[str, float]]) -> dict[str, Any]:
    """A way's medians, and all of its rounds."""
    medians = {key: statistics.median(found[key] for found in rounds) for key in rounds[0]}
    named = {"compiler": way.compiler, "arch": way.arch}
    return {**named, **medians, "rounds": list(rounds)}


if __name__ == "__main__":
    try:
        sys.exit(main())
    except TunerError as error:
        sys.exit(str(error))
