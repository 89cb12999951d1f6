"""A matrix product in TVMScript, for `tuner tune examples/gemm.py:gemm --arg m=512`."""

from __future__ import annotations

from tvm.script import tirx as T
from tvm.tirx import PrimFunc


def gemm(m: int = 512, n: int = 512, k: int = 512) -> PrimFunc:
    """C = A B, in float32: A is m by k, B is k by n."""

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
