"""Products and convolutions of bfloat16 that an instruction adds up in pairs: right in any layout,
of any size, with any setting."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
import pytest

from spaces.check.choice import reference_of
from spaces.codegen.artifact import build_artifact, load_kernel
from spaces.design_space.knob_space import KnobSpace
from spaces.devices.checker import HostChecker, how_wrong
from spaces.ir import tvm_compat
from spaces.ir.element_types import numpy_dtype
from spaces.ir.schedules import task_module
from spaces.ir.symbolic import specialise
from spaces.lowering.extract_tasks import extract, set_shapes, task_of
from spaces.passes.pipeline import tir_pipeline
from spaces.targets.cpu import cpu_of
from spaces.targets.target import parse_target, resolve_target
from spaces.templates.contraction.match import match_contraction
from spaces.templates.contraction.template import ContractionTemplate, contraction_templates
from tests.contracts.programs import without_bf16, write_down
from tests.spaces.frontends.onnx.beside_onnxruntime import lowered
from tests.spaces.templates.open_programs import draw_feasible, extent
from tuner.dynamic.shapes import joint
from tuner.task import Task

pytestmark = pytest.mark.tvm

long = pytest.mark.long
Array = np.ndarray[Any, Any]
Size = int | str
ZEN4 = '{"kind":"llvm","mcpu":"znver4","mtriple":"x86_64-unknown-linux-gnu","num-cores":1}'
DOT = "vdpbf16ps"
TUNED = (5, 24, 64)
EPS = 2.0**-23


@dataclass(frozen=True)
class Product:
    """A batch of products A @ B.

    Attributes:
        sizes: rows, columns and depth; a text is the name of an open one.
        turned: which operands are stored with their last two dimensions swapped.
        constant: whether B is known ahead.
        bare: whether no ReLU follows.
    """

    sizes: tuple[Size, Size, Size]
    batch: tuple[int, ...] = ()
    turned: str = ""
    constant: bool = False
    bare: bool = False

    def shapes(self, values: dict[str, int]) -> list[tuple[int, ...]]:
        """Those of A and B."""
        m, n, k = (values.get(s, s) if isinstance(s, str) else s for s in self.sizes)
        a = (k, m) if "a" in self.turned else (m, k)
        b = (n, k) if "b" in self.turned else (k, n)
        return [(*self.batch, *a), (*self.batch, *b)]

    def task(self, target: str) -> Task:
        from tvm import te, topi

        open_dims = {s: extent(s) for s in self.sizes if isinstance(s, str)}
        m, n, k = (open_dims[s] if isinstance(s, str) else extent(s) for s in self.sizes)
        outer = [extent(size) for size in self.batch]
        a = te.placeholder((*outer, *((k, m) if "a" in self.turned else (m, k))), "bfloat16", "a")
        b = te.placeholder((*outer, *((n, k) if "b" in self.turned else (k, n))), "bfloat16", "b")
        step = te.reduce_axis((extent(0), k), "k")

        def element(*index: Any) -> Any:
            *front, i, j = index
            left = a(*front, step, i) if "a" in self.turned else a(*front, i, step)
            right = b(*front, j, step) if "b" in self.turned else b(*front, step, j)
            return te.sum(left.astype("float32") * right.astype("float32"), step)

        sums = te.compute((*outer, m, n), element, name="product")
        out = sums if self.bare else topi.nn.relu(sums)
        function = te.create_prim_func([a, b, out])
        if self.constant:
            function = function.with_attr(tvm_compat.LAYOUT_FREE, [1])
        task = task_of(function, target, name="product")
        return set_shapes(task, joint([(d, TUNED) for d in open_dims])) if open_dims else task

    def multiply(self, a: Array, b: Array) -> Array:
        left = a.swapaxes(-1, -2) if "a" in self.turned else a
        right = b.swapaxes(-1, -2) if "b" in self.turned else b
        return np.asarray(left @ right)


PRODUCTS = {
    "plain": Product((48, 96, 64)),
    "of a weight": Product((48, 96, 64), constant=True),
    "of odd sizes": Product((37, 53, 41), constant=True),
    "of odd sizes, anew": Product((37, 53, 41)),
    "A turned": Product((30, 64, 22), turned="a"),
    "B turned": Product((30, 64, 22), turned="b"),
    "both turned": Product((17, 48, 31), turned="ab"),
    "in a batch": Product((12, 32, 40), batch=(2, 3), turned="b"),
    "one row": Product((1, 96, 130), constant=True),
    "open rows": Product(("m", 64, 72), constant=True),
    "open rows, odd depth": Product(("m", 53, 71), constant=True),
    "open rows, A turned": Product(("m", 48, 24), turned="a"),
    "open columns": Product((24, "n", 40), turned="b"),
    "open depth": Product((24, 48, "k")),
    "all open": Product(("m", "n", "k"), turned="b"),
}


@pytest.fixture
def cpu() -> str:
    """This machine as a target of one core."""
    target = resolve_target("llvm", cores=1)
    if not cpu_of(target).dots_bf16:
        pytest.skip("this CPU has no AVX512-BF16")
    return target


def templates_of(task: Task) -> list[ContractionTemplate]:
    found = contraction_templates(task, match_contraction(task))
    return [template for template in found if isinstance(template, ContractionTemplate)]


def build(task: Task, template: ContractionTemplate, knobs: dict[str, int]) -> Any:
    point = write_down(KnobSpace(task, template), knobs)
    return load_kernel(build_artifact(point.schedule.mod, task.target))


def assembly(module: Any, target: str = ZEN4) -> str:
    """The machine code of a scheduled module, for people."""
    import tvm

    parsed = parse_target(target)
    library = tvm.compile(module, target=parsed, tir_pipeline=tir_pipeline(parsed))
    return str(library.mod.inspect_source("asm"))


def wrong(task: Task, module: Any, sizes: dict[str, int]) -> str:
    """What the gate says of a scheduled module, at these sizes of open dimensions; empty if its
    outputs are right."""
    import tvm

    kernel = load_kernel(build_artifact(module, task.target))
    program = task_module(task.module)
    program = specialise(program, sizes) if sizes else program
    for case in reference_of(program, task.key).cases:
        tensors = HostChecker(tvm.cpu(), task.target).feed(case)
        kernel.module["main"](*kernel.arguments(tensors, tvm.cpu()))
        if said := how_wrong(case, tensors):
            return said
    return ""


def run(kernel: Any, operands: list[Array], shape: tuple[int, ...]) -> Array:
    import tvm

    tensors = [tvm.runtime.tensor(a) for a in (*operands, np.full(shape, np.nan, "float32"))]
    kernel.module["main"](*kernel.arguments(tensors, tvm.cpu()))
    return np.asarray(tensors[-1].numpy())


def check(
    kernel: Any, operands: list[Array], multiply: Callable[[Array, Array], Array], case: Any = ""
) -> None:
    """Compare with float64: each of the additions of a sum rounds once."""
    a, b = (x.astype("float64") for x in operands)
    exact, size = multiply(a, b), multiply(abs(a), abs(b))
    got = run(kernel, operands, exact.shape)
    depth = operands[0].size  # no sum has more terms
    assert (abs(got - np.maximum(exact, 0)) <= size * min(depth, 2048) * EPS).all(), case
    np.testing.assert_allclose(got, np.maximum(exact, 0), rtol=1e-4, atol=1e-4, err_msg=str(case))


def draw(*shapes: tuple[int, ...]) -> list[Array]:
    rng = np.random.default_rng(sum(map(sum, shapes)))
    return [rng.standard_normal(shape).astype(numpy_dtype("bfloat16")) for shape in shapes]


def sizes_of(product: Product, knobs: dict[str, int]) -> Iterator[dict[str, int]]:
    names = [size for size in product.sizes if isinstance(size, str)]
    tile = knobs["rows"]
    for size in {1, 2, 13, 97, tile - 1 or 1, tile, tile + 1} if names else {0}:
        yield {name: size + 2 * number for number, name in enumerate(names)}


@pytest.mark.parametrize("number", [1, pytest.param(4, marks=long)])
@pytest.mark.parametrize("name", PRODUCTS)
def test_any_setting_computes_the_product(name: str, number: int, cpu: str) -> None:
    product = PRODUCTS[name]
    task = product.task(cpu)
    templates = templates_of(task)
    assert templates
    for template in templates:
        for knobs in draw_feasible(template, number):
            kernel = build(task, template, knobs)
            for values in sizes_of(product, knobs):
                check(kernel, draw(*product.shapes(values)), product.multiply, (knobs, values))


@pytest.mark.parametrize("name", PRODUCTS)
def test_each_step_of_a_sum_is_the_instruction(name: str) -> None:
    task = PRODUCTS[name].task(ZEN4)
    for template in templates_of(task):
        for knobs in draw_feasible(template, 1):
            module = write_down(KnobSpace(task, template), knobs).schedule.mod
            code = assembly(module)
            assert DOT in code, knobs
            assert not re.search(r"\tv(f[n]?m(add|sub)|mul)\w*ps", code), knobs


def test_the_gate_takes_deep_sums(cpu: str) -> None:
    task = Product((4, 32, 6000), constant=True).task(cpu)
    for knobs in draw_feasible(templates_of(task)[0], 2):
        module = write_down(KnobSpace(task, templates_of(task)[0]), knobs).schedule.mod
        assert not wrong(task, module, {}), knobs


CONVOLUTIONS = {
    "padded": ("1, 8, 13, 11", "pads = [1, 1, 1, 1]", (24, 8, 3, 3)),
    "of odd channels": ("1, 5, 9, 11", "pads = [1, 1, 1, 1]", (24, 5, 3, 3)),
    "strided": ("2, 16, 14, 10", "pads = [1, 1, 1, 1], strides = [2, 2]", (24, 16, 3, 3)),
    "dilated": ("1, 16, 12, 16", "dilations = [2, 2]", (32, 16, 3, 3)),
    "of points": ("1, 24, 7, 9", "", (32, 24, 1, 1)),
    "of a line": ("1, 12, 40", "pads = [2, 2]", (16, 12, 5)),
    "of open sizes": ("n, 8, 13, 11", "pads = [1, 1, 1, 1]", (24, 8, 3, 3)),
    "of open sizes and odd channels": ("n, 5, 13, 11", "pads = [1, 1, 1, 1]", (24, 5, 3, 3)),
    "in groups": ("1, 8, 13, 11", "group = 2, pads = [1, 1, 1, 1]", (24, 4, 3, 3)),
}


WIDENED = ("in groups", "of open sizes and odd channels")
"""Those that are multiplied in float32."""


def convolution(name: str) -> Any:
    """A file with ReLU after a convolution of bfloat16, and its weight."""
    shape, attributes, size = CONVOLUTIONS[name]
    text = (
        f'<ir_version: 10, opset_import: ["" : 20]> g (bfloat16[{shape}] x) => (float y) '
        f"{{ t = Conv<{attributes}>(x, w) u = Relu(t) y = Cast<to = 1>(u) }}"
    )
    proto = onnx.parser.parse_model(text.replace("<>", ""))
    (weight,) = draw(size)
    element = onnx.helper.np_dtype_to_tensor_dtype(weight.dtype)
    tensor = onnx.helper.make_tensor("w", element, size, weight.tobytes(), raw=True)
    proto.graph.initializer.append(tensor)
    return proto


def convolution_task(name: str, target: str) -> Task:
    shapes = joint([("n", (1, 3))]) if "open" in name else ()
    tasks = extract(lowered(convolution(name), target), target, shapes=shapes)
    return next(t for t in tasks if contraction_templates(t, match_contraction(t)))


@pytest.mark.parametrize("number", [1, pytest.param(4, marks=long)])
@pytest.mark.parametrize("name", [n for n in CONVOLUTIONS if n not in WIDENED])
def test_any_setting_computes_the_convolution(name: str, number: int, cpu: str) -> None:
    task = convolution_task(name, cpu)
    templates = templates_of(task)
    assert templates
    for template in templates:
        for knobs in draw_feasible(template, number):
            module = write_down(KnobSpace(task, template), knobs).schedule.mod
            assert DOT in assembly(module), knobs
            assert not wrong(task, module, {"n": 2} if task.shapes else {}), knobs


@pytest.mark.parametrize("name", ["padded", *WIDENED])
def test_a_cpu_without_the_instruction_and_groups_are_multiplied_in_float32(name: str) -> None:
    task = convolution_task(name, ZEN4 if name in WIDENED else without_bf16(ZEN4))
    templates = templates_of(task)
    assert templates
    for template in templates:
        (knobs,) = draw_feasible(template, 1)
        module = write_down(KnobSpace(task, template), knobs).schedule.mod
        assert DOT not in assembly(module, task.target), knobs


def test_a_program_of_bfloat16_has_no_such_template_where_the_cpu_has_no_instruction() -> None:
    assert templates_of(PRODUCTS["plain"].task(ZEN4))
    assert not templates_of(PRODUCTS["plain"].task(without_bf16(ZEN4)))


def test_a_schedule_that_a_cpu_without_the_instruction_takes_over_is_loops() -> None:
    task = PRODUCTS["open rows"].task(ZEN4)
    (knobs,) = draw_feasible(templates_of(task)[0], 1)
    module = write_down(KnobSpace(task, templates_of(task)[0]), knobs).schedule.mod
    assert DOT in assembly(module)
    assert DOT not in assembly(module, without_bf16(ZEN4))


def test_what_is_no_number_and_infinity_come_out_and_subnormal_numbers_are_zero(cpu: str) -> None:
    """So says the instruction's definition; float32 keeps the latter."""
    product = Product((48, 96, 64), bare=True)
    task = product.task(cpu)
    template = templates_of(task)[0]
    (knobs,) = draw_feasible(template, 1)
    a, b = (np.zeros(shape, numpy_dtype("bfloat16")) for shape in product.shapes({}))
    b[0] = 1
    a[:5, 0] = [np.nan, np.inf, 2.0**-126, 2.0**-127, 2.0**-133]
    got = run(build(task, template, knobs), [a, b], (48, 96))
    wanted = np.array([np.nan, np.inf, 2.0**-126, 0, 0], "float32")
    np.testing.assert_array_equal(got[:5], np.broadcast_to(wanted[:, None], (5, 96)))
    assert not got[5:].any()


@long
@pytest.mark.parametrize("name", ["of odd sizes", "A turned", "open rows", "all open"])
def test_every_value_of_a_knob_computes_the_product(name: str, cpu: str) -> None:
    product = PRODUCTS[name]
    task = product.task(cpu)
    template = templates_of(task)[0]
    for knob, values in template.choices.items():
        for value in values:
            try:
                (knobs,) = draw_feasible(template, 1, **{knob: value})
            except AssertionError:
                continue  # no setting has it within the limits
            kernel = build(task, template, knobs)
            for sizes in sizes_of(product, knobs):
                check(kernel, draw(*product.shapes(sizes)), product.multiply, (knobs, sizes))
