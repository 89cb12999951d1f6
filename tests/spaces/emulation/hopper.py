"""Programs for the newest instructions, written in TIRx: copies of tiles, mbarriers, wgmma."""

from __future__ import annotations

from typing import Any

TARGET = {
    "kind": "cuda",
    "arch": "sm_90a",
    "max_threads_per_block": 1024,
    "max_num_threads": 1024,
}
_WIDE_SWIZZLE = 3


def product(
    m: int,
    n: int,
    k: int,
    *,
    columns: int = 64,
    dtype: str = "float16",
    map_swizzle: int = _WIDE_SWIZZLE,
) -> Any:
    """C = A B^T in halves with sums in float32, of any sizes of which n and k are multiples of 8.

    A producer's warpgroup fills four stages with tiles of 128 rows of A and `columns` rows of B by
    64 columns; two warpgroups multiply 64 rows each.

    Args:
        columns: of C in a block, a multiple of 8 up to 256.
        dtype: "float16" or "bfloat16".
        map_swizzle: of B's tensor map; any but the default is a fault.
    """
    from tvm.script import tirx as T

    bm, bn, bk, stages, sums = 128, columns, 64, 4, columns // 2
    steps, stage_bytes = -(-k // bk), (bm + bn) * bk * 2
    half = {"float16": "f16", "bfloat16": "bf16"}[dtype]
    encode = "runtime.cuTensorMapEncodeTiled"
    load = "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes"
    describe = T.cuda.wgmma.encode_matrix_descriptor
    multiply = f"wgmma.mma_async.sync.aligned.m64n{bn}k16.f32.{half}.{half}"

    @T.prim_func  # type: ignore[untyped-decorator]
    def main(a_ptr: T.handle, b_ptr: T.handle, c_ptr: T.handle) -> None:
        A = T.match_buffer(a_ptr, (m, k), dtype, align=16)
        B = T.match_buffer(b_ptr, (n, k), dtype, align=16)
        C = T.match_buffer(c_ptr, (m, n), dtype, align=16)
        a_map: T.let[T.handle("tensormap")] = T.tvm_stack_alloca("tensormap", 1)
        T.call_packed(encode, a_map, dtype, 2, A.data, k, m, k * 2, bk, bm, 1, 1, 0, 3, 0, 0)
        b_map: T.let[T.handle("tensormap")] = T.tvm_stack_alloca("tensormap", 1)
        T.call_packed(
            encode, b_map, dtype, 2, B.data, k, n, k * 2, bk, bn, 1, 1, 0, map_swizzle, 0, 0
        )
        T.device_entry()
        block_n, block_m = T.cta_id([-(-n // bn), -(-m // bm)])
        thread = T.thread_id([384])
        pool = T.SMEMPool()
        tile_a = pool.alloc((stages, bm * bk), dtype, align=1024)
        tile_b = pool.alloc((stages, bn * bk), dtype, align=1024)
        full = pool.alloc((stages,), "uint64", align=8)
        empty = pool.alloc((stages,), "uint64", align=8)
        pool.commit()
        if thread == 0:
            for i in T.unroll(stages):
                T.ptx.mbarrier.init.shared.b64(full.ptr_to([i]), T.uint32(1))
                T.ptx.mbarrier.init.shared.b64(empty.ptr_to([i]), T.uint32(2))
        T.ptx.fence.mbarrier_init.release.cluster()
        T.cuda.cta_sync()
        if thread < 128:
            T.ptx["setmaxnreg.dec.sync.aligned.u32"](40)
            if thread == 0:
                for step in T.serial(steps):
                    T.cuda.mbarrier_wait(empty.ptr_to([step % stages]), ((step // stages) % 2) ^ 1)
                    T.ptx.mbarrier.arrive.expect_tx.shared.b64(
                        full.ptr_to([step % stages]), T.uint32(stage_bytes)
                    )
                    T.ptx[load](
                        tile_a.ptr_to([step % stages, 0]),
                        T.address_of(a_map),
                        step * bk,
                        block_m * bm,
                        full.ptr_to([step % stages]),
                    )
                    T.ptx[load](
                        tile_b.ptr_to([step % stages, 0]),
                        T.address_of(b_map),
                        step * bk,
                        block_n * bn,
                        full.ptr_to([step % stages]),
                    )
        else:
            T.ptx["setmaxnreg.inc.sync.aligned.u32"](232)
            group = T.meta_var(thread // 128 - 1)
            acc = T.alloc_buffer((sums,), "float32", scope="local")
            of_a = T.alloc_buffer((1,), "uint64", scope="local")
            of_b = T.alloc_buffer((1,), "uint64", scope="local")
            for i in T.unroll(sums):
                acc[i] = T.float32(0)
            for step in T.serial(steps):
                T.cuda.mbarrier_wait(full.ptr_to([step % stages]), (step // stages) % 2)
                describe(
                    of_a.ptr_to([0]), tile_a.ptr_to([step % stages, group * 64 * bk]), 1, 64, 3
                )
                describe(of_b.ptr_to([0]), tile_b.ptr_to([step % stages, 0]), 1, 64, 3)
                T.ptx.wgmma.fence.sync.aligned()
                for kk in T.unroll(bk // 16):
                    T.ptx[multiply](
                        *[acc[i] for i in range(sums)],
                        of_a[0] + T.Cast("uint64", kk * 2),
                        of_b[0] + T.Cast("uint64", kk * 2),
                        T.ptx.pred(1),
                        1,
                        1,
                        0,
                        0,
                    )
                T.ptx.wgmma.commit_group.sync.aligned()
                # The wait for all of them is in the loop: after it, ptxas 13 moves the wait below
                # the reads of the sums, and an H100 then lacks the last products in them.
                if step == steps - 1:
                    T.ptx.wgmma.wait_group.sync.aligned(0)
                else:
                    T.ptx.wgmma.wait_group.sync.aligned(1)
                if thread % 128 == 0 and step > 0:
                    T.ptx.mbarrier.arrive.shared.b64(
                        empty.ptr_to([(step - 1) % stages]), T.uint32(1)
                    )
            row = T.meta_var(
                block_m * bm + group * 64 + (thread % 128) // 32 * 16 + (thread % 32) // 4
            )
            column = T.meta_var(block_n * bn + thread % 4 * 2)
            for i in T.unroll(sums // 4):
                for r in T.unroll(2):
                    for c in T.unroll(2):
                        if row + r * 8 < m and column + i * 8 + c < n:
                            C[row + r * 8, column + i * 8 + c] = T.Cast(
                                dtype, acc[i * 4 + r * 2 + c]
                            )

    return main


def copy(m: int, n: int) -> Any:
    """B = 2 A in float16: threads fill a tile of 32 rows and 64 columns in shared memory, and one
    of them has it stored."""
    from tvm.script import tirx as T

    bm, bn = 32, 64
    encode = "runtime.cuTensorMapEncodeTiled"
    store = "cp.async.bulk.tensor.2d.global.shared::cta.bulk_group"

    @T.prim_func  # type: ignore[untyped-decorator]
    def main(a_ptr: T.handle, b_ptr: T.handle) -> None:
        A = T.match_buffer(a_ptr, (m, n), "float16", align=16)
        B = T.match_buffer(b_ptr, (m, n), "float16", align=16)
        b_map: T.let[T.handle("tensormap")] = T.tvm_stack_alloca("tensormap", 1)
        T.call_packed(encode, b_map, "float16", 2, B.data, n, m, n * 2, bn, bm, 1, 1, 0, 0, 0, 0)
        T.device_entry()
        block_n, block_m = T.cta_id([-(-n // bn), -(-m // bm)])
        thread = T.thread_id([64])
        pool = T.SMEMPool()
        tile = pool.alloc((bm, bn), "float16", align=1024)
        pool.commit()
        for i in T.serial(bm):
            if block_m * bm + i < m and block_n * bn + thread < n:
                tile[i, thread] = A[block_m * bm + i, block_n * bn + thread] * T.float16(2)
        T.ptx["fence.proxy.async.shared::cta"]()
        T.cuda.cta_sync()
        if thread == 0:
            T.ptx[store](T.address_of(b_map), block_n * bn, block_m * bm, tile.ptr_to([0, 0]))
            T.ptx["cp.async.bulk.commit_group"]()
            T.ptx["cp.async.bulk.wait_group.read"](0)

    return main
