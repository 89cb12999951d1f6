"""Kernels for a CUDA device that add one to each element, most of them badly."""

from __future__ import annotations

from typing import Any

N = 1 << 16
BLOCK = 256


def kernels() -> dict[str, Any]:
    """Modules by what is wrong with each."""
    import tvm
    from tvm.script import tirx as T

    far = 1 << 40

    @T.prim_func(s_tir=True)
    def good(A: T.Buffer((N,), "float32"), B: T.Buffer((N,), "float32")):
        T.func_attr({"global_symbol": "main"})
        for block in T.thread_binding(N // BLOCK, thread="blockIdx.x"):
            for lane in T.thread_binding(BLOCK, thread="threadIdx.x"):
                B[block * BLOCK + lane] = A[block * BLOCK + lane] + T.float32(1)

    @T.prim_func(s_tir=True)
    def wrong(A: T.Buffer((N,), "float32"), B: T.Buffer((N,), "float32")):
        """Leaves one element out."""
        T.func_attr({"global_symbol": "main"})
        for block in T.thread_binding(N // BLOCK, thread="blockIdx.x"):
            for lane in T.thread_binding(BLOCK, thread="threadIdx.x"):
                if block * BLOCK + lane != 4321:
                    B[block * BLOCK + lane] = A[block * BLOCK + lane] + T.float32(1)

    @T.prim_func(s_tir=True)
    def vandal(A: T.Buffer((N,), "float32"), B: T.Buffer((N,), "float32")):
        """Right, but for what becomes of its input."""
        T.func_attr({"global_symbol": "main"})
        for block in T.thread_binding(N // BLOCK, thread="blockIdx.x"):
            for lane in T.thread_binding(BLOCK, thread="threadIdx.x"):
                B[block * BLOCK + lane] = A[block * BLOCK + lane] + T.float32(1)
                if block * BLOCK + lane == 77:
                    A[block * BLOCK + lane] = T.float32(5)

    @T.prim_func(s_tir=True)
    def stray(A: T.Buffer((N,), "float32"), B: T.Buffer((N,), "float32")):
        """Writes far beyond its output."""
        T.func_attr({"global_symbol": "main"})
        for block in T.thread_binding(N // BLOCK, thread="blockIdx.x"):
            for lane in T.thread_binding(BLOCK, thread="threadIdx.x"):
                B[T.Cast("int64", block * BLOCK + lane) + T.int64(far)] = A[block * BLOCK + lane]

    @T.prim_func(s_tir=True)
    def hang(A: T.Buffer((N,), "float32"), B: T.Buffer((N,), "float32")):
        """Waits for its input to change."""
        T.func_attr({"global_symbol": "main"})
        for block in T.thread_binding(N // BLOCK, thread="blockIdx.x"):
            for lane in T.thread_binding(BLOCK, thread="threadIdx.x"):
                B[block * BLOCK + lane] = T.float32(0)
                while B[block * BLOCK + lane] < T.float32(1):
                    B[block * BLOCK + lane] = B[block * BLOCK + lane] * T.float32(0.5)

    found = {"good": good, "wrong": wrong, "vandal": vandal, "stray": stray, "hang": hang}
    return {name: tvm.IRModule({"main": function}) for name, function in found.items()}


def program() -> Any:
    """What they should compute."""
    from tvm import te

    a = te.placeholder((N,), name="A")
    return te.create_prim_func([a, te.compute((N,), lambda i: a[i] + 1.0, name="B")])
