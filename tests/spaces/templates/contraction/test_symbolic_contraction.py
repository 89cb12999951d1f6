"""Micro-kernels of symbolic programs: one setting computes every shape, and what it should cost."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import product
from typing import Any

import numpy as np
import pytest

from spaces.codegen.prepack import PREPACK, split
from spaces.design_space.knob_space import KnobSpace
from spaces.design_space.realize import realize
from spaces.design_space.task_space import TaskSpace
from spaces.features.knob_features import TRAITS, HasShapeTraits, HasTraits
from spaces.ir import tvm_compat
from spaces.ir.schedules import canonical_payload, code_hash, task_module
from spaces.ir.symbolic import specialise, symbols
from spaces.lowering.extract_tasks import set_shapes, task_of
from spaces.passes.cpu_passes import before_compile
from spaces.targets.target import resolve_target
from spaces.templates.base import PadsShapes, ShapedTemplate
from spaces.templates.contraction import register_tile as k
from spaces.templates.contraction.match import match_contraction
from spaces.templates.contraction.template import ContractionTemplate, contraction_templates
from spaces.templates.registry import templates_of
from tests.contracts.programs import write_down
from tests.spaces.red_zones import Array, check_shapes, feasible
from tuner.candidate import Draft, knobs_of
from tuner.dynamic.shapes import joint
from tuner.task import Instance, Task

pytestmark = pytest.mark.tvm

CPU = resolve_target("llvm", cores=2)
long = pytest.mark.long


@dataclass(frozen=True)
class Program:
    """A symbolic program, and what numpy says that it computes.

    Attributes:
        dims: names of its dimensions.
        tuned: the sizes that it is tuned for; any other must be right as well.
        constants: positions of inputs that are known ahead.
    """

    make: Callable[[dict[str, Any]], list[Any]]
    expected: Callable[..., Array]
    dims: tuple[str, ...]
    tuned: tuple[int, ...] = (5, 24, 64)
    constants: tuple[int, ...] = ()

    def task(self) -> Task:
        from tvm import te, tirx

        function = te.create_prim_func(self.make({n: tirx.Var(n, "int64") for n in self.dims}))
        if self.constants:
            function = function.with_attr(tvm_compat.LAYOUT_FREE, list(self.constants))
        known = symbols(function)
        assert set(known) == set(self.dims)
        return set_shapes(
            task_of(function, CPU, name="program"), joint([(d, self.tuned) for d in self.dims])
        )


def tensor(name: str, *shape: Any) -> Any:
    from tvm import te, tirx

    return te.placeholder(
        [tirx.const(d, "int64") if isinstance(d, int) else d for d in shape], "float32", name=name
    )


def matmul(a: Any, b: Any, *, ta: bool = False, tb: bool = False) -> Any:
    """Product of matrices; leading dimensions are a batch."""
    from tvm import te, tirx

    *batch, m, k = a.shape
    m, k = (k, m) if ta else (m, k)
    step = te.reduce_axis((tirx.const(0, "int64"), k), "k")

    def element(*index: Any) -> Any:
        *outer, i, j = index
        left = a(*outer, step, i) if ta else a(*outer, i, step)
        right = outer[: len(b.shape) - 2]
        return te.sum(left * (b(*right, j, step) if tb else b(*right, step, j)), step)

    return te.compute((*batch, m, b.shape[-2 if tb else -1]), element, name="matmul")


def biased(out: Any, *inputs: Any) -> list[Any]:
    """Bias and ReLU after a product."""
    from tvm import topi

    bias = tensor("bias", out.shape[-1])
    return [*inputs, bias, topi.nn.relu(topi.add(out, bias))]


def _dense(d: dict[str, Any]) -> list[Any]:
    a, b = tensor("a", d.get("M", 24), 40), tensor("b", 40, 72)
    return [a, b, matmul(a, b)]


def _dense_biased(d: dict[str, Any]) -> list[Any]:
    a, b = tensor("a", d["M"], 40), tensor("b", 40, 72)
    return biased(matmul(a, b), a, b)


def _columns(d: dict[str, Any]) -> list[Any]:
    a, b = tensor("a", 24, 40), tensor("b", 40, d["N"])
    return biased(matmul(a, b), a, b)


def _depth(d: dict[str, Any]) -> list[Any]:
    a, b = tensor("a", 24, d["K"]), tensor("b", d["K"], 48)
    return [a, b, matmul(a, b)]


def _all_symbolic(d: dict[str, Any]) -> list[Any]:
    a, b = tensor("a", d["M"], d["K"]), tensor("b", d["K"], d["N"])
    return [a, b, matmul(a, b)]


def _scores(d: dict[str, Any]) -> list[Any]:
    a, b = tensor("a", 3, d["T"], 24), tensor("b", 3, d["T"], 24)
    return [a, b, matmul(a, b, tb=True)]


def _mixed(d: dict[str, Any]) -> list[Any]:
    a, b = tensor("a", 3, d["T"], d["T"]), tensor("b", 3, d["T"], 24)
    return [a, b, matmul(a, b)]


def _batched(d: dict[str, Any]) -> list[Any]:
    a, b = tensor("a", d["B"], 17, 24), tensor("b", d["B"], 24, 40)
    return [a, b, matmul(a, b)]


def _transposed(d: dict[str, Any]) -> list[Any]:
    a, b = tensor("a", 40, d["M"]), tensor("b", 40, 72)
    return [a, b, matmul(a, b, ta=True)]


def product_nn(a: Array, b: Array) -> Array:
    return a @ b


def product_nt(a: Array, b: Array) -> Array:
    return a @ b.swapaxes(-1, -2)


def product_tn(a: Array, b: Array) -> Array:
    return a.swapaxes(-1, -2) @ b


def product_biased(a: Array, b: Array, bias: Array) -> Array:
    return np.asarray(np.maximum(a @ b + bias, 0))


PROGRAMS = {
    "dense": Program(_dense, product_nn, ("M",)),
    "dense-constant": Program(_dense, product_nn, ("M",), constants=(1,)),
    "dense-biased-constant": Program(_dense_biased, product_biased, ("M",), constants=(1,)),
    "columns-biased": Program(_columns, product_biased, ("N",)),
    "depth": Program(_depth, product_nn, ("K",)),
    "all-symbolic": Program(_all_symbolic, product_nn, ("K", "M", "N"), tuned=(5, 48)),
    "scores-nt": Program(_scores, product_nt, ("T",)),
    "mixed-nn": Program(_mixed, product_nn, ("T",)),
    "batch": Program(_batched, product_nn, ("B",), tuned=(1, 3, 8)),
    "transposed": Program(_transposed, product_tn, ("M",)),
}


@lru_cache
def task_named(name: str) -> Task:
    return PROGRAMS[name].task()


def check(task: Task, program: Program, module: Any, shapes: Sequence[dict[str, int]]) -> None:
    """Build a scheduled module once, run it for some shapes, compare with numpy."""
    check_shapes(task, module, shapes, program.expected)


def around(program: Program, *tiles: int) -> list[dict[str, int]]:
    """Shapes worth a look: 1, primes, all about the tiles, beyond the domain."""
    sizes = {1, 2, 13, 31, program.tuned[-1] + 33}
    sizes |= {n for t in tiles for n in (t - 1, t, t + 1) if n > 0}
    if len(program.dims) == 1:
        return [{program.dims[0]: n} for n in sorted(sizes)]
    rng = np.random.default_rng(0)
    ordered = sorted(sizes)
    columns = [rng.permutation(ordered) for _ in program.dims]
    return [
        dict(zip(program.dims, map(int, row), strict=True)) for row in zip(*columns, strict=True)
    ]


@lru_cache
def shaped_templates(task: Task) -> Sequence[ContractionTemplate]:
    found = contraction_templates(task, match_contraction(task))
    assert found
    assert all(isinstance(t, ShapedTemplate) for t in found)
    return tuple(t for t in found if isinstance(t, ContractionTemplate))


@pytest.mark.parametrize(
    "numbers", [range(2), pytest.param(range(2, 5), marks=long)], ids=["some", "more"]
)
@pytest.mark.parametrize("name", sorted(PROGRAMS))
def test_any_setting_computes_every_shape(name: str, numbers: range) -> None:
    program = PROGRAMS[name]
    task = task_named(name)
    templates = shaped_templates(task)
    for number in numbers:
        template = templates[number % len(templates)]
        (knobs,) = feasible(task, template, 1, seed=number)
        point = write_down(KnobSpace(task, template), knobs)
        shapes = around(program, knobs["rows"], knobs["vectors"] * knobs["lanes"], knobs["unroll"])
        check(task, program, point.schedule.mod, shapes)


@pytest.mark.parametrize("number", [0, pytest.param(1, marks=long)])
@pytest.mark.parametrize("name", ["all-symbolic", "mixed-nn", "scores-nt", "transposed"])
def test_columns_packed_within_a_chunk_compute_every_shape(name: str, number: int) -> None:
    program = PROGRAMS[name]
    task = task_named(name)
    checked = 0
    for template in shaped_templates(task):
        if "pack_inside" not in template.choices:
            continue
        knobs = feasible(task, template, 2, seed=5)[number]
        inside = {**knobs, "pack_columns": 1, "pack_inside": 1}
        point = write_down(KnobSpace(task, template), inside)
        width = knobs["vectors"] * knobs["lanes"]
        shapes = around(program, knobs["rows"], width, knobs["unroll"])
        check(task, program, point.schedule.mod, shapes)
        checked += 1
    assert checked


def test_columns_that_lie_across_are_transposed_in_registers_however_they_are_blocked() -> None:
    """Fetched one by one, packing them took a small shape twice as long as all the rest."""
    task = task_named("scores-nt")
    template = next(t for t in shaped_templates(task) if "pack_inside" in t.choices)
    for knobs in feasible(task, template, 12, seed=3):
        for inside in (0, 1):
            packed = {**knobs, k.PACK_COLUMNS: 1, k.PACK_INSIDE: inside, k.UNROLL: 4}
            point = write_down(KnobSpace(task, template), packed)
            assert "Shuffle" in before_compile(point.schedule.mod).script(), packed


def ragged() -> Iterator[Any]:
    """Programs, ways, and tiles in a block: of three, each two are tried together each time."""
    names = ("dense-biased-constant", "mixed-nn", "scores-nt")
    ways = {"pad": k.PAD, "split": k.SPLIT, "clamp": k.CLAMP}
    for (row, name), (column, way), (place, blocks) in product(
        enumerate(names), enumerate(ways), enumerate((1, 3, k.ALL))
    ):
        marks = () if (row + column + place) % 3 == 0 else (long,)
        yield pytest.param(name, ways[way], blocks, marks=marks, id=f"{name}-{way}-{blocks}")


@pytest.mark.parametrize(("name", "way", "blocks"), [*ragged()])
def test_ragged_rows_are_right_each_way(name: str, way: int, blocks: int) -> None:
    program = PROGRAMS[name]
    task = task_named(name)
    checked = 0
    for template in shaped_templates(task):
        if k.PARTITION not in template.choices:
            continue
        plain = {name: int(values[0]) for name, values in template.choices.items()}
        tile = {k.ROWS: 4, k.UNROLL: 2, k.ROW_BLOCK: blocks, k.PARTITION: way}
        knobs = {**plain, **tile}
        point = write_down(KnobSpace(task, template), knobs)
        shapes = around(program, 4, knobs[k.VECTORS] * knobs[k.LANES], 2)
        check(task, program, point.schedule.mod, shapes)
        checked += 1
    assert checked


@pytest.mark.parametrize("name", sorted(PROGRAMS))
def test_every_setting_has_an_estimate_for_every_shape(name: str) -> None:
    task = task_named(name)
    for template in shaped_templates(task):
        for knobs in feasible(task, template, 20, seed=1):
            costs_s = template.shape_costs_s(knobs)
            assert costs_s.shape == (len(task.shapes),)
            assert np.isfinite(costs_s).all()
            assert (costs_s > 0).all()


def test_columns_packed_within_a_chunk_are_packed_at_least_once() -> None:
    """Also where a block has more rows than a shape."""
    task = task_named("scores-nt")
    template = next(t for t in shaped_templates(task) if "pack_inside" in t.choices)
    for knobs in feasible(task, template, 10, seed=5):
        inside = {**knobs, k.PACK_COLUMNS: 1, k.PACK_INSIDE: 1}
        for way in (k.SPLIT, k.CLAMP):
            whole, far = (
                template.shape_costs_s({**inside, k.PARTITION: way, k.ROW_BLOCK: block})
                for block in (k.ALL, 1000)
            )
            assert far == pytest.approx(whole)


@pytest.mark.parametrize("name", sorted(PROGRAMS))
def test_the_work_of_the_shapes_is_what_the_task_counts(name: str) -> None:
    """A multiply-add is two operations; what comes after the product is a few for an element."""
    task = task_named(name)
    weights = np.array([weight for _, weight in task.shapes])
    for template in shaped_templates(task):
        assert isinstance(template, PadsShapes)
        assert template.shape_work.shape == (len(task.shapes),)
        mean = 2 * np.average(template.shape_work, weights=weights)
        assert mean == pytest.approx(task.flops, rel=0.2)


@pytest.mark.parametrize("name", sorted(PROGRAMS))
def test_padding_is_the_share_of_the_work_beyond_a_shape(name: str) -> None:
    task = task_named(name)
    for template in shaped_templates(task):
        assert isinstance(template, PadsShapes)
        for knobs in feasible(task, template, 20, seed=2):
            shares = template.padding(knobs)
            assert shares.shape == (len(task.shapes),)
            assert (shares >= 0.0).all()
            assert (shares < 1.0).all()


def test_padding_grows_with_what_a_tile_reaches_beyond_the_rows() -> None:
    task = task_named("dense")
    sizes = [instance[0][1] for instance, _ in task.shapes]
    # Of the two ways to see it the one whose rows are symbolic.
    template = next(t for t in shaped_templates(task) if "partition" in t.choices)
    assert isinstance(template, PadsShapes)
    for knobs in feasible(task, template, 5, seed=3):
        single = template.padding({**knobs, "rows": 1, "row_block": 1, "partition": 0})
        assert np.ptp(single) < 1e-12, "tiles of one row reach beyond no number of rows"
        tall = template.padding({**knobs, "rows": 1024, "row_block": 1, "partition": 0})
        assert tall == pytest.approx([1 - (1 - single[0]) * m / 1024 for m in sizes])


@pytest.mark.parametrize("name", sorted(PROGRAMS))
def test_an_estimate_is_that_of_the_program_specialised_for_the_shape(name: str) -> None:
    task = task_named(name)
    compared = 0
    for place, (instance, _) in enumerate(task.shapes):
        static = specialised_task(task, instance)
        others = contraction_templates(static, match_contraction(static))
        for template in shaped_templates(task):
            for knobs in feasible(task, template, 4, seed=place):
                columns = {name: np.array([value]) for name, value in knobs.items()}
                mine = float(template.shape_costs_s(knobs)[place])
                here = float(template.at(instance).costs_s(columns)[0])
                assert here == mine or math.isinf(here), "infinite is what the limits rule out"
                theirs = [float(t.costs_s(columns)[0]) for t in others]
                compared += any(cost == pytest.approx(mine, rel=1e-9) for cost in theirs)
    assert compared, "no static template is like a symbolic one"


@pytest.mark.parametrize("name", sorted(PROGRAMS))
def test_what_is_told_of_a_setting_on_a_shape_is_told_of_it_by_the_template_there(
    name: str,
) -> None:
    task = task_named(name)
    for template in shaped_templates(task):
        assert isinstance(template, HasShapeTraits)
        for knobs in feasible(task, template, 4, seed=4):
            columns = {name: np.array([value]) for name, value in knobs.items()}
            here = [template.at(instance) for instance, _ in task.shapes]
            assert all(isinstance(t, HasTraits) for t in here)
            one_by_one = [t.traits(columns)[0] for t in here if isinstance(t, HasTraits)]
            assert template.shape_traits(knobs) == pytest.approx(np.array(one_by_one))


def specialised_task(task: Task, instance: Instance) -> Task:
    function = specialise(task_module(task.module), dict(instance))["main"]
    return task_of(function, CPU, name="specialised")


def test_limits_are_those_of_the_shape_at_hand() -> None:
    task = task_named("dense")
    template = next(t for t in shaped_templates(task) if "partition" in t.choices)
    small, large = (KnobSpace(task, template.at(task.shapes[n][0])).ranked for n in (0, -1))
    assert max(k["rows"] * k["row_block"] for k in small) < max(
        k["rows"] * k["row_block"] for k in large
    )


def test_a_shape_that_nobody_declared_has_no_limits() -> None:
    (template, *_) = shaped_templates(task_named("dense"))
    with pytest.raises(KeyError):
        template.at((("M", 7),))


def test_a_written_candidate_is_a_trace_that_any_process_can_carry_out() -> None:
    task = task_named("dense-constant")
    point = TaskSpace(task).realize_draft(Draft(task.key, 1, 7, instance=task.shapes[1][0]))
    schedule = realize(task, point.candidate)
    written = replace(point.candidate, trace=canonical_payload(schedule.trace))
    assert code_hash(realize(task, written).mod) == code_hash(schedule.mod)


@pytest.mark.parametrize(
    "slower",
    [
        pytest.param({"fused": 2}, id="where a row lies is found by dividing by symbolic sizes"),
        pytest.param({"tree": 0}, id="lanes are summed one after the other"),
    ],
)
def test_short_rows_are_estimated_by_what_surrounds_their_sums(slower: dict[str, int]) -> None:
    """Measured, each of these takes 1.2 to 1.8 times as long."""
    task = task_named("scores-nt")
    (template,) = (t for t in templates_of(task) if t.name.startswith("kernel:memory"))
    assert isinstance(template, ShapedTemplate)
    best = {**dict.fromkeys(template.choices, 0), "side": 1, "parts": 1}
    best |= {"fused": 1, "tree": 1, "vectors": 1}
    assert (template.shape_costs_s(best | slower) > template.shape_costs_s(best)).all()


def test_what_is_known_of_a_kernel_is_known_without_scheduling_it() -> None:
    task = task_named("dense-constant")
    space = TaskSpace(task)
    point = space.realize_draft(Draft(task.key, 1, 3, instance=task.shapes[0][0]))
    kernel = space.kernel(point.candidate)
    assert kernel is not None
    assert point.on_shapes is not None
    assert kernel.on_shapes == point.on_shapes
    assert kernel.on_shapes.traits is not None
    assert kernel.on_shapes.traits.shape == (len(task.shapes), TRAITS)
    assert np.array_equal(kernel.on_shapes.traits, point.on_shapes.traits)
    assert len(kernel.costs_s) == len(task.shapes)
    # The search compares kernels that were looked for at different shapes.
    assert point.features is not None
    assert kernel.features == tuple(point.features.tolist())


def test_a_draft_near_a_kernel_is_another_kernel() -> None:
    task = task_named("mixed-nn")
    space, instance = TaskSpace(task), task.shapes[-1][0]
    parent = space.realize_draft(Draft(task.key, 1, 5, instance=instance)).candidate
    child = space.realize_draft(Draft(task.key, 2, 6, parent, instance=instance)).candidate
    assert child.space == parent.space
    assert knobs_of(child) != knobs_of(parent)


def test_settings_of_one_layout_pack_a_weight_alike() -> None:
    from tvm_ffi import structural_hash

    task = task_named("dense-constant")
    (template, *_) = shaped_templates(task)
    space = KnobSpace(task, template)
    packed: dict[str, set[tuple[Any, int]]] = {}
    for knobs in feasible(task, template, 12, seed=4):
        parts = split(write_down(space, knobs).schedule.mod)
        layout = template.layout(knobs)
        assert (parts is None) == (layout == "")
        if parts is not None:
            found = (parts.packing, structural_hash(parts.module[PREPACK]))
            packed.setdefault(layout, set()).add(found)
    assert len(packed) > 1
    assert all(len(found) == 1 for found in packed.values())
    shapes = {packing.packed[0].shape for found in packed.values() for packing, _ in found}
    assert len(shapes) == len(packed)


def test_a_layout_names_the_operand_and_follows_the_width_of_its_panels() -> None:
    task = task_named("dense-constant")
    (template, *_) = shaped_templates(task)
    knobs = {**feasible(task, template, 1, seed=0)[0], "pack_columns": 1, "lanes": 8, "unroll": 4}
    layouts = {template.layout({**knobs, "vectors": vectors}) for vectors in (1, 2, 3)}
    assert len(layouts) == 3
    assert all(layout.startswith("1:") for layout in layouts)
    assert template.layout({**knobs, "rows": knobs["rows"] + 1}) == template.layout(knobs)


def test_what_is_packed_at_run_time_is_no_layout() -> None:
    task = task_named("dense")
    (template, *_) = shaped_templates(task)
    assert {template.layout(k) for k in feasible(task, template, 10, seed=0)} == {""}


def test_what_packs_a_weight_ahead_has_no_symbol() -> None:
    """The packed weight has a known shape, whatever the dimensions are."""
    task = task_named("dense-biased-constant")
    (template, *_) = shaped_templates(task)
    for knobs in feasible(task, template, 6, seed=2):
        parts = split(write_down(KnobSpace(task, template), knobs).schedule.mod)
        if parts is not None:
            assert parts.packing.sources == (1,)
            assert symbols(parts.module[PREPACK]) == {}
