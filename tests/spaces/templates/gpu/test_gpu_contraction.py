"""The template for products on a GPU: whole tiles in registers, guards only where data comes and
goes, within the limits of the device."""

from __future__ import annotations

import re
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from io import BytesIO
from itertools import product
from math import prod
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from spaces.codegen.artifact import build_artifact
from spaces.codegen.cuda.cubin import KernelUse, kernel_uses
from spaces.deploy.dispatch import make_dispatcher
from spaces.design_space.default_schedule import default_candidate
from spaces.design_space.knob_space import KnobSpace
from spaces.design_space.realize import realize
from spaces.ir import tvm_compat
from spaces.ir.symbolic import specialise
from spaces.lowering.extract_tasks import task_of
from spaces.targets.gpu import gpu_of, register_limit
from spaces.targets.target import parse_target, resolve_target
from spaces.templates.base import Knobs, draw, every, setting
from spaces.templates.gpu import knob_model
from spaces.templates.gpu.template import GpuContractionTemplate
from spaces.templates.registry import templates_of
from tests.contracts.programs import write_down
from tests.few_examples import examples
from tests.needed import needs_nvcc
from tuner.dynamic.dispatch_tree import Leaf, Split
from tuner.task import Task

pytestmark = pytest.mark.tvm

CUDA = resolve_target('{"kind":"cuda","arch":"sm_80"}')
CPU = resolve_target("llvm", cores=2)
Array = np.ndarray[Any, Any]


def size(value: int) -> Any:
    from tvm.tirx import const

    return const(value, "int64")


def dense(epilogue: bool = False, columns: int = 96, depth: int = 64) -> Any:
    """M rows, known columns and depth; with bias and ReLU where asked for."""
    from tvm import te, topi

    m = te.var("M", "int64")
    a = te.placeholder((m, size(depth)), name="a")
    b = te.placeholder((size(depth), size(columns)), name="b")
    k = te.reduce_axis((size(0), size(depth)), "k")
    c = te.compute((m, size(columns)), lambda i, j: te.sum(a[i, k] * b[k, j], k), "c")
    if not epilogue:
        return te.create_prim_func([a, b, c])
    bias = te.placeholder((size(columns),), name="bias")
    return te.create_prim_func([a, b, bias, topi.nn.relu(topi.add(c, bias))])


def batched(shape: tuple[int | str, int | str, int | str, int | str], turned: bool) -> Any:
    """Batch, rows, columns and depth; a text is a symbolic one. `turned` is NT, else NN."""
    from tvm import te

    variables = {n: te.var(n, "int64") for n in shape if isinstance(n, str)}
    q, m, n, d = (variables[e] if isinstance(e, str) else size(e) for e in shape)
    a = te.placeholder((q, m, d), name="a")
    b = te.placeholder((q, n, d) if turned else (q, d, n), name="b")
    k = te.reduce_axis((size(0), d), "k")

    def element(z: Any, i: Any, j: Any) -> Any:
        return te.sum(a[z, i, k] * (b[z, j, k] if turned else b[z, k, j]), k)

    return te.create_prim_func([a, b, te.compute((q, m, n), element, "c")])


PROGRAMS: Mapping[str, tuple[Callable[[], Any], tuple[str, ...]]] = {
    "dense": (dense, ("M",)),
    "bias and relu": (lambda: dense(epilogue=True), ("M",)),
    "NT": (lambda: batched((6, "T", "T", 64), True), ("T",)),
    "NN": (lambda: batched((6, "T", 64, "T"), False), ("T",)),
    "all symbolic": (lambda: batched(("B", "M", "N", "K"), True), ("B", "K", "M", "N")),
}
FOUR = ("bias and relu", "NT", "NN", "all symbolic")
long = pytest.mark.long
NVCC_BUILDS = [
    pytest.param(name, number, marks=() if number in (0, 1 + place % 3) else (long,))
    for (place, name), number in product(enumerate(FOUR), range(4))
]
"""Programs and numbers of settings: the best of each, and another."""


@lru_cache
def symbolic_task(name: str, sizes: tuple[int, ...] = (5, 40, 128)) -> Task:
    program, dims = PROGRAMS[name]
    values = product(sizes, repeat=len(dims))
    shapes = tuple((tuple(zip(dims, v, strict=True)), 1.0) for v in values)
    return replace(task_of(program(), CUDA, name="program"), shapes=shapes)


@lru_cache
def space_of(name: str) -> KnobSpace:
    task = symbolic_task(name)
    template, *_ = templates_of(task)
    return KnobSpace(task, template)


def some_settings(name: str, number: int, seed: int) -> Iterator[dict[str, int]]:
    """Feasible settings at random."""
    template = space_of(name).template
    columns = draw(template, 4000, np.random.default_rng(seed))
    for row in np.flatnonzero(np.isfinite(template.costs_s(columns)))[:number]:
        yield setting(columns, int(row))


def cuda_source(schedule: Any) -> str:
    import tvm

    library = tvm.compile(schedule.mod, target=parse_target(CUDA)).mod
    return "".join(m.inspect_source("cuda") for m in library.imports)


def uses(artifact: bytes) -> dict[str, KernelUse]:
    with zipfile.ZipFile(BytesIO(artifact)) as archive:
        return kernel_uses(archive.read("device.bin"))


def innermost_loops(source: str) -> list[str]:
    """Bodies of loops that hold no other loop."""
    found = []
    for start in re.finditer(r"for \([^{]*\{", source):
        depth, end = 1, start.end()
        while depth:
            depth += {"{": 1, "}": -1}.get(source[end], 0)
            end += 1
        body = source[start.end() : end - 1]
        if "for (" not in body:
            found.append(body)
    return found


@needs_nvcc
@pytest.mark.slow
@pytest.mark.parametrize(("name", "number"), NVCC_BUILDS)
def test_settings_compile_to_machine_code_within_the_limits_without_spills(
    name: str, number: int
) -> None:
    """The best setting, and three at random."""
    space, gpu = space_of(name), gpu_of(CUDA)
    template = space.template
    assert isinstance(template, GpuContractionTemplate)
    knobs = [space.ranked[0], *some_settings(name, 3, seed=1)][number]
    schedule = write_down(space, knobs).schedule
    (use,) = uses(build_artifact(schedule.mod, CUDA)).values()
    threads = knob_model.block_of(knobs).threads
    assert use.stack_bytes == 0, knobs
    assert use.registers <= register_limit(gpu, threads), knobs
    assert use.shared_bytes == template.shared_bytes(knobs) <= gpu.shared_bytes, knobs


@pytest.mark.parametrize("name", PROGRAMS)
def test_no_condition_is_in_the_loop_that_multiplies(name: str) -> None:
    for knobs in some_settings(name, 3, seed=2):
        source = cuda_source(write_down(space_of(name), knobs).schedule)
        products = [body for body in innermost_loops(source) if "_shared_ptr[" in body]
        products = [body for body in products if re.search(r"_local_ptr\[.*\] = .*\* ", body)]
        assert products, source
        for body in products:
            assert "if (" not in body, knobs
            assert "?" not in body, knobs


@settings(deadline=None, max_examples=examples(40), suppress_health_check=list(HealthCheck))
@given(
    name=st.sampled_from(sorted(PROGRAMS)),
    seed=st.integers(0, 10_000),
    values=st.lists(st.sampled_from((1, 2, 7, 31, 33, 50)), min_size=4, max_size=4),
)
def test_any_setting_computes_what_the_program_computes(
    name: str, seed: int, values: list[int]
) -> None:
    """Every thread in turn, on the CPU; each fetches all that its block fetches."""
    (knobs,) = some_settings(name, 1, seed)
    candidate = write_down(space_of(name), knobs).candidate
    scheduled = realize(symbolic_task(name), candidate).mod
    sizes = dict(zip(PROGRAMS[name][1], values, strict=False))
    if "B" in sizes:
        sizes["B"] = min(sizes["B"], 3)
    arguments = random_arguments(scheduled, sizes)
    np.testing.assert_allclose(
        in_turn(scheduled, arguments), expected(name, arguments), rtol=1e-4, atol=1e-4
    )


def random_arguments(module: Any, sizes: Mapping[str, int]) -> list[Array]:
    rng = np.random.default_rng(0)
    shapes = [
        [sizes[d] if isinstance(d, str) else d for d in tvm_compat.param_shape(p) or ()]
        for p in module["main"].params
    ]
    arguments = [rng.standard_normal(shape).astype("float32") for shape in shapes]
    arguments[-1][...] = np.nan
    return arguments


def expected(name: str, arguments: Sequence[Array]) -> Array:
    a, b, *more = arguments
    wanted: Array = a @ (b.swapaxes(1, 2) if name in ("NT", "all symbolic") else b)
    return np.maximum(wanted + more[0], 0) if len(more) > 1 else wanted


def in_turn(module: Any, arguments: Sequence[Array]) -> Array:
    """The result of a module for a GPU where its threads run one after the other."""
    import tvm
    from tvm.tirx import For, ForKind
    from tvm_ffi import structural_map

    def serial(loop: Any) -> Any:
        if loop.thread_binding is None:
            return loop
        return For(loop.loop_var, loop.min, loop.extent, ForKind.SERIAL, loop.body)

    function = module["main"]
    body = structural_map(function.body, (For, serial))
    function = tvm.tirx.PrimFunc(function.params, body, function.ret_type, function.attrs)
    library = tvm.compile(tvm.ir.IRModule({"main": function}), target=parse_target(CPU))
    tensors = [tvm.runtime.tensor(a) for a in arguments]
    library["main"](*tensors)
    return np.asarray(tensors[-1].numpy())


@settings(deadline=None, max_examples=60)
@given(
    name=st.sampled_from(sorted(PROGRAMS)),
    seed=st.integers(0, 10_000),
    shared=st.sampled_from((8 << 10, 48 << 10)),
    registers=st.sampled_from((16384, 65536)),
    threads=st.sampled_from((256, 1024)),
)
def test_a_setting_beyond_the_limits_is_infeasible(
    name: str, seed: int, shared: int, registers: int, threads: int
) -> None:
    template = space_of(name).template
    assert isinstance(template, GpuContractionTemplate)
    gpu = replace(gpu_of(CUDA), shared_bytes=shared, registers=registers, threads=threads)
    narrow = template.on(gpu)
    columns = draw(narrow, 500, np.random.default_rng(seed))
    block = knob_model.block_of(columns)
    good = np.isfinite(narrow.costs_s(columns))
    assert good.any()
    assert (block.threads[good] % 32 == 0).all()
    assert (block.threads[good] <= threads).all()
    assert (block.accumulators * block.threads)[good].max() <= registers
    assert (template.shared_bytes(columns)[good] <= shared).all()


@pytest.mark.parametrize("name", PROGRAMS)
def test_no_program_is_faster_than_memory_moves_its_tensors(name: str) -> None:
    template = space_of(name).template
    assert isinstance(template, GpuContractionTemplate)
    slow = gpu_of(CUDA)
    slow = replace(slow, numbers=replace(slow.numbers, gigabytes_per_s=1))
    (knobs,) = some_settings(name, 1, seed=6)
    for shape, cost_s in zip(
        symbolic_task(name).shapes, template.on(slow).shape_costs_s(knobs), strict=True
    ):
        assert cost_s * 1e9 >= moved_bytes(name, dict(shape[0])) * 0.999999
    assert (template.on(slow).shape_costs_s(knobs) >= template.shape_costs_s(knobs)).all()


def moved_bytes(name: str, sizes: dict[str, int]) -> int:
    """Bytes of a product's operands and result on a shape."""
    from tvm.ir import load_json

    function = specialise(load_json(symbolic_task(name).module), sizes)["main"]
    elements = [prod(tvm_compat.param_shape(p) or ()) for p in function.params]
    return 4 * sum(sorted(elements)[-3:])


def test_blocks_share_a_multiprocessor_s_memory_and_not_what_one_may_declare() -> None:
    """Two blocks of 32 KiB fit where each may declare 48 KiB at most."""
    template = space_of("NT").template
    assert isinstance(template, GpuContractionTemplate)
    small = gpu_of(CUDA)
    n = small.numbers
    shrunk = replace(n, multiprocessor_shared_bytes=48 << 10, block_shared_bytes=47 << 10)
    columns = draw(template, 500, np.random.default_rng(1))
    wide, narrow = (
        template.on(g).costs_s(columns) for g in (small, replace(small, numbers=shrunk))
    )
    good = np.isfinite(wide)
    assert (np.isfinite(narrow) == good).all()
    assert (wide[good] <= narrow[good]).all()
    assert (wide[good] < narrow[good]).any()


@pytest.mark.parametrize("name", PROGRAMS)
def test_each_value_of_a_knob_is_in_some_setting(name: str) -> None:
    template = space_of(name).template
    columns = every(template)
    good = np.isfinite(template.costs_s(columns))
    for knob, values in template.choices.items():
        assert set(columns[knob][good].tolist()) == set(values), knob


def test_limits_and_not_shapes_say_which_settings_are_feasible() -> None:
    template = space_of("NT").template
    assert isinstance(template, GpuContractionTemplate)
    columns = draw(template, 2000, np.random.default_rng(0))
    at = [template.at((("T", n),)).costs_s(columns) for n in (5, 128)]
    assert (np.isfinite(at[0]) == np.isfinite(at[1])).all()


@pytest.mark.parametrize("name", PROGRAMS)
def test_estimates_are_finite_and_grow_with_the_shape(name: str) -> None:
    dims = PROGRAMS[name][1]
    template = space_of(name).template
    assert isinstance(template, GpuContractionTemplate)
    for knobs in some_settings(name, 20, seed=3):
        costs = template.shape_costs_s(knobs)
        assert np.isfinite(costs).all()
        grid = costs.reshape((3,) * len(dims))
        for axis in range(len(dims)):
            assert (np.diff(grid, axis=axis) >= 0).all()


@pytest.mark.parametrize("name", PROGRAMS)
def test_what_is_told_of_a_setting_on_a_shape_is_told_of_it_by_the_template_there(
    name: str,
) -> None:
    template = space_of(name).template
    assert isinstance(template, GpuContractionTemplate)
    for knobs in some_settings(name, 4, seed=4):
        columns = {name: np.array([value]) for name, value in knobs.items()}
        shapes = [instance for instance, _ in symbolic_task(name).shapes]
        one_by_one = [template.at(instance).traits(columns)[0] for instance in shapes]
        assert template.shape_traits(knobs) == pytest.approx(np.array(one_by_one))


def test_all_settings_take_operands_as_they_are() -> None:
    template = space_of("dense").template
    assert isinstance(template, GpuContractionTemplate)
    assert {template.layout(knobs) for knobs in some_settings("dense", 5, seed=0)} == {""}


def test_a_program_of_known_shape_is_left_to_the_rules() -> None:
    assert templates_of(replace(symbolic_task("dense"), shapes=())) == []


def test_other_element_types_have_none_of_these() -> None:
    from tvm import te

    m = te.var("M", "int64")
    a = te.placeholder((m, size(64)), "float16", name="a")
    b = te.placeholder((size(64), size(64)), "float16", name="b")
    k = te.reduce_axis((size(0), size(64)), "k")
    c = te.compute((m, size(64)), lambda i, j: te.sum(a[i, k] * b[k, j], k), "c")
    task = task_of(te.create_prim_func([a, b, c]), CUDA, name="program")
    found = templates_of(replace(task, shapes=(((("M", 5),), 1.0),)))
    assert not any(isinstance(template, GpuContractionTemplate) for template in found)


def scheduled(name: str, knobs: Knobs) -> Any:
    return write_down(space_of(name), knobs).schedule.mod["main"]


@needs_nvcc
def test_two_kernels_and_their_dispatcher_are_one_library() -> None:
    from tvm.ir import IRModule

    kernels = [scheduled("NT", knobs) for knobs in some_settings("NT", 2, seed=4)]
    functions = make_dispatcher("main", kernels, Split("T", 32, Leaf(0), Leaf(1)))
    found = uses(build_artifact(IRModule(functions), CUDA))
    assert set(found) == {"main_kernel0_kernel", "main_kernel1_kernel"}


@needs_nvcc
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=long) if name in ("NT", "NN") else name for name in FOUR]
)
def test_the_default_schedule_of_a_symbolic_program_builds(name: str) -> None:
    task = symbolic_task(name)
    assert uses(build_artifact(realize(task, default_candidate(task)).mod, CUDA))
