"""How warps use the banks of shared memory, counted from the addresses that lanes really use."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest

from spaces.emulation.compile import compile_kernels
from spaces.emulation.library import SharedUse, list_shared_uses, load_kernels, watch_shared
from tests.spaces.emulation.run_program import TAGS

pytestmark = pytest.mark.tvm

LDMATRIX = (
    'asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3},[%4];"'
    ' : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])'
    ' : "r"((unsigned)__cvta_generic_to_shared(bytes) + PLACE));'
)
COPY = (
    'asm volatile("cp.async.cg.shared.global [%0], [%1], 16;"'
    ' :: "r"((unsigned)__cvta_generic_to_shared(bytes) + PLACE), "l"(out));'
)


def uses_of(statement: str, *, threads: int = 32) -> list[SharedUse]:
    """What a statement of a kernel does; `l` is the number of a thread."""
    source = (
        'extern "C" __global__ void watched(float* out) {\n'
        "  __shared__ alignas(128) float words[4096];\n"
        "  __shared__ alignas(128) unsigned char bytes[16384];\n"
        "  unsigned r[4]; int l = threadIdx.x; float sum = 0.0f;\n"
        f"  {statement}\n"
        "  out[l] = sum;\n}\n"
    )
    module = load_kernels(compile_kernels(source, 80, watched=True))
    watch_shared(module)
    out = np.zeros(64, np.float32)
    place = ctypes.c_void_p(out.ctypes.data)
    module["watched"](place, 1, 1, 1, threads, 1, 1, 0, ",".join(TAGS))
    return list_shared_uses(module)


@pytest.mark.parametrize(
    ("statement", "wavefronts", "least"),
    [
        ("sum = words[l];", 1, 1),
        ("sum = words[7];", 1, 1),  # one word for all
        ("sum = words[2 * l];", 2, 1),
        ("sum = words[32 * l];", 32, 1),
        ("sum = words[33 * l];", 1, 1),  # a row is a word longer
        ("sum = words[32 * (l % 2) + l / 2];", 2, 1),
        ("if (l % 2) sum = words[32 * l];", 16, 1),
        ("words[l ^ 5] = sum;", 1, 1),
        ("bytes[l] = 1;", 1, 1),  # four lanes in a word
        ("((float*)bytes)[4 * l] = sum;", 4, 1),
        ("*(float2*)(words + 2 * l) = make_float2(0, 0);", 2, 2),
        ("*(float2*)(words + 4 * l) = make_float2(0, 0);", 4, 2),
        ("*(float4*)(words + 4 * l) = make_float4(0, 0, 0, 0);", 4, 4),
        ("*(float4*)(words + 8 * l) = make_float4(0, 0, 0, 0);", 8, 4),
        ("*(float4*)(words + 32 * (l % 8)) = make_float4(0, 0, 0, 0);", 32, 4),
    ],
)
def test_lanes_that_want_other_words_of_a_bank_take_turns(
    statement: str, wavefronts: int, least: int
) -> None:
    (use,) = uses_of(statement)
    assert (use.accesses, use.wavefronts, use.least) == (1, wavefronts, least)


def test_a_kernel_s_own_array_is_not_watched_for_the_name_of_another_s() -> None:
    source = (
        'extern "C" __global__ void watched(float* out) {\n'
        "  __shared__ float words[64];\n"
        "  words[threadIdx.x] = 1.0f;\n  out[threadIdx.x] = words[2 * threadIdx.x % 64];\n}\n"
        'extern "C" __global__ void other(float* out) {\n'
        "  alignas(64) float words[1];\n"
        "  words[0] = 2.0f;\n  out[threadIdx.x] = words[0];\n}\n"
    )
    module = load_kernels(compile_kernels(source, 80, watched=True))
    watch_shared(module)
    out = np.zeros(64, np.float32)
    for name in ("watched", "other"):
        place = ctypes.c_void_p(out.ctypes.data)
        module[name](place, 1, 1, 1, 32, 1, 1, 0, ",".join(TAGS))
    assert {(use.line, use.wavefronts) for use in list_shared_uses(module)} == {(3, 1), (4, 2)}


@pytest.mark.parametrize(
    ("place", "wavefronts"),
    [
        ("16 * l", 4),
        ("128 * (l % 8) + 16 * (l / 8)", 32),  # rows one below the other
        ("128 * (l % 8) + 16 * (l / 8 ^ l % 8)", 4),  # in an order of their own
        ("80 * (l % 8) + 16 * (l / 8)", 4),  # with 16 bytes between them
    ],
)
@pytest.mark.parametrize(("statement", "what"), [(LDMATRIX, "ldmatrix"), (COPY, "cp.async")])
def test_rows_of_matrices_and_copies_come_eight_at_a_time(
    statement: str, what: str, place: str, wavefronts: int
) -> None:
    (use,) = uses_of(statement.replace("PLACE", place))
    assert (use.what, use.item_bytes, use.accesses) == (what, 16, 1)
    assert (use.wavefronts, use.least) == (wavefronts, 4)


def test_a_loop_s_turns_are_accesses_of_their_own_in_each_warp() -> None:
    (use,) = uses_of("for (int i = 0; i < 5; ++i) sum += words[l * (i + 1)];", threads=64)
    assert (use.line, use.accesses, use.least) == (5, 10, 10)
    assert use.wavefronts == 2 * (1 + 2 + 1 + 4 + 1)  # strides of 1 to 5 words


def test_places_of_one_line_are_told_apart_and_addresses_are_no_accesses() -> None:
    uses = uses_of("sum = words[l] + words[32 * l]; r[0] = (unsigned)(size_t)(&(words[32 * l]));")
    assert sorted((use.wavefronts, use.accesses) for use in uses) == [(1, 1), (32, 1)]
