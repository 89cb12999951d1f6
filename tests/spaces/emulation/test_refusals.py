"""What the emulated device refuses, and what it says of programs that are wrong."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import pytest

from spaces.emulation.assembly import without_assembly
from spaces.emulation.compile import compile_kernels
from spaces.emulation.library import load_kernels
from tests.spaces.emulation.instructions.program import TensorMap
from tests.spaces.emulation.run_program import WAIT_FOR_NOBODY, run_emulated

pytestmark = pytest.mark.tvm
_HEAD = 'extern "C" __global__ void __launch_bounds__(128) tried(float* a) {\n'


def run(
    body: str, *, threads: int = 64, blocks: int = 1, shared_bytes: int = 0, size: int = 64
) -> Any:
    """The buffer after a kernel with this body ran; zeros before."""
    (after,) = run_emulated(
        f"{_HEAD}{body}\n}}\n",
        "tried",
        grid=(blocks, 1, 1),
        block=(threads, 1, 1),
        shared_bytes=shared_bytes,
        buffers=[np.zeros(size, np.float32)],
    )
    return after


@pytest.mark.parametrize(
    "text",
    ["tcgen05.alloc.cta_group::1.sync.aligned.b32 [%0], 32;", "mma.sync.aligned.m16n8k64.row.col"],
)
def test_an_instruction_that_is_not_known_is_refused_by_its_name(text: str) -> None:
    with pytest.raises(ValueError, match=text.split(" ")[0].rstrip(";").split("::")[0]):
        without_assembly(f'asm volatile("{text.rstrip(";")};" :: "r"(1));')


def test_threads_that_part_at_a_barrier_are_named_with_the_lines() -> None:
    with pytest.raises(RuntimeError, match=r"part at a barrier.*line \d+.*line \d+"):
        run("if (threadIdx.x < 32) {\n__syncthreads();\n} else {\n__syncthreads();\n}")


def test_a_barrier_that_some_threads_never_reach_is_named() -> None:
    code = 'asm volatile("bar.sync 3, 64;");'
    with pytest.raises(TimeoutError, match=r"never ends.*barrier 3"):
        run(f"if (threadIdx.x < 32) {{ {code} }}")


def test_an_mbarrier_that_nobody_completes_is_named() -> None:
    with pytest.raises(TimeoutError, match=r"mbarrier at 1024"):
        run(WAIT_FOR_NOBODY)


def test_a_loop_that_never_ends_meets_the_deadline() -> None:
    source = f"{_HEAD}volatile float* p = a; while (p[0] == 0.0f) {{}} }}\n"
    kernels = load_kernels(compile_kernels(source, 80), deadline_s=0.3)
    place = ctypes.c_void_p(np.zeros(4, np.float32).ctypes.data)
    with pytest.raises(TimeoutError, match="never comes to a barrier or its end"):
        kernels["tried"](place, 32, "threadIdx.x")


def test_lanes_that_part_at_a_shuffle_are_named() -> None:
    body = """
  float v = threadIdx.x;
  if (threadIdx.x < 16) {
    v = __shfl_xor_sync(0xffffffff, v, 1);
  } else {
    v = __shfl_xor_sync(0xffffffff, v, 2);
  }
  a[threadIdx.x] = v;"""
    with pytest.raises(RuntimeError, match=r"lanes of warp \d+ .* part"):
        run(body)


@pytest.mark.parametrize("place", [64 + 16, -1024])
def test_a_read_outside_of_a_buffer_is_seen(place: int) -> None:
    with pytest.raises(RuntimeError, match=r"outside of its buffers: .* of argument 0"):
        run(f"if (threadIdx.x == 5) a[0] = a[{place}];")


def test_a_write_next_to_a_buffer_is_seen() -> None:
    with pytest.raises(AssertionError):
        run("a[-1] = 1.0f;")


def test_a_write_past_an_array_of_shared_memory_is_seen() -> None:
    with pytest.raises(RuntimeError, match="past the end of tile"):
        run("__shared__ float tile[32]; tile[32 + threadIdx.x % 4] = 1.0f; a[0] = tile[0];")


def test_a_write_past_dynamic_shared_memory_is_seen() -> None:
    body = "extern __shared__ float tile[]; tile[threadIdx.x] = 1.0f; a[0] = tile[0];"
    assert run(body, shared_bytes=256)[0] == 1
    with pytest.raises(RuntimeError, match="shared memory"):
        run(body, shared_bytes=128)


def test_what_nobody_wrote_in_shared_memory_is_nan() -> None:
    assert np.isnan(run("__shared__ float tile[64]; a[threadIdx.x] = tile[threadIdx.x];")).all()


@pytest.mark.parametrize(
    "access",
    [
        "*(float4*)(a + 4 + {}) = make_float4(1, 2, 3, 4);",
        "a[0] = (*(float2*)(a + 2 + {})).x;",
        "a[0] = (*reinterpret_cast<const float4*>(a + {})).y;",
        'asm volatile("ld.global.v4.f32 {{%0, _, _, _}}, [%1];" : "=f"(a[0]) : "l"(a + {}));',
        'asm volatile("cp.async.ca.shared.global [%0], [%1], 8;" :: "r"(tile), "l"(a + {}));',
        'asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" :: "r"(tile + 4 * {}), "l"(a));',
        'asm volatile("st.shared.v2.f32 [%0], {{%1, %1}};" :: "r"(tile + 4 * {}), "f"(1.0f));',
    ],
)
def test_a_vector_at_no_multiple_of_its_size_is_refused(access: str) -> None:
    """As an H100 does: "misaligned address"."""
    head = "__shared__ float4 shared[8]; unsigned tile = __cvta_generic_to_shared(shared);\n"
    run(head + access.format(0), threads=1)
    with pytest.raises(RuntimeError, match=r"misaligned address: (8|16) bytes .*line 3"):
        run(head + access.format(1), threads=1)


@pytest.mark.parametrize(("first", "is_legal"), [(4, True), (-4, True), (2, False), (-1, False)])
def test_a_tile_begins_at_a_multiple_of_16_bytes_of_a_row(first: int, is_legal: bool) -> None:
    """Elsewhere an H100 answers with an illegal instruction."""
    copy = "cp.async.bulk.tensor.1d.shared::cluster.global.mbarrier::complete_tx::bytes"
    source = f"""
extern "C" __global__ void tried(const __grid_constant__ CUtensorMap map, float* a) {{
  __shared__ alignas(128) float tile[16];
  __shared__ uint64_t bar[1];
  unsigned to = __cvta_generic_to_shared(tile), at = __cvta_generic_to_shared(bar);
  asm volatile("mbarrier.init.shared.b64 [%0], 1;" :: "r"(at));
  asm volatile("fence.mbarrier_init.release.cluster;");
  asm volatile("{copy} [%0], [%1, {{%2}}], [%3];" :: "r"(to), "l"(&map), "r"({first}), "r"(at));
}}
"""

    def launch() -> None:
        run_emulated(
            source,
            "tried",
            grid=(1, 1, 1),
            block=(1, 1, 1),
            shared_bytes=0,
            buffers=[np.zeros(64, np.float32)],
            tensor_maps=[TensorMap(0, "float32", (64,), (), (16,))],
        )

    if is_legal:
        launch()
    else:
        with pytest.raises(RuntimeError, match=r"illegal instruction: .* no multiple of 16 bytes"):
            launch()


@pytest.mark.parametrize(
    ("dtype", "other", "is_known"),
    [("float32", 11, True), ("float32", -1, True), ("float32", 10, False), ("float16", 11, False)],
)
def test_copies_round_float32_to_tf32_and_nothing_else(
    dtype: str, other: int, is_known: bool
) -> None:
    encode = load_kernels(compile_kernels(f"{_HEAD}}}\n", 90))["runtime.cuTensorMapEncodeTiled"]
    room, data = (np.zeros(64, np.float64) for _ in range(2))
    first = -(-room.ctypes.data // 64) * 64
    places = ctypes.c_void_p(first), ctypes.c_void_p(-(-data.ctypes.data // 16) * 16)
    arguments = (places[0], dtype, 1, places[1], 16, 16, 1, 0, 0, 0, 0, other)
    if is_known:
        encode(*arguments)
    else:
        with pytest.raises(ValueError, match=r"a tensor map needs .* TF32"):
            encode(*arguments)


def test_a_sum_in_global_memory_takes_a_subnormal_number_for_zero() -> None:
    """As an H100 does, which keeps it in shared memory: `ask.atomic.subnormals`."""
    head = "__shared__ float s[1]; s[0] = 0.0f; float x = __uint_as_float(1u << 20);\n"
    after = run(head + "atomicAdd(a, x); atomicAdd(s, x); a[1] = s[0]; a[2] = x;", threads=1)
    assert after[0] == 0
    assert after[1] == after[2] > 0


def test_an_integer_divided_by_zero_is_seen() -> None:
    with pytest.raises(RuntimeError, match="divides an integer by zero"):
        run("a[0] = 7 / (int)a[1];")


def test_a_block_that_no_device_starts_is_refused() -> None:
    with pytest.raises(ValueError, match="256 threads in a block, and it is compiled for 128"):
        run("a[0] = 1.0f;", threads=256)
    with pytest.raises(ValueError, match="shared memory"):
        run("a[0] = 1.0f;", shared_bytes=300 << 10)


def test_assembly_of_other_forms_is_understood() -> None:
    body = """
  int x; unsigned long long pair; float low, high;
  asm ( "{\\n\\t"  // a comment
    ".reg .u32 t1, t2;\\n\\t"
    "mov.u32 t1, %%laneid;\\n\\t"
    "add.u32 t2, t1, %1;\\n\\t"
    "setp.lt.u32 p, t2, 10;" "}"
    : "=r"(x) : "n"(3));"""
    with pytest.raises(ValueError, match="p_p"):
        run(body)  # a register that was not declared
    body = body.replace("t1, t2;", "t1, t2;\\n.reg .pred p;").replace(
        '10;"', '10;\\n@p mov.u32 %0, t2;\\n@!p mov.u32 %0, 77;"'
    )
    body += """
  asm volatile("mov.b64 %0, {%1, %2};" : "=l"(pair) : "f"(1.5f), "f"(2.5f));
  asm volatile("mov.b64" "{%0, %1}, %2;" : "=f"(low), "=f"(high) : "l"(pair));
  a[threadIdx.x] = x + low * 100 + high * 1000;"""
    lanes = np.arange(64) % 32
    wanted = np.where(lanes + 3 < 10, lanes + 3, 77) + 150 + 2500
    np.testing.assert_array_equal(run(body), wanted)
