"""Where elements lie in the registers of `mma` is known beside the intrinsics, as TVM has it."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytestmark = pytest.mark.tvm

PROGRAM = """
from spaces.intrinsics.registration import register_intrinsics
register_intrinsics("cuda")
from itertools import product
from tvm_ffi import get_global_func
names = ("tirx.index_map_m16n8k8.matrixC", "tirx.index_map.shared_16x16_to_ldmatrix_32x8_layout")

def maps():
    found = [get_global_func(name) for name in names]
    return [[list(map(int, f(place))) for f in found] for place in product(range(16), range(16))]

ours = maps()
import tvm.s_tir.tensor_intrin.cuda  # registers them again
assert maps() == ours
"""


def test_index_maps_are_registered_with_the_intrinsics_and_are_tvm_s() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr


def test_intrinsics_are_registered_where_tvm_s_own_module_was_imported_before() -> None:
    program = """
from spaces.intrinsics.registration import register_intrinsics, stub_intrinsics
stub_intrinsics()
import tvm.s_tir.tensor_intrin.cuda
register_intrinsics("cuda")
register_intrinsics("cuda")
"""
    for _ in range(2):  # the first may have no parsed intrinsics at hand
        done = subprocess.run(
            [sys.executable, "-c", program], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
