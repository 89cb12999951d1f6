"""The other side: the vendor's libraries through torch, and Triton, in a process of its own.

    python -m benchmarks.gpu.torch_side product softmax ... > lines.jsonl

Writes a line of JSON for each workload as it is timed. Runs are timed in CUDA graphs, as ours are.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from typing import Any

from benchmarks.gpu.workloads import ON_A_DEVICE, Workload

_LAUNCHES, _SAMPLES, _WARM_S, _SPAN_S = 200, 10, 0.01, 0.002


def call_of(workload: Workload, rows: int = 0) -> tuple[Callable[..., Any], list[Any]]:
    """The function and its arguments on the device."""
    import torch
    from torch.nn import functional

    dtype = getattr(torch, workload.dtype)

    def drawn(*shape: int) -> Any:
        return torch.randn(*shape, device="cuda", dtype=dtype)

    sizes = (rows, *workload.sizes) if rows else workload.sizes
    if workload.kind in ("product", "int4"):  # beside codes, halves
        m, n, k = sizes
        return torch.mm, [drawn(m, k), drawn(k, n)]
    if workload.kind == "batched":
        b, m, n, k = sizes
        return (lambda x, y: torch.bmm(x, y.transpose(1, 2))), [drawn(b, m, k), drawn(b, n, k)]
    if workload.kind == "convolution":
        batch, channels, size, filters, width = sizes
        x, w = drawn(batch, channels, size, size), drawn(filters, channels, width, width)
        return (lambda a, b: functional.conv2d(a, b, padding=width // 2)), [x, w]
    if workload.kind == "attention":
        heads, length, width = sizes
        attend = functional.scaled_dot_product_attention
        return (lambda q, k, v: attend(q, k, v, is_causal=True)), [
            drawn(1, heads, length, width) for _ in range(3)
        ]
    if workload.kind == "softmax":
        return (lambda x: torch.softmax(x, 1)), [drawn(*sizes)]
    if workload.kind == "gelu":
        return (lambda x: functional.gelu(x, approximate="tanh")), [drawn(*sizes)]
    scale, shift = drawn(*sizes[1:]), drawn(*sizes[1:])
    return (lambda x, s, t: functional.layer_norm(x, sizes[1:], s, t)), [
        drawn(*sizes),
        scale,
        shift,
    ]


def time_call(function: Callable[..., Any], arguments: list[Any]) -> float:
    """Median seconds of one run, launched from a graph."""
    import torch

    torch.cuda.synchronize()
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for _ in range(3):
            function(*arguments)
    torch.cuda.synchronize()
    started_s = time.perf_counter()
    function(*arguments)
    torch.cuda.synchronize()
    once_s = max(1e-6, time.perf_counter() - started_s)
    launches = max(1, min(_LAUNCHES, int(_SPAN_S / once_s) + 1))
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(launches):
            function(*arguments)
    until_s = time.perf_counter() + _WARM_S
    while time.perf_counter() < until_s:
        graph.replay()
        torch.cuda.synchronize()
    samples = []
    for _ in range(_SAMPLES):
        first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        first.record()
        graph.replay()
        last.record()
        torch.cuda.synchronize()
        samples.append(first.elapsed_time(last) * 1e-3 / launches)
    median_s: float = sorted(samples)[_SAMPLES // 2]
    return median_s


def compare(workload: Workload, triton: bool) -> dict[str, Any]:
    """Times of a workload, in microseconds, or why there are none."""
    import torch

    said: dict[str, Any] = {"workload": workload.name}
    name = "triton" if triton else "torch"
    for rows in workload.rows or (0,):
        function, arguments = call_of(workload, rows)
        if triton:
            torch._dynamo.reset()
            function = torch.compile(
                function,
                options={"max_autotune": True, "max_autotune_gemm_backends": "TRITON"},
            )
        try:
            took_us = time_call(function, arguments) * 1e6
        except Exception as error:  # whatever torch throws
            said["error"] = str(error).strip().splitlines()[0][:200]
            break
        if workload.rows:
            said.setdefault(f"{name}_by_rows_us", {})[rows] = took_us
        else:
            said[f"{name}_us"] = took_us
    return said


def main() -> None:
    """Time the named workloads, or all: first by the libraries, then by Triton."""
    import torch

    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False
    torch.backends.cudnn.benchmark = True
    names = [name for name in sys.argv[1:] if not name.startswith("--")]
    triton = "--triton" in sys.argv
    torch.manual_seed(0)
    for workload in ON_A_DEVICE:
        if not names or workload.name in names:
            print(json.dumps(compare(workload, triton)), flush=True)


if __name__ == "__main__":
    main()
