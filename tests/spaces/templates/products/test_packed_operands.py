"""Products on GPUs that read codes of a few bits: which are taken, how codes are read, what the
compiler makes of it, and that whole models are right."""

from __future__ import annotations

import re
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from spaces.codegen.cuda.compile import compile_cuda
from spaces.codegen.executable import compile_module, run_once
from spaces.deploy.apply import apply_best
from spaces.design_space.knob_space import KnobSpace
from spaces.ir import tvm_compat
from spaces.lowering.extract_tasks import extract, task_of
from spaces.targets.target import emulate_target
from spaces.templates.contraction.match import extents_of_shapes, match_contraction
from spaces.templates.few_rows.family import NAME as FEW
from spaces.templates.products.packed import Vector, find_vector
from spaces.templates.products.product import Product, find_product
from spaces.templates.registry import templates_of
from spaces.templates.thread_products.family import NAME as THREADS
from tests.needed import needs_nvcc
from tests.spaces.frontends.onnx.beside_onnxruntime import by_reference, lowered, parsed
from tests.spaces.frontends.onnx.packed_networks import floats, product, unpack
from tests.spaces.templates.few_rows.few_row_programs import matmul
from tests.spaces.templates.open_programs import names, space_named
from tests.spaces.templates.tensor_cores.packed_products import Packing, blocks, columns
from tests.spaces.templates.tensor_cores.products import AMPERE, HOPPER, Sizes
from tests.spaces.templates.tensor_cores.test_hopper_template import compile_setting, disassemble
from tuner.candidate import of_knobs
from tuner.dynamic.dispatch_tree import Leaf
from tuner.dynamic.kernel_set import KernelSet, ShapeTimes
from tuner.task import Task

pytestmark = pytest.mark.tvm

OLD = emulate_target('{"kind":"cuda","arch":"sm_75"}')
ROWS = (1, 2, 5, 8, 16, 33, 64, 100)


def task_with(sizes: Sizes, target: str = HOPPER, **packing: Any) -> Task:
    return task_of(blocks(sizes, Packing(**packing)), target, name="product")


def product_of(task: Task) -> Product | None:
    match = match_contraction(task)
    assert match is not None
    return find_product(match, extents_of_shapes(match, task.shapes)[1])


@cache
def vector_of(**packing: Any) -> tuple[Product, Vector]:
    """The product of some weights, and how the widest vector of these is made."""
    found = product_of(task_with(Sizes(1, 64, 256), **packing))
    assert found is not None
    return found, widest_vector(found)


def widest_vector(found: Product) -> Vector:
    packed = found.packed[1]
    assert packed is not None
    vector = find_vector(packed, found.packed_widths[1])
    assert vector is not None
    return vector


# ---- what is taken


def test_a_product_of_codes_has_the_templates_of_one_of_floats() -> None:
    one, many = Sizes(1, 64, 256), Sizes(64, 64, 256)
    assert names(task_with(one)) == ["kernel:hopper-product-4", FEW]
    assert names(task_with(many, AMPERE)) == ["kernel:ampere-product-2"]
    assert names(task_with(many, OLD)) == [THREADS]
    single = names(task_with(many, AMPERE, kind="float32"))
    assert single == [THREADS, "kernel:ampere-tf32x3-product-1"]


def test_memory_is_read_for_codes_and_not_for_what_they_stand_for() -> None:
    for packing, bits in (({}, 4 + 16 / 32), ({"bits": 8, "block": 64}, 8 + 16 / 64)):
        found, _ = vector_of(**packing)
        assert found.item_bytes(1) == bits / 8
        assert found.item_bytes(0) == 2
    packed, halves = (
        space_named(task, FEW).least_s
        for task in (
            task_with(Sizes(1, 4096, 4096)),
            task_of(matmul(1, 4096, 4096, nt=True), HOPPER, name="product"),
        )
    )
    assert packed < 0.45 * halves


def test_a_stage_that_makes_more_of_less_in_another_way_is_no_packed_operand() -> None:
    """Of numbers that are as wide as what is made of them, or where a condition tells what is."""
    from tvm import te, tirx

    def program(make: Any) -> Task:
        x = te.placeholder((4, 64), "float16", name="x")
        codes = te.placeholder((64, 32), "float16", name="codes")
        small = te.placeholder((64, 32), "int8", name="small")
        w = te.compute((64, 32), lambda i, j: make(codes, small, i, j), "w")
        r = te.reduce_axis((0, 64), "r")
        total = te.compute((4, 32), lambda i, j: te.sum(x[i, r] * w[r, j], r), "c")
        return task_of(te.create_prim_func([x, codes, small, total]), HOPPER, name="product")

    def wide(codes: Any, _small: Any, i: Any, j: Any) -> Any:
        return codes[i, j] * tirx.const(2, "float16")

    def pad(_codes: Any, small: Any, i: Any, j: Any) -> Any:
        zero = tirx.const(0, "float16")
        return tirx.if_then_else(i < 60, small[i, j].astype("float16"), zero)

    for make in (wide, pad):
        match = match_contraction(program(make))
        assert match is None or find_product(match) is None


# ---- how codes are read


def test_the_widest_vector_is_one_load_of_codes_and_what_its_block_has() -> None:
    for packing, width in (({}, 32), ({"bits": 8}, 16), ({"bits": 2, "block": 64}, 64)):
        _, vector = vector_of(**packing)
        (span,) = vector.spans
        assert span.load_bytes == len(span.numbers) == 16 * min(width, 32) // width
        assert len(vector.elements) == min(width, 32)
        assert len(vector.alike) == 1, "the scale"
    _, vector = vector_of(zeros=True)
    assert len(vector.alike) == 2
    assert vector.registers == 6


def test_sums_of_a_vector_may_be_scaled_in_place_of_its_elements() -> None:
    _, vector = vector_of(zeros=True)
    scale, codes = vector.factor()
    assert any(scale.same_as(variable) for variable, _ in vector.alike)
    assert len(codes) == 32
    found = product_of(task_of(columns(Sizes(1, 64, 32), "float16"), HOPPER, name="product"))
    assert found is not None
    assert found.turned[1]
    across = widest_vector(found)
    assert across.factor() == (None, across.elements)


# ---- what the compiler makes of it


@needs_nvcc
@pytest.mark.each_value
@pytest.mark.parametrize(("target", "arch"), [(AMPERE, "sm_80"), (HOPPER, "sm_90a")])
def test_codes_of_one_row_take_wide_loads_and_few_instructions(
    target: str, arch: str, tmp_path: Path
) -> None:
    space = space_named(task_with(Sizes(1, 4096, 4096), target), FEW)
    best = space.ranked[0]
    source = compile_setting(space, best, target).imports[0].inspect_source("cuda")
    code = compile_cuda(source, arch)
    assert all(use.stack_bytes == use.spill_store_bytes == 0 for use in code.uses.values())
    loads = Counter(re.findall(r"LDG\.E\.(\w+)", assembly := disassemble(code.binary, tmp_path)))
    elements = best["vector"] * best["columns"] * best["unroll"]
    assert best["vector"] == 32
    assert loads["128"] >= elements // 32
    assert loads["U16"] == elements // 32, "one scale for each block"
    named = re.findall(r"/\*[0-9a-f]{4}\*/ +(?:@!?U?P\d )?([A-Z]\w+)", assembly)
    assert len(named) < 4.5 * elements
    assert "I2F" not in assembly, "which is slow"


@needs_nvcc
@pytest.mark.each_value
@pytest.mark.parametrize(
    ("target", "arch", "kind"),
    [(AMPERE, "sm_80", "float16"), (AMPERE, "sm_80", "float32"), (HOPPER, "sm_90a", "bfloat16")],
)
def test_products_of_many_rows_unpack_on_the_way_to_shared_memory(
    target: str, arch: str, kind: str, tmp_path: Path
) -> None:
    task = task_with(Sizes(4096, 4096, 4096), target, kind=kind)
    space = KnobSpace(task, templates_of(task)[-1])
    source = compile_setting(space, space.ranked[0], target).imports[0].inspect_source("cuda")
    code = compile_cuda(source, arch)
    assert all(use.stack_bytes == use.spill_store_bytes == 0 for use in code.uses.values())
    assembly = disassemble(code.binary, tmp_path)
    assert re.search(r"HGMMA" if arch == "sm_90a" else r"HMMA", assembly)
    assert re.search(r"LDG\.E\.128", assembly)
    assert re.search(r"STS\.128", assembly)
    assert "PRMT" in assembly
    assert "I2F" not in assembly


# ---- whole models


def kernels_of(proto: Any, target: str, turn: int, dim: str = "m") -> tuple[Any, list[str]]:
    """A model with the best predicted kernel of one of the templates of each of its programs, for
    any size of an open dimension, and the templates' names."""
    shapes = tuple((((dim, size),), 1.0) for size in ROWS[:4])
    module, chosen = lowered(proto, target), {}
    for task in extract(module, target, shapes=shapes):
        known = templates_of(task)
        space = KnobSpace(task, known[turn % len(known)])
        times = tuple(ShapeTimes(shape, 1.0, 0, 1e-6, 1e-6, True) for shape, _ in task.shapes)
        one = of_knobs(space.ranked[0], space.name)
        chosen[task.key] = task, KernelSet((one,), Leaf(0), (1.0,), 1.0, times, None, 0)
    used = sorted(kernels.kernels[0].space for _, kernels in chosen.values())
    return apply_best({}, target, chosen)(module), used


@pytest.mark.parametrize("turn", [0, 1])
@pytest.mark.parametrize("target", [AMPERE, HOPPER, OLD], ids=["ampere", "hopper", "old"])
def test_a_product_of_open_rows_is_right_at_each_number_of_them(target: str, turn: int) -> None:
    proto, operands = product(4, 32, "packed", "float16", columns=72, depth=160)
    module, spaces = kernels_of(proto, target, turn)
    assert len(spaces) == 1, "the product unpacks its weights"
    assert (spaces == [FEW]) == (turn == 1)
    weights, library = unpack(operands, 4, 32), compile_module(module, target)
    for rows in ROWS:
        x = floats(rows, 160, dtype="float16")
        (got,) = run_once(library, [x])
        np.testing.assert_allclose(got, x.astype("float64") @ weights, rtol=2e-3, atol=5e-3)


@pytest.mark.parametrize("said", [{"groups": True}, {"bits": 8, "zeros": "floats"}])
def test_weights_in_other_forms_are_unpacked_in_products_too(said: Any) -> None:
    bits, zeros = said.pop("bits", 4), said.pop("zeros", "")
    proto, operands = product(bits, 16, zeros, "float16", columns=40, depth=96, **said)
    weights = unpack(operands, bits, 16)
    for turn in range(2):
        module, spaces = kernels_of(proto, AMPERE, turn)
        assert len(spaces) == 1
        x = floats(9, 96, dtype="float16")
        (got,) = run_once(compile_module(module, AMPERE), [x])
        np.testing.assert_allclose(got, x.astype("float64") @ weights, rtol=3e-3, atol=5e-3)


def test_a_table_that_rows_are_taken_of_and_a_product_reads_is_unpacked_for_both() -> None:
    """Tied embeddings: the rows are a program of their own."""
    rng = np.random.default_rng(0)
    table = rng.integers(0, 256, (64, 4, 16)).astype("uint8")
    scales = (rng.random((64, 4)) / 16).astype("float16")
    proto = parsed(
        """<ir_version: 10, opset_import: ["" : 21, "com.microsoft" : 1]>
        g (int64[n] tokens) => (float16[n, 64] y) {
        flat = Reshape(table, shape)
        rows = com.microsoft.GatherBlockQuantized<block_size = 32, bits = 4, gather_axis = 0,
            quantize_axis = 1>(flat, tokens, scales)
        y = com.microsoft.MatMulNBits<K = 128, N = 64, bits = 4, block_size = 32>
            (rows, table, scales) }""",
        table=table,
        scales=scales,
        shape=np.array([64, 64]),
    )
    module, spaces = kernels_of(proto, HOPPER, 1, "n")
    assert FEW in spaces
    tokens = np.array([3, 0, 63, 17])
    weights = unpack({"x": np.zeros((1, 128)), "w": table, "scales": scales}, 4, 32)
    (got,) = run_once(compile_module(module, HOPPER), [tokens])
    np.testing.assert_allclose(got, weights.T[tokens] @ weights, rtol=5e-3, atol=2e-2)


def test_kernels_of_convolutions_become_floats_ahead_of_them() -> None:
    """Their templates read windows of what is in memory."""
    rng = np.random.default_rng(0)
    weights = rng.integers(-8, 8, (32, 16, 3, 3)).astype("int8")
    from onnx import TensorProto, helper

    packed = helper.make_tensor("w", TensorProto.INT4, weights.shape, weights.flatten().tolist())
    proto = parsed(
        """<ir_version: 10, opset_import: ["" : 21]>
        g (float16[1, 16, 8, 8] x) => (float16[1, 32, 6, 6] y) {
        k = DequantizeLinear(w, scale)
        y = Conv(x, k) }""",
        scale=np.array(0.1, "float16"),
    )
    proto.graph.initializer.append(packed)
    module = lowered(proto, AMPERE)
    assert len([*tvm_compat.prim_funcs(module)]) == 2
    x = floats(1, 16, 8, 8, dtype="float16")
    (got,) = run_once(compile_module(module, AMPERE), [x])
    (wanted,) = by_reference(proto, {"x": x})
    np.testing.assert_allclose(got, wanted, rtol=5e-3, atol=2e-2)
