"""Products of bytes on tensor cores: which programs have them, and what the compiler makes of
them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from spaces.codegen.cuda.compile import compile_cuda
from spaces.design_space.knob_space import KnobSpace
from spaces.frontends.model import load_model
from spaces.ir import tvm_compat
from spaces.lowering.extract_tasks import task_of
from spaces.lowering.lower import lower
from spaces.targets.gpu import gpu_of
from spaces.targets.target import parse_target
from spaces.templates.registry import templates_of
from tests.needed import needs_nvcc
from tests.spaces.templates.open_programs import names
from tests.spaces.templates.tensor_cores import products, single_products
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
from tuner.request.model_spec import ModelSpec

pytestmark = pytest.mark.tvm
WARPS, WARPGROUPS = "kernel:ampere-int8-product-1", "kernel:hopper-int8-product-3"
ARCHITECTURES = {AMPERE: "sm_80", HOPPER: "sm_90a"}


def names_of(program: Program, sizes: Sizes, target: str = AMPERE) -> list[str]:
    return names(task_with(program, sizes, target))


@pytest.mark.parametrize("name", PROGRAMS)
def test_products_of_bytes_in_any_layout_have_it(name: str) -> None:
    program, every = PROGRAMS[name]
    for sizes in every:
        assert names_of(program, sizes) == [WARPS]


def test_warpgroups_multiply_where_the_terms_of_both_lie_next_to_one_another() -> None:
    found = {
        name: names_of(program, every[0], HOPPER) for name, (program, every) in PROGRAMS.items()
    }
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
        assert not {WARPS, WARPGROUPS} & {*names_of(program, Sizes(64, 64, 64))}
    assert names_of(matmul, Sizes(64, 64, 64)) == [WARPS]


def test_quantised_products_of_onnx_have_it(tmp_path: Path) -> None:
    from onnx import TensorProto, helper, numpy_helper, save

    rng = np.random.default_rng(0)
    constants = {
        "w": rng.integers(-127, 128, (96, 64), np.int8),
        "s": np.array(0.02, np.float32),
        "u": np.array(7, np.uint8),
        "z": np.array(0, np.int8),
    }
    steps = [
        helper.make_node("MatMulInteger", ["a", "w", "u"], ["sums"]),
        helper.make_node("QLinearMatMul", ["a", "s", "u", "w", "s", "z", "s", "u"], ["levels"]),
    ]
    outputs = [("sums", TensorProto.INT32), ("levels", TensorProto.UINT8)]
    graph = helper.make_graph(
        steps,
        "products",
        [helper.make_tensor_value_info("a", TensorProto.UINT8, (48, 96))],
        [helper.make_tensor_value_info(name, kind, (48, 64)) for name, kind in outputs],
        [numpy_helper.from_array(value, name) for name, value in constants.items()],
    )
    file = tmp_path / "products.onnx"
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)]), file)
    lowered = lower(load_model(ModelSpec(str(file))).module, parse_target(AMPERE))
    programs = [f for name, f in tvm_compat.prim_funcs(lowered) if "matmul" in name]
    assert programs
    for program in programs:
        task = task_of(program, AMPERE, name="product")
        assert [t.name for t in templates_of(task)] == [WARPS]


@pytest.mark.parametrize("target", [AMPERE, HOPPER], ids=["ampere", "hopper"])
def test_large_products_of_smaller_types_are_estimated_to_take_less(target: str) -> None:
    sizes, gpu = Sizes(4096, 4096, 4096), gpu_of(target)
    rates = {8: 2.0, 16: 1.0, 32: 1 / 6}
    programs: dict[int, Program] = {
        8: lambda s: matmul(s, nt=True),
        16: lambda s: products.matmul(s, nt=True),
        32: lambda s: single_products.matmul(s, nt=True),
    }
    took = {}
    for bits, program in programs.items():
        task = task_with(program, sizes, target)
        template = next(t for t in templates_of(task) if "-product-" in t.name)
        took[bits] = KnobSpace(task, template).least_s
        operations = 2 * 4096**3 / (gpu.tensor_operations * rates[bits])
        assert took[bits] > operations / (gpu.multiprocessors * gpu.hertz)
    assert took[8] < 0.7 * took[16]
    assert took[16] < 0.25 * took[32]


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


@needs_nvcc
def test_no_sum_of_warpgroups_is_read_before_the_last_product(tmp_path: Path) -> None:
    task = task_with(PROGRAMS["requantized NT"][0], Sizes(4096, 4096, 4096), HOPPER)
    space = KnobSpace(task, templates_of(task)[0])
    knobs = next(s for s in space.ranked if not s["bulk_stores"] and not s["persistent"])
    source = compile_setting(space, knobs).imports[0].inspect_source("cuda")
    assembly = disassemble(compile_cuda(source, "sm_90a").binary, tmp_path)
    order = re.findall(r"IGMMA|DEPBAR\.LE gsb0, 0x0|I2F", assembly)
    products, waits, reads = (
        [place for place, word in enumerate(order) if kind in word]
        for kind in ("IGMMA", "0x0", "I2F")
    )
    assert len(waits) == 1
    assert products[-1] < waits[0] < reads[0]
