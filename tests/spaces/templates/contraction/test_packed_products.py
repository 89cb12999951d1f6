"""Products with weights of 2, 4 and 8 bits: unpacked where they are multiplied, in any setting."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import onnx
import pytest

from spaces.codegen.artifact import build_artifact, load_kernel
from spaces.codegen.prepack import split
from spaces.design_space.knob_space import KnobSpace
from spaces.ir import tvm_compat
from spaces.lowering.extract_tasks import extract
from spaces.lowering.relax_rewrite import tir_calls
from spaces.passes.arithmetic.code_tables import LANES
from spaces.passes.cpu_passes import before_compile
from spaces.targets.target import resolve_target
from spaces.templates.contraction import register_tile as k
from spaces.templates.contraction.match import match_contraction
from spaces.templates.contraction.template import ContractionTemplate, contraction_templates
from tests.contracts.programs import write_down
from tests.spaces.frontends.onnx.beside_onnxruntime import Array, lowered
from tests.spaces.frontends.onnx.beside_onnxruntime import compare as compare_with_onnxruntime
from tests.spaces.frontends.onnx.packed_networks import floats, product, unpack
from tests.spaces.templates.contraction.test_pair_products import assembly
from tests.spaces.templates.open_programs import draw_feasible
from tuner.dynamic.shapes import joint
from tuner.task import Task

pytestmark = pytest.mark.tvm

long = pytest.mark.long
CPU = resolve_target("llvm", cores=2)
WIDE = '{"kind":"llvm","mcpu":"skylake-avx512","num-cores":2}'


@dataclass(frozen=True)
class Program:
    """A product as it comes from a file of ONNX.

    Attributes:
        said: of it besides bits, block and zero points.
        rows: how many; 0 where they are open.
    """

    bits: int
    block: int
    zeros: str
    said: Mapping[str, Any]
    rows: int = 3
    target: str = CPU

    @cached_property
    def file(self) -> tuple[Any, dict[str, Array]]:
        """The file's content, and the product's operands."""
        proto, operands = product(self.bits, self.block, self.zeros, **self.said)
        if self.rows:
            proto.graph.input[0].type.tensor_type.shape.dim[0].dim_value = self.rows
        return proto, operands

    @cached_property
    def module(self) -> Any:
        return lowered(self.file[0], self.target)

    @cached_property
    def task(self) -> Task:
        shapes = () if self.rows else joint([("m", (1, 6, 40))])
        (task,) = extract(self.module, self.target, shapes=shapes)
        return task

    @cached_property
    def template(self) -> ContractionTemplate:
        found = contraction_templates(self.task, match_contraction(self.task))[0]
        assert isinstance(found, ContractionTemplate)
        return found

    def write(self, knobs: dict[str, int]) -> Any:
        """The module with a setting carried out."""
        return write_down(KnobSpace(self.task, self.template), knobs).schedule.mod

    def constants(self) -> list[Array]:
        """What the program is called with besides rows, in order."""
        (call,) = tir_calls(self.module)
        return [field.value.numpy() for field in call.args[1].fields[1:]]

    def multiply(self, x: Array) -> Array:
        _, operands = self.file
        found = x @ unpack(operands, self.bits, self.block)
        return np.asarray(found + operands.get("bias", 0.0)).astype("float32")


SIZES = {"columns": 96, "depth": 128}
PROGRAMS = {
    "of 4 bits": Program(4, 32, "", SIZES),
    "one row": Program(4, 16, "", {"columns": 64, "depth": 96}, rows=1),
    "columns of no panel": Program(4, 32, "", {"columns": 71, "depth": 64}),
    "zero points": Program(4, 32, "packed", {**SIZES, "bias": True}),
    "zero points in floats": Program(4, 32, "floats", {"columns": 48, "depth": 64}),
    "a block that is not full": Program(4, 32, "packed", {"columns": 40, "depth": 80}),
    "of 2 bits": Program(2, 32, "packed", {"columns": 64, "depth": 64}),
    "of 8 bits": Program(8, 64, "packed", SIZES),
    "open rows": Program(4, 32, "", {**SIZES, "bias": True}, rows=0),
    "open rows, columns of no panel": Program(
        4, 16, "packed", {"columns": 53, "depth": 64}, rows=0
    ),
}
WAYS = {"in a step": k.IN_STEP, "in a chunk": k.IN_CHUNK}


def feasible(name: str, number: int, **fixed: int) -> list[dict[str, int]]:
    return draw_feasible(PROGRAMS[name].template, number, **fixed)


def compare(name: str, knobs: dict[str, int]) -> None:
    """A kernel's results beside those of numpy, for some numbers of rows."""
    import tvm

    program = PROGRAMS[name]
    kernel = load_kernel(build_artifact(program.write(knobs), CPU))
    for rows in (program.rows,) if program.rows else (1, 3, 8, 47):
        x = floats(rows, program.said["depth"])
        want = program.multiply(x)
        given = [x, *program.constants(), np.full_like(want, np.nan)]
        tensors = [tvm.runtime.tensor(array) for array in given]
        kernel.module["main"](*kernel.arguments(tensors, tvm.cpu()))
        np.testing.assert_allclose(tensors[-1].numpy(), want, rtol=1e-4, atol=1e-4)


@pytest.mark.each_value
@pytest.mark.parametrize("inside", WAYS.values(), ids=[*WAYS])
@pytest.mark.parametrize("name", sorted(PROGRAMS))
def test_any_setting_computes_the_product(name: str, inside: int) -> None:
    for knobs in feasible(name, 2, pack_inside=inside):
        compare(name, knobs)


@long
@pytest.mark.parametrize("name", sorted(PROGRAMS))
def test_many_settings_compute_the_product(name: str) -> None:
    for knobs in feasible(name, 20):
        compare(name, knobs)


@pytest.mark.parametrize("name", sorted(PROGRAMS))
def test_a_kernel_reads_its_weight_packed(name: str) -> None:
    program = PROGRAMS[name]
    (knobs,) = feasible(name, 1)
    found = split(program.write(knobs))
    assert found is not None
    width = knobs[k.VECTORS] * knobs[k.LANES]
    columns = program.said["columns"]
    read = sum(int(np.prod(p.shape)) * np.dtype(p.dtype).itemsize for p in found.packing.packed)
    stored = sum(program.constants()[p.position - 1].nbytes for p in found.packing.packed)
    assert read * columns == stored * -(-columns // width) * width


@pytest.mark.parametrize("inside", WAYS.values(), ids=[*WAYS])
@pytest.mark.parametrize("name", ["of 4 bits", "zero points", "open rows"])
def test_vectors_of_codes_of_4_bits_are_looked_up(name: str, inside: int) -> None:
    program = replace(PROGRAMS[name], target=WIDE)
    wanted = {"pack_inside": inside, "lanes": LANES, "unroll": 8}
    (knobs,) = draw_feasible(program.template, 1, **wanted)
    found = split(program.write(knobs))
    assert found is not None
    code = assembly(found.module["main"], WIDE)
    assert "vperm" in code
    assert "vcvtdq2ps" not in code or name == "zero points"  # which are converted themselves


@pytest.mark.parametrize("name", ["columns of no panel", "open rows, columns of no panel"])
def test_no_lane_is_tested_whether_it_is_padding(name: str) -> None:
    found = split(PROGRAMS[name].write(feasible(name, 1, pack_inside=k.IN_STEP)[0]))
    assert found is not None
    blocks = tvm_compat.sblocks(before_compile(found.module)["main"])
    stages = [block.script() for block in blocks if "unpacked" in str(block.name_hint)]
    assert stages
    assert not any("if_then_else" in stage for stage in stages)


def test_a_weight_whose_terms_are_of_any_block_is_unpacked_before_its_product() -> None:
    """`g_idx`: no panel of columns has all that it is made of."""
    proto, _ = product(4, 32, "", **SIZES, groups=True)
    (task,) = extract(lowered(proto, CPU), CPU, shapes=joint([("m", (1, 6))]))
    (template, *_) = contraction_templates(task, match_contraction(task))
    assert k.IN_STEP not in template.choices[k.PACK_INSIDE]


@pytest.mark.parametrize(
    ("said", "scales"),
    [
        ("axis = 0, block_size = 16", (4, 48)),
        ("axis = 1", (48,)),
        ("axis = 1, block_size = 16", (64, 3)),
    ],
    ids=["blocks of terms", "a scale of a column", "blocks of columns"],
)
@pytest.mark.parametrize("zeros", [False, True])
def test_a_weight_in_the_form_of_onnx_is_unpacked_in_its_product(
    said: str, scales: tuple[int, ...], zeros: bool
) -> None:
    rng = np.random.default_rng(0)
    codes = rng.integers(0, 16, (64, 48))
    middles = rng.integers(0, 16, scales) if zeros else np.full(scales, 0)
    element = onnx.TensorProto.UINT4
    operands = "codes, scales, zeros" if zeros else "codes, scales"
    proto = onnx.parser.parse_model(
        f"""<ir_version: 10, opset_import: ["": 21]> g (float[3, 64] x) => (float[3, 48] y) {{
        w = DequantizeLinear<{said}>({operands}) y = MatMul(x, w) }}"""
    )
    by = rng.random(scales).astype("float32")
    proto.graph.initializer.append(onnx.numpy_helper.from_array(by, "scales"))
    proto.graph.initializer.extend(
        onnx.helper.make_tensor(name, element, each.shape, each.reshape(-1).tolist())
        for name, each in {"codes": codes, "zeros": middles}.items()
        if name in operands
    )

    def exactly(_proto: Any, fed: Mapping[str, Array]) -> list[Array]:
        spread = [
            np.broadcast_to(_spread(each, codes.shape), codes.shape) for each in (by, middles)
        ]
        return [(fed["x"] @ ((codes - spread[1]) * spread[0])).astype("float32")]

    compare_with_onnxruntime(proto, {"x": floats(3, 64)}, peer=exactly, within=1e-4)
    (task,) = extract(lowered(proto, CPU), CPU)
    choices = contraction_templates(task, match_contraction(task))[0].choices
    of_columns = said == "axis = 1, block_size = 16"  # a panel would have parts of blocks
    assert (k.PACK_INSIDE in choices) != of_columns


def _spread(each: Array, shape: tuple[int, ...]) -> Array:
    """Numbers of blocks, repeated until there is one for each element along every axis."""
    for axis, size in enumerate(each.shape if each.ndim == 2 else ()):
        each = np.repeat(each, shape[axis] // size, axis)
    return each


def test_a_weight_that_is_padded_before_its_product_is_no_packed_one() -> None:
    """Tests for padding of another kind than that of panels are not left out."""
    rng = np.random.default_rng(0)
    codes = rng.integers(0, 16, (64, 48)).astype("uint8")
    packed = (codes[:, ::2] | codes[:, 1::2] << 4).tobytes()
    element = onnx.TensorProto.UINT4
    proto = onnx.parser.parse_model(
        """<ir_version: 10, opset_import: ["": 21]> g (float[3, 72] x) => (float[3, 64] y) {
        w = DequantizeLinear(codes, scales) p = Pad(w, pads) t = Transpose<perm = [1, 0]>(p)
        y = MatMul(x, t) }"""
    )
    scales = rng.random(()).astype("float32")
    pads = np.array([0, 16, 0, 8])
    proto.graph.initializer.extend(
        [
            onnx.helper.make_tensor("codes", element, codes.shape, packed, raw=True),
            onnx.numpy_helper.from_array(scales, "scales"),
            onnx.numpy_helper.from_array(pads, "pads"),
        ]
    )
    module = lowered(proto, CPU)
    for task in extract(module, CPU):
        for template in contraction_templates(task, match_contraction(task)):
            assert k.IN_STEP not in template.choices.get(k.PACK_INSIDE, ())
    compare_with_onnxruntime(proto, {"x": floats(3, 72)})


def test_codes_of_a_byte_are_made_together() -> None:
    assert 1 not in PROGRAMS["of 4 bits"].template.choices[k.UNROLL]


def test_kernels_of_one_layout_share_what_is_packed() -> None:
    program = PROGRAMS["open rows"]
    (knobs,) = feasible("open rows", 1)
    layouts = {program.template.layout({**knobs, k.VECTORS: vectors}) for vectors in (1, 2, 4)}
    others = {program.template.layout({**knobs, k.ROWS: rows}) for rows in (1, 2, 4)}
    assert (len(layouts), len(others)) == (3, 1)
