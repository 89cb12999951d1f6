"""Products of bytes on tensor cores: which programs have them, and what the compiler makes of
them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from spaces.codegen.cuda.compile import compile_cuda
from spaces.design_space.knob_space import KnobSpace
from spaces.targets.gpu import gpu_of
from spaces.templates.registry import templates_of
from tests.needed import needs_nvcc
from tests.spaces.templates.tensor_cores.byte_products import PROGRAMS, matmul
from tests.spaces.templates.tensor_cores.products import (
    AMPERE,
    HOPPER,
    Program,
    Sizes,
    operands_of,
    sums_of,
    task_with,
)
from tests.spaces.templates.tensor_cores.test_hopper_template import compile_setting, disassemble

pytestmark = pytest.mark.tvm
WARPS, WARPGROUPS = "kernel:ampere-int8-product-1", "kernel:hopper-int8-product-1"
ARCHITECTURES = {AMPERE: "sm_80", HOPPER: "sm_90a"}


def names(program: Program, sizes: Sizes, target: str = AMPERE) -> list[str]:
    return [t.name for t in templates_of(task_with(program, sizes, target))]


@pytest.mark.parametrize("name", PROGRAMS)
def test_products_of_bytes_in_any_layout_have_it(name: str) -> None:
    program, every = PROGRAMS[name]
    for sizes in every:
        assert names(program, sizes) == [WARPS]


def test_warpgroups_multiply_where_the_terms_of_both_lie_next_to_one_another() -> None:
    found = {name: names(program, every[0], HOPPER) for name, (program, every) in PROGRAMS.items()}
    of_warpgroups = {name for name, spaces in found.items() if spaces == [WARPGROUPS]}
    assert of_warpgroups == {
        "NT",
        "odd",
        "signs of one",
        "one row",
        "requantized NT",
        "dequantized",
        "open rows NT",
    }
    assert all(found[name] == [WARPS] for name in {*PROGRAMS} - of_warpgroups)


def test_products_that_wrap_around_in_bytes_are_left_to_others() -> None:
    def in_bytes(s: Sizes) -> Any:
        from tvm import te

        a, b = operands_of(s, True, False, "int8", "int8")
        r = te.reduce_axis((0, s.k), "r")
        total = te.compute(
            (s.m, s.n), lambda i, j: te.sum((a[i, r] * b[j, r]).astype("int32"), r), "c"
        )
        return te.create_prim_func([a, b, total])

    def other_signs(s: Sizes) -> Any:
        from tvm import te

        a, b = operands_of(s, True, False, "uint8", "int8")
        r = te.reduce_axis((0, s.k), "r")
        total = te.compute(
            (s.m, s.n),
            lambda i, j: te.sum(
                a[i, r].astype("int8").astype("int32") * b[j, r].astype("int32"), r
            ),
            "c",
        )
        return te.create_prim_func([a, b, total])

    def in_short(s: Sizes) -> Any:
        from tvm import te

        a, b = operands_of(s, True, False, "int8", "int8")
        return te.create_prim_func([a, b, sums_of(a, b, True, False, "int16")])

    for program in (in_bytes, other_signs, in_short):
        assert not {WARPS, WARPGROUPS} & {*names(program, Sizes(64, 64, 64))}
    assert names(matmul, Sizes(64, 64, 64)) == [WARPS]


@needs_nvcc
@pytest.mark.parametrize(
    ("name", "target", "multiplied"),
    [
        ("NT", AMPERE, r"IMMA\.16832\.S8\.S8"),
        ("NN", AMPERE, r"IMMA\.16832\.S8\.S8"),
        ("signs of one", AMPERE, r"IMMA\.16832\.(U8\.S8|S8\.U8)"),
        ("NT", HOPPER, r"IGMMA\.64x\d+x32\.S8\.S8"),
        ("signs of one", HOPPER, r"IGMMA\.64x\d+x32\.(U8\.S8|S8\.U8)"),
    ],
)
def test_the_best_predicted_multiply_bytes_and_spill_nothing(
    name: str, target: str, multiplied: str, tmp_path: Path
) -> None:
    task = task_with(PROGRAMS[name][0], Sizes(4096, 4096, 4096), target)
    space = KnobSpace(task, templates_of(task)[0])
    source = compile_setting(space, space.ranked[0], target).imports[0].inspect_source("cuda")
    code = compile_cuda(source, ARCHITECTURES[target])
    (use,) = code.uses.values()
    assert use.stack_bytes == use.spill_store_bytes == 0
    assert use.registers <= gpu_of(target).registers // use.threads
    assembly = disassemble(code.binary, tmp_path)
    found = re.findall(r"IG?MMA\.[\w.]+", assembly)
    assert found
    assert all(re.fullmatch(multiplied + r".*", one) for one in found)
    assert ("LDSM.16.MT88" in assembly) == (name == "NN")
    assert "LDS.U8" not in assembly
    assert ("UTMALDG" in assembly) == (target == HOPPER)
    assert target == HOPPER or "LDGSTS.E.BYPASS.128" in assembly
