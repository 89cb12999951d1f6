"""Products whose rows are rounded to bytes, block by block: what is rounded, and any setting."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import onnx
import pytest

from spaces.codegen.artifact import build_artifact, load_kernel
from spaces.codegen.executable import compile_plainly
from spaces.codegen.prepack import split
from spaces.design_space.knob_space import KnobSpace
from spaces.lowering.extract_tasks import extract
from spaces.lowering.relax_rewrite import tir_calls
from spaces.passes.cpu_passes import before_compile
from spaces.targets.cpu import cpu_of
from spaces.targets.target import resolve_target
from spaces.templates.base import Template, every, setting
from spaces.templates.block_products.template import block_templates
from spaces.templates.contraction import register_tile as k
from tests.contracts.programs import write_down
from tests.spaces.frontends.onnx.beside_onnxruntime import Array, by_onnxruntime, lowered
from tests.spaces.frontends.onnx.packed_networks import floats, product, unpack
from tuner.dynamic.shapes import joint
from tuner.task import Task

pytestmark = pytest.mark.tvm

long = pytest.mark.long
CPU = resolve_target("llvm", cores=2)
WITH_VNNI = '{"kind":"llvm","mcpu":"znver4","num-cores":2}'


@pytest.fixture
def runs_here() -> None:
    """Of tests that run what needs VNNI."""
    if not cpu_of(CPU).vnni:
        pytest.skip("this CPU does not multiply bytes")


runs = pytest.mark.usefixtures("runs_here")


@dataclass(frozen=True)
class Program:
    """A product as it comes from a file of ONNX.

    Attributes:
        said: of it besides bits, block and zero points.
        rows: how many; 0 where they are open.
        batch: whether there is an open dimension before them.
    """

    bits: int
    block: int
    zeros: str
    said: Mapping[str, Any]
    rows: int = 3
    target: str = CPU
    batch: bool = False

    @cached_property
    def file(self) -> tuple[Any, dict[str, Array]]:
        """The file's content, and the product's operands."""
        said = {**self.said, "accuracy_level": 4}
        proto, operands = product(self.bits, self.block, self.zeros, **said)
        if self.rows:
            proto.graph.input[0].type.tensor_type.shape.dim[0].dim_value = self.rows
        if self.batch:
            dims = proto.graph.input[0].type.tensor_type.shape.dim
            dims.insert(0, type(dims[0])(dim_param="b"))
        return proto, operands

    @cached_property
    def module(self) -> Any:
        return lowered(self.file[0], self.target)

    @cached_property
    def task(self) -> Task:
        batches = [("b", (1, 3))] if self.batch else []
        shapes = () if self.rows else joint([*batches, ("m", (1, 6, 40))])
        tasks = extract(self.module, self.target, shapes=shapes)
        return next(task for task in tasks if "product_of_bytes" in task.name)

    @cached_property
    def template(self) -> Template:
        (found,) = block_templates(self.task)
        return found

    def settings(self) -> list[dict[str, int]]:
        """All that are within the limits."""
        columns = every(self.template)
        (good,) = np.nonzero(np.isfinite(self.template.costs_s(columns)))
        return [setting(columns, int(row)) for row in good]

    def write(self, knobs: dict[str, int]) -> Any:
        """The module with a setting carried out."""
        return write_down(KnobSpace(self.task, self.template), knobs).schedule.mod

    def constants(self) -> list[Array]:
        """What the product is called with besides rows, in order."""
        call = next(c for c in tir_calls(self.module) if len(c.args[1].fields) > 3)
        return [field.value.numpy() for field in call.args[1].fields[3:]]

    def compute(self, rounded: Array, scales: Array) -> Array:
        """What numpy says of rounded rows and their scales."""
        _, operands = self.file
        depth = self.said["depth"]
        one = {**operands, "scales": np.ones_like(operands["scales"])}
        weights = unpack(one, self.bits, self.block)  # codes less zero points
        blocks = np.arange(depth) // self.block
        each, run = 8 // self.bits, 32 // self.bits
        places = np.arange(rounded.shape[-1])
        terms = places // run * run + places % 4 * each + places % run // 4
        rows = np.zeros((*rounded.shape[:-1], depth))
        inside = terms < depth
        rows[..., terms[inside]] = rounded[..., places[inside]]
        scaled = rows * scales[..., blocks]
        by_columns = weights * operands["scales"].astype("float64")[:, blocks].T
        return np.asarray(scaled @ by_columns)


SIZES = {"columns": 96, "depth": 128}
PROGRAMS = {
    "of 4 bits": Program(4, 32, "", SIZES),
    "one row": Program(4, 16, "", {"columns": 64, "depth": 96}, rows=1),
    "columns of no vector": Program(4, 32, "", {"columns": 71, "depth": 64}, rows=9),
    "zero points": Program(4, 32, "packed", SIZES),
    "zero points in floats": Program(4, 128, "floats", {"columns": 48, "depth": 256}, rows=2),
    "a block that is not full": Program(4, 32, "packed", {"columns": 40, "depth": 80}),
    "of 2 bits": Program(2, 32, "packed", {"columns": 64, "depth": 64}),
    "of 8 bits": Program(8, 64, "packed", SIZES, rows=16),
    "open rows": Program(4, 32, "", SIZES, rows=0),
    "a batch of open rows": Program(4, 32, "", SIZES, rows=0, batch=True),
}


def rows_of(program: Program, rows: int, height: int) -> tuple[Array, Array, Array]:
    """Rounded rows, scales, and scaled sums, as the programs before the product leave them: in
    tiles, of which the last ends with zeros."""
    rng = np.random.default_rng(rows)
    tiles = -(-rows // height)
    blocks = -(-program.said["depth"] // program.block)
    rounded = rng.integers(-127, 128, (tiles * height, blocks * program.block)).astype("int8")
    rounded[rows:] = 0
    terms = np.arange(rounded.shape[-1]) < program.said["depth"]
    if program.said["depth"] % program.block:
        rounded *= terms  # a block that is not full ends with zeros
    rounded = rounded.reshape(tiles, height, -1)
    scales = rng.random((tiles, height, blocks)).astype("float32") / 127
    sums = rounded.reshape(tiles, height, blocks, -1).sum(-1, dtype="int32") * scales
    return rounded, scales, sums.astype("float32")


def compare(program: Program, knobs: dict[str, int]) -> None:
    """A kernel's results beside those of numpy, for some numbers of rows."""
    import tvm

    kernel = load_kernel(build_artifact(program.write(knobs), CPU))
    height = 4 if not program.rows else min(8, 1 << (program.rows - 1).bit_length())
    for rows in (program.rows,) if program.rows else (1, 2, 4, 7, 43):
        given = [*rows_of(program, rows, height)]
        found = np.full((rows, program.said["columns"]), np.nan, "float32")
        if program.batch:
            given, found = [np.stack([a, a[::-1]]) for a in given], np.stack([found] * 2)
        tensors = [tvm.runtime.tensor(a) for a in (*given, *program.constants(), found)]
        kernel.module["main"](*kernel.arguments(tensors, tvm.cpu()))
        exact = program.compute(given[0], given[1])
        exact = exact.reshape(*exact.shape[:-3], -1, exact.shape[-1])[..., :rows, :]
        np.testing.assert_allclose(tensors[-1].numpy(), exact, rtol=2e-5, atol=2e-5)


@runs
@pytest.mark.each_value
@pytest.mark.parametrize("inside", [k.IN_STEP, k.IN_CHUNK], ids=["in a step", "in a chunk"])
@pytest.mark.parametrize("name", sorted(PROGRAMS))
def test_any_setting_computes_the_product(name: str, inside: int) -> None:
    program = PROGRAMS[name]
    settings = [s for s in program.settings() if s[k.PACK_INSIDE] == inside]
    for height in dict.fromkeys(s[k.ROWS] for s in settings):
        of_height = [s for s in settings if s[k.ROWS] == height]
        compare(program, of_height[len(of_height) // 2])


@long
@runs
@pytest.mark.parametrize("name", sorted(PROGRAMS))
def test_all_settings_compute_the_product(name: str) -> None:
    for knobs in PROGRAMS[name].settings():
        compare(PROGRAMS[name], knobs)


@runs
@pytest.mark.parametrize("name", ["of 4 bits", "zero points", "open rows", "of 8 bits"])
def test_a_whole_product_is_what_onnxruntime_makes_of_it(name: str) -> None:
    """Which rounds rows in the same way; of what floats give both are off by 8 bits."""
    import tvm

    program = PROGRAMS[name]
    proto, operands = program.file
    machine = tvm.relax.VirtualMachine(compile_plainly(program.module, CPU).library, tvm.cpu())
    for rows in (program.rows,) if program.rows else (1, 4, 7):
        x = floats(rows, program.said["depth"])
        found = machine["main"](tvm.runtime.tensor(x)).numpy()
        exact = x @ unpack(operands, program.bits, program.block)
        apart = np.abs(found - exact).max() / np.abs(exact).max()
        theirs = by_onnxruntime(proto, {"x": x})[0]
        assert 1e-4 < apart < 2e-2
        assert np.abs(found - theirs).max() / np.abs(exact).max() < 1e-5


@runs
def test_rows_have_any_dimensions_before_them() -> None:
    """As a language model's: a batch and a length, both open."""
    program = PROGRAMS["a batch of open rows"]
    assert len(program.task.shapes) > 1
    compare(program, program.settings()[0])


@runs
def test_a_row_with_a_number_that_is_none_has_no_number() -> None:
    import tvm

    program = PROGRAMS["of 4 bits"]
    machine = tvm.relax.VirtualMachine(compile_plainly(program.module, CPU).library, tvm.cpu())
    x = floats(3, 128)
    x[1, 32:64] = 0.0
    for number in (np.nan, np.inf, -np.inf):
        x[0, 40], x[2, 7] = number, number
        found = machine["main"](tvm.runtime.tensor(x)).numpy()
        assert np.isnan(found[[0, 2]]).all()
        assert np.isfinite(found[1]).all()


@pytest.mark.parametrize("name", sorted(PROGRAMS))
def test_a_kernel_reads_codes_packed(name: str) -> None:
    given = PROGRAMS[name]
    program = Program(given.bits, given.block, given.zeros, given.said, given.rows, WITH_VNNI)
    found = split(program.write(program.settings()[0]))
    assert found is not None
    (codes,) = [p for p in found.packing.packed if p.dtype == "uint8"]
    columns = -(-program.said["columns"] // 16) * 16
    depth = -(-program.said["depth"] // program.block) * program.block
    assert np.prod(codes.shape) == columns * depth * program.bits // 8


@pytest.mark.each_value
@pytest.mark.parametrize("columns", [40, 71, 96])
@pytest.mark.parametrize("cpu", ["znver4", "alderlake"])
def test_tiles_reach_no_further_than_what_is_packed(cpu: str, columns: int) -> None:
    """Of a CPU with vectors of 8 sums too, for which columns are padded to 16."""
    target = f'{{"kind":"llvm","mcpu":"{cpu}","num-cores":2}}'
    program = Program(4, 32, "", {"columns": columns, "depth": 64}, target=target)
    for knobs in program.settings():
        found = split(program.write(knobs))
        assert found is not None
        (codes,) = [p for p in found.packing.packed if p.dtype == "uint8"]
        panels, _, each = codes.shape
        assert panels * each >= -(-columns // 16) * 16 * 4, "a group of four for each column"


def test_rows_of_one_dimension_and_weights_that_a_run_gives_stay_floats() -> None:
    proto, _ = product(4, 32, "", **SIZES, accuracy_level=4)
    given = proto.graph.input[0].type.tensor_type.shape
    del given.dim[0]
    assert '"int8"' not in lowered(proto, WITH_VNNI).script()
    proto, _ = product(4, 32, "", **SIZES, accuracy_level=4)
    (scales,) = [t for t in proto.graph.initializer if t.name == "scales"]
    proto.graph.initializer.remove(scales)
    value = onnx.helper.make_tensor_value_info("scales", scales.data_type, scales.dims)
    proto.graph.input.append(value)
    assert '"int8"' not in lowered(proto, WITH_VNNI).script()


@pytest.mark.parametrize(
    "target", ['{"kind":"llvm","mcpu":"x86-64-v3","num-cores":2}', '{"kind":"cuda","arch":"sm_80"}']
)
def test_what_does_not_multiply_bytes_has_rows_in_floats(target: str) -> None:
    module = Program(4, 32, "", SIZES, target=target).module
    assert "int8" not in module.script().replace("uint8", "")


def test_rows_stay_floats_unless_a_file_allows_less() -> None:
    proto, _ = product(4, 32, "", **SIZES)
    assert "int8" not in lowered(proto, WITH_VNNI).script().replace("uint8", "")


def test_the_instruction_is_that_of_the_targets_width() -> None:
    """Of `vpdpbusd`: AVX-512 has vectors of 16 sums."""
    program = Program(4, 32, "", SIZES, target=WITH_VNNI)
    module = before_compile(program.write(program.settings()[0]))
    assert "vpdpbusd.512" in module["main"].script()
    assert cpu_of(WITH_VNNI).vnni
