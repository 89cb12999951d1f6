"""The templates for what is bound by memory on a GPU: what they take, what their settings are
estimated to take, and what the compiler makes of them."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from spaces.codegen.artifact import build_artifact, load_kernel
from spaces.codegen.cuda.compile import compile_cuda
from spaces.design_space.knob_space import KnobSpace
from spaces.ir.schedules import code_hash
from spaces.lowering.extract_tasks import task_of
from spaces.targets.gpu import gpu_of
from spaces.targets.target import emulate_target
from spaces.templates.base import ShapedTemplate, every
from spaces.templates.registry import templates_of
from tests.needed import needs_nvcc
from tests.spaces.templates.gpu_memory.programs import HOPPER, PROGRAMS, TRANSPOSE, Source, task_for
from tests.spaces.templates.tensor_cores.test_hopper_template import compile_setting, disassemble
from tuner.candidate import of_knobs

pytestmark = pytest.mark.tvm

HALVES = ["float16"] * 3
LARGE = {
    "softmax": Source([(4096, 1024)], lambda op, x: op.nn.softmax(x)),
    "softmax in halves": Source([(4096, 4096)], lambda op, x: op.nn.softmax(x), HALVES),
    "long softmax": Source([(256, 32768)], lambda op, x: op.nn.softmax(x)),
    "open softmax": Source(
        [(4096, "n")], lambda op, x: op.nn.softmax(x), tuned={"n": (64, 300, 512)}
    ),
    "RMS norm": Source(
        [("m", 4096), (4096,)],
        lambda op, x, g: op.nn.rms_norm(x, g, [-1]),
        HALVES,
        tuned={"m": (1, 64, 4096)},
    ),
    "layer norm": Source(
        [(8, 512, 768), (768,), (768,)],
        lambda op, x, g, b: op.nn.layer_norm(x, g, b, [-1]),
        HALVES,
    ),
    "sums of rows": Source([(4096, 4096)], lambda op, x: op.sum(x, [1])),
    "sums of columns": Source([(4096, 4096)], lambda op, x: op.sum(x, [0])),
    "residual": Source(
        [(8, 512, 768), (8, 512, 768), (768,)],
        lambda op, x, y, b: op.add(op.add(x, y), b),
        HALVES,
    ),
    "cast": Source([(4096, 4096)], lambda op, x: op.astype(x, "float16")),
    "filters of channels": Source(
        [(8, 56, 56, 128), (3, 3, 1, 128)], PROGRAMS["filters of channels of open batch"].body
    ),
    "filters of channels in halves": Source(
        [(8, 56, 56, 128), (3, 3, 1, 128)],
        PROGRAMS["filters of channels of open batch"].body,
        HALVES,
    ),
    "heads inside": Source(
        [(8, 512, 12, 64)], lambda op, x: op.permute_dims(x, [0, 2, 1, 3]), HALVES
    ),
}
IN_ALL = {
    "softmax in halves",
    "open softmax",
    "RMS norm",
    "sums of columns",
    "filters of channels",
}
"""Those that are compiled in `make test`, too."""


def space_of(source: Source, target: str = HOPPER) -> KnobSpace:
    task = task_for(source, target)
    (template,) = templates_of(task)
    return KnobSpace(task, template)


# ---- what they take


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_bound_by_memory_have_one(name: str) -> None:
    turned = name.startswith(("transpose", "all axes"))
    expected = "kernel:gpu-transpose-1" if turned else "kernel:gpu-memory-2"
    assert space_of(PROGRAMS[name]).name == expected


@pytest.mark.parametrize(
    "source",
    [
        Source([(64, 96), (96, 80)], lambda op, x, y: op.matmul(x, y)),
        Source([(1, 16, 14, 14), (16, 16, 3, 3)], lambda op, x, w: op.nn.conv2d(x, w)),
    ],
    ids=["product", "convolution"],
)
def test_what_is_bound_by_arithmetic_is_left_to_others(source: Source) -> None:
    names = [template.name for template in templates_of(task_for(source))]
    assert not [name for name in names if "memory" in name or "transpose" in name]


@pytest.mark.parametrize(
    "source",
    [
        Source([(64, 96)], lambda op, x: op.argmax(x, 1)),
        Source(
            [(4, 8, 6, 6), (8,), (8,)], lambda op, x, g, b: op.nn.group_norm(x, g, b, 2, 1, [2, 3])
        ),
    ],
    ids=["pairs", "groups"],
)
def test_sums_that_threads_cannot_share_are_left_to_the_rules(source: Source) -> None:
    assert templates_of(task_for(source)) == []


def test_a_tensor_may_have_the_name_of_a_dimension() -> None:
    from tvm import te

    n = te.var("n", "int64")
    x, w = te.placeholder((n, 64), name="x"), te.placeholder((64,), name="n")
    program = te.create_prim_func([x, w, te.compute((n, 64), lambda i, j: x[i, j] * w[j])])
    task = replace(task_of(program, HOPPER, name="named"), shapes=(((("n", 7),), 1.0),))
    (template,) = templates_of(task)
    assert template.name == "kernel:gpu-memory-2"


# ---- settings


@pytest.mark.parametrize("name", ["softmax", "softmax across", "GELU", "transpose"])
def test_each_value_of_a_knob_is_in_some_setting_within_the_limits(name: str) -> None:
    template, gpu = space_of(PROGRAMS[name]).template, gpu_of(HOPPER)
    columns = every(template)
    feasible = np.isfinite(template.costs_s(columns))
    for knob, values in template.choices.items():
        assert {*columns[knob][feasible].tolist()} == {*values}
    threads = columns.get("threads")
    if threads is None:
        threads = columns["lane_threads"] * columns["item_threads"]
    assert threads[feasible].max() <= gpu.threads
    assert not (threads[feasible] % gpu.warp).any()


def test_settings_are_programs_of_their_own() -> None:
    space = space_of(PROGRAMS["softmax of odd rows"])
    some = space.ranked[::9]
    modules = [space.write(of_knobs(knobs, space.name)).mod for knobs in some]
    assert len({code_hash(module) for module in modules}) == len(some)


@pytest.mark.parametrize("name", LARGE)
def test_no_estimate_is_below_what_memory_takes(name: str) -> None:
    task, space = task_for(LARGE[name]), space_of(LARGE[name])
    sizes = {dim: max(values) for dim, values in LARGE[name].tuned.items()}
    elements = [np.prod([sizes.get(str(dim), dim) for dim in dims]) for dims in LARGE[name].dims]
    least_bytes = 2 * float(sum(elements))
    assert space.least_s > least_bytes / gpu_of(task.target).numbers.gigabytes_per_s / 1e9


def test_rows_are_read_once_where_a_block_has_room_for_them() -> None:
    def best(length: int) -> dict[str, int]:
        return space_of(Source([(4096, length)], lambda op, x: op.nn.softmax(x))).ranked[0]

    assert best(1024)["held"]
    assert best(32768)["held"]
    assert best(32768)["lane_threads"] > best(1024)["lane_threads"]
    assert best(1 << 20)["held"] == 0


def test_estimates_of_a_shape_are_those_of_the_template_at_that_shape() -> None:
    source = PROGRAMS["softmax of open sizes"]
    task, space = task_for(source), space_of(source)
    template: Any = space.template
    assert isinstance(template, ShapedTemplate)
    for knobs in space.ranked[::100]:
        columns = {name: np.array([value]) for name, value in knobs.items()}
        each = [template.at(instance).costs_s(columns)[0] for instance, _ in task.shapes]
        np.testing.assert_allclose(template.shape_costs_s(knobs), each)
        traits = [template.at(instance).traits(columns)[0] for instance, _ in task.shapes]
        np.testing.assert_allclose(template.shape_traits(knobs), traits, rtol=1e-6)


# ---- machine code


@needs_nvcc
@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=() if n in IN_ALL else pytest.mark.long) for n in LARGE]
)
def test_the_best_predicted_loads_vectors_and_spills_nothing(name: str, tmp_path: Path) -> None:
    space = space_of(LARGE[name])
    best = space.ranked[0]
    source = compile_setting(space, best).imports[0].inspect_source("cuda")
    code = compile_cuda(source, "sm_90a")
    (use,) = code.uses.values()
    assert use.stack_bytes == use.spill_store_bytes == 0
    assembly = disassemble(code.binary, tmp_path)
    assert re.search(r"LDG\.E\.(64|128)", assembly)
    if not name.startswith("sums"):
        assert "STG.E.128" in assembly or "STG.E.64" in assembly
    narrow = len(re.findall(r"LDG\.E(?:\.U16)?(?:\.CONSTANT)? ", assembly))
    assert narrow == 0 or name.startswith("open")  # where no vector fits, elements are loaded


@needs_nvcc
def test_a_transpose_goes_through_shared_memory_and_spills_nothing(tmp_path: Path) -> None:
    space = space_of(TRANSPOSE)
    source = compile_setting(space, space.ranked[0]).imports[0].inspect_source("cuda")
    code = compile_cuda(source, "sm_90a")
    (use,) = code.uses.values()
    assert use.stack_bytes == use.spill_store_bytes == 0
    order = re.findall(r"LDG|STS|BAR|LDS|STG", disassemble(code.binary, tmp_path))
    assert order.index("LDG") < order.index("STS") < order.index("BAR")
    assert order.index("BAR") < order.index("LDS") < order.index("STG")


# ---- sizes of nothing


@pytest.mark.parametrize("name", ["sums of columns of open length", "sum of all of open length"])
def test_a_sum_of_nothing_is_zero(name: str) -> None:
    import tvm

    source = PROGRAMS[name]
    target = emulate_target(HOPPER)
    task = task_for(source, target)
    (template,) = templates_of(task)
    space = KnobSpace(task, template)
    module = space.write(of_knobs(space.ranked[0], space.name)).mod
    kernel = load_kernel(build_artifact(module, target))
    kind, shape = source.kinds[0], (72,) if "columns" in name else ()
    out = tvm.runtime.tensor(np.full(shape, np.nan, kind))
    kernel.module["main"](tvm.runtime.tensor(np.zeros((0, 72), kind)), out)
    np.testing.assert_array_equal(out.numpy(), np.zeros(shape, kind))
