"""A matrix product in TVMScript, for `tuner tune examples/gemm.py:gemm --arg m=512`.

With `--dim M=16..2048:16` the rows stay symbolic: one function is made for all of these sizes.
"""

from __future__ import annotations

from tvm import te
from tvm.script import tirx as T
from tvm.tirx import PrimFunc

from tuner import ShapeVar


def gemm(m: int = 512, n: int = 512, k: int = 512, M: ShapeVar | None = None) -> PrimFunc:
    """C = A B, in float32: A is m by k, B is k by n. With M, A has so many rows instead."""
    if M is not None:
        return open_gemm(M, n, k)

    @T.prim_func(s_tir=True)
    def gemm(
        A: T.Buffer((m, k), "float32"),
        B: T.Buffer((k, n), "float32"),
        C: T.Buffer((m, n), "float32"),
    ):
        T.func_attr({"global_symbol": "gemm", "tirx.noalias": True})
        for i, j, r in T.grid(m, n, k):
            with T.sblock("C"):
                vi, vj, vr = T.axis.remap("SSR", [i, j, r])
                with T.init():
                    C[vi, vj] = T.float32(0)
                C[vi, vj] = C[vi, vj] + A[vi, vr] * B[vr, vj]

    return gemm


def open_gemm(rows: ShapeVar, columns: int, depth: int) -> PrimFunc:
    """The same with rows that are known only when it runs, as a tensor expression."""
    a = te.placeholder((rows, depth), name="A")
    b = te.placeholder((depth, columns), name="B")
    step = te.reduce_axis((0, depth), "r")
    c = te.compute((rows, columns), lambda i, j: te.sum(a[i, step] * b[step, j], step), "C")
    return te.create_prim_func([a, b, c]).with_attr("global_symbol", "gemm")
