"""int8 matrix products on a CPU with VNNI: exact in every form, and the same wherever replayed."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import HealthCheck, assume, example, given, settings
from hypothesis import strategies as st

from spaces.codegen.artifact import build_artifact, load_kernel
from spaces.deploy.database import RECORDS, export_database
from spaces.design_space.default_schedule import default_candidate
from spaces.design_space.knob_space import KnobSpace
from spaces.design_space.point import Point
from spaces.design_space.realize import realize
from spaces.features.vectors import FeatureExtractor
from spaces.intrinsics import vnni
from spaces.ir import tvm_compat
from spaces.ir.schedules import code_hash, task_module
from spaces.lowering.extract_tasks import extract, task_of
from spaces.targets.cpu import cpu_of
from spaces.targets.target import resolve_target
from spaces.templates.contraction.match import match_contraction
from spaces.templates.int8.template import int8_templates
from spaces.templates.registry import templates_of
from tests.contracts.programs import write_down
from tests.few_examples import examples
from tests.lean import LEAN
from tuner.task import Task

pytestmark = pytest.mark.tvm

VNNI = '{"kind":"llvm","mcpu":"cascadelake","mtriple":"x86_64-unknown-linux-gnu","num-cores":1}'
BYTES = ("int8", "uint8")
FEW = settings(max_examples=examples(25), deadline=None, suppress_health_check=list(HealthCheck))

Array = npt.NDArray[Any]


@pytest.fixture(scope="module")
def host() -> str:
    """This machine as a target of one core."""
    target = resolve_target("llvm", cores=1)
    if not cpu_of(target).vnni:
        pytest.skip("this CPU has no VNNI")
    return target


def product_task(
    sizes: Sequence[int],
    dtypes: Sequence[str] = ("int8", "int8"),
    *,
    turned: Sequence[bool] = (False, False),
    batch: int | None = None,
    constant: bool = False,
    target: str = VNNI,
) -> Task:
    """A (batch of) m x n products of k bytes; `turned` operands have their last axes swapped."""
    from tvm import te

    m, n, k = sizes
    more = () if batch is None else (batch,)
    shapes = ((k, m) if turned[0] else (m, k), (n, k) if turned[1] else (k, n))
    a, b = (
        te.placeholder(more + s, d, name=name)
        for s, d, name in zip(shapes, dtypes, "ab", strict=True)
    )
    depth = te.reduce_axis((0, k), name="depth")

    def total(*index: Any) -> Any:
        *outer, i, j = index
        left = a[(*outer, depth, i)] if turned[0] else a[(*outer, i, depth)]
        right = b[(*outer, j, depth)] if turned[1] else b[(*outer, depth, j)]
        return te.sum(left.astype("int32") * right.astype("int32"), axis=depth)

    function = te.create_prim_func([a, b, te.compute((*more, m, n), total, name="c")])
    if constant:
        function = function.with_attr(tvm_compat.LAYOUT_FREE, [1])
    return task_of(function, target, name="product")


def graph_tasks(
    build: Any, shapes: Sequence[Sequence[int]], dtypes: Sequence[str], target: str
) -> list[Task]:
    """Tasks of a graph of two inputs, legalized and fused by TVM."""
    from tvm import relax
    from tvm.ir.transform import Sequential

    inputs = [
        relax.Var(f"x{n}", relax.TensorType(list(shape), dtype))
        for n, (shape, dtype) in enumerate(zip(shapes, dtypes, strict=True))
    ]
    builder = relax.BlockBuilder()
    with builder.function("main", inputs):
        with builder.dataflow():
            result = builder.emit_output(builder.emit(build(*inputs)))
        builder.emit_func_output(result)
    t = relax.transform
    passes = [t.LegalizeOps(), t.AnnotateTIROpPattern(), t.FuseOps(), t.FuseTIR()]
    return extract(Sequential(passes)(builder.get()), target)


def arguments(task: Task, seed: int) -> list[Array]:
    """Random bytes with many extremes among them, and a result full of something else."""
    rng = np.random.default_rng(seed)
    found = []
    for param in task_module(task.module)["main"].params:
        shape, dtype = tvm_compat.param_shape(param), tvm_compat.param_dtype(param)
        if dtype not in BYTES:
            found.append(np.full(shape, 77, dtype))
            continue
        low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
        values = rng.integers(low, high + 1, shape)
        extremes = rng.choice([low, high], shape)
        found.append(np.where(rng.random(shape) < rng.random(), extremes, values).astype(dtype))
    return found


def answer(task: Task, schedule: Any, given: Sequence[Array]) -> Array:
    """What a scheduled program computes."""
    import tvm

    kernel = load_kernel(build_artifact(schedule.mod, task.target))
    tensors = [tvm.runtime.tensor(array) for array in given]
    kernel.module["main"](*kernel.arguments(tensors, tvm.cpu()))
    return np.asarray(tensors[-1].numpy())


def point_of(task: Task, variant: int, place: float) -> Point:
    """A point of one of a task's templates, near the front of its ranking or far behind."""
    templates = int8_templates(task, match_contraction(task))
    space = KnobSpace(task, templates[variant % len(templates)])
    return write_down(space, space.ranked[int(len(space.ranked) * place**2)])


sizes = st.tuples(*[st.integers(1, 70)] * 3)


@FEW
@example((1, 5, 8), ("int8", "int8"), (False, False), 1, False, 0, 0.0, 0)
@example((9, 1, 8), ("int8", "uint8"), (True, False), 1, True, 0, 0.0, 0)
@given(
    sizes=sizes,
    dtypes=st.tuples(*[st.sampled_from(BYTES)] * 2),
    turned=st.tuples(st.booleans(), st.booleans()),
    batch=st.sampled_from((None, 1, 3)),
    constant=st.booleans(),
    variant=st.integers(0, 1),
    place=st.floats(0, 0.999),
    seed=st.integers(0, 999),
)
def test_products_are_exact_and_replay_to_the_same_program(
    host: str,
    sizes: tuple[int, int, int],
    dtypes: tuple[str, str],
    turned: tuple[bool, bool],
    batch: int | None,
    constant: bool,
    variant: int,
    place: float,
    seed: int,
) -> None:
    assume(max(sizes[:2]) > 1 and sizes[2] > 1)
    task = product_task(sizes, dtypes, turned=turned, batch=batch, constant=constant, target=host)
    point = point_of(task, variant, place)
    a, b, c = arguments(task, seed)
    left, right = (np.swapaxes(x, -1, -2) if t else x for x, t in zip((a, b), turned, strict=True))
    found = answer(task, point.schedule, [a, b, c])
    assert np.array_equal(found, left.astype(np.int32) @ right.astype(np.int32))
    assert code_hash(realize(task, point.candidate).mod) == point.code_hash


@FEW
@given(
    side=st.integers(5, 14),
    kernel=st.sampled_from((1, 3)),
    strides=st.sampled_from((1, 2)),
    padding=st.sampled_from((0, 1)),
    channels=st.sampled_from(((4, 16), (32, 20), (68, 64))),
    dtypes=st.tuples(*[st.sampled_from(BYTES)] * 2),
    place=st.floats(0, 0.999),
    seed=st.integers(0, 999),
)
def test_convolutions_with_channels_last_are_exact(
    host: str,
    side: int,
    kernel: int,
    strides: int,
    padding: int,
    channels: tuple[int, int],
    dtypes: tuple[str, str],
    place: float,
    seed: int,
) -> None:
    from tvm import relax

    def convolution(data: Any, weight: Any) -> Any:
        return relax.op.nn.conv2d(
            data,
            weight,
            strides=strides,
            padding=padding,
            data_layout="NHWC",
            kernel_layout="HWIO",
            out_dtype="int32",
        )

    shapes = ((1, side, side, channels[0]), (kernel, kernel, *channels))
    (task,) = graph_tasks(convolution, shapes, dtypes, host)
    given = arguments(task, seed)
    plain = answer(task, realize(task, default_candidate(task)), given)
    assert np.array_equal(answer(task, point_of(task, 0, place).schedule, given), plain)


@pytest.mark.parametrize("place", [0.0, 0.5, 0.9])
def test_what_follows_a_product_is_done_on_its_tile(host: str, place: float) -> None:
    from tvm import relax

    def dequantized(a: Any, b: Any) -> Any:
        total = relax.op.matmul(a, b, out_dtype="int32")
        scale = relax.const(np.float32(0.01))
        return relax.op.nn.relu(relax.op.multiply(relax.op.astype(total, "float32"), scale))

    (task,) = graph_tasks(dequantized, ((33, 96), (96, 80)), ("int8", "int8"), host)
    given = arguments(task, 1)
    plain = answer(task, realize(task, default_candidate(task)), given)
    assert np.array_equal(answer(task, point_of(task, 0, place).schedule, given), plain)


def test_constant_columns_are_packed_ahead_odd_sizes_included() -> None:
    from spaces.codegen.prepack import split

    for constant in (False, True):
        task = product_task((33, 50, 37), constant=constant)
        assert (split(point_of(task, 0, 0.0).schedule.mod) is not None) is constant


def test_a_cpu_without_the_instruction_has_no_such_template() -> None:
    older = '{"kind":"llvm","mcpu":"skylake-avx512","num-cores":1}'
    assert int8_templates(task := product_task((64, 64, 64), target=older), None) == []
    assert not any("int8" in t.name for t in templates_of(task))
    assert [t.name for t in templates_of(product_task((64, 64, 64)))] == [
        "kernel:int8-1.0",
        "kernel:int8-1.1",
    ]


@pytest.mark.parametrize(
    ("cpu", "register"), [("cascadelake", "%zmm"), ("alderlake", "%ymm"), ("sierraforest", "%ymm")]
)
def test_each_cpu_that_has_the_instruction_gets_it_in_its_widest_registers(
    cpu: str, register: str
) -> None:
    import tvm

    from spaces.passes.cpu_passes import before_compile
    from spaces.targets.target import parse_target

    target = json.dumps({**json.loads(VNNI), "mcpu": cpu})
    module = point_of(product_task((64, 64, 64), target=target), 0, 0.0).schedule.mod
    code = tvm.compile(before_compile(module), target=parse_target(target)).mod.inspect_source("s")
    found = [line for line in code.splitlines() if "vpdpbusd" in line]
    assert found
    assert all(register in line for line in found)


@pytest.mark.parametrize("dtypes", [("int8", "int16"), ("int16", "int16"), ("int32", "int8")])
def test_wider_integers_are_left_to_the_rules(dtypes: tuple[str, str]) -> None:
    task = product_task((64, 64, 64), dtypes)
    assert int8_templates(task, match_contraction(task)) == []


def test_features_are_extracted_from_programs_with_intrinsics() -> None:
    task = product_task((64, 64, 64))
    rows = FeatureExtractor(VNNI).extract(
        task.module, [point_of(task, 0, place).schedule for place in (0.0, 0.9)]
    )
    assert np.isfinite(rows).all()
    assert not np.array_equal(rows[0], rows[1])


@given(
    dot=st.builds(
        vnni.Dot,
        signs=st.sampled_from(("ss", "su", "us", "uu")),
        rows=st.integers(1, 28),
        vectors=st.integers(1, 6),
        lanes=st.sampled_from((4, 8, 16)),
        depth=st.integers(1, 999),
        step=st.integers(0, 3),
        unroll=st.integers(1, 4),
        columns_first=st.booleans(),
        column_factor_first=st.booleans(),
        index_bits=st.sampled_from((32, 64)),
    )
)
def test_a_name_says_all_there_is_to_know_of_an_intrinsic(dot: vnni.Dot) -> None:
    assert vnni.parse(dot.name) == dot


def test_names_of_others_are_none_of_ours() -> None:
    assert vnni.parse("dot_16x4_vnni") is None
    assert vnni.parse("tuner.vnni.dot_xx_r1") is None
    assert (
        vnni.find_intrinsics('[["Tensorize",["l1",false],["\\"tuner.vnni.dot_xx_r1\\""],[]]]') == []
    )


_REPLAY = """
import sys
from spaces.design_space.realize import realize
from spaces.ir.schedules import code_hash
from tuner.candidate import Candidate, CandidateKind
from tuner.task import Task
module, target, payload = sys.stdin.read().split(chr(0))
task = Task("key", "name", module, target)
print(code_hash(realize(task, Candidate(CandidateKind.TRACE, payload, "")).mod))
"""


def test_a_fresh_process_replays_a_candidate() -> None:
    task = product_task((40, 48, 64))
    point = point_of(task, 0, 0.0)
    assert "tuner.vnni.dot_ss" in point.candidate.trace
    assert in_a_fresh_process(_REPLAY, task, point) == point.code_hash


_STOCK = """
import sys
import tvm
from spaces.targets.target import parse_target
from spaces.intrinsics.named import register_named
from tvm import relax
module, target, folder = sys.stdin.read().split(chr(0))
function = tvm.ir.load_json(module)["main"]
with parse_target(target):
    apply = relax.transform.MetaScheduleApplyDatabase(folder)
    try:
        apply(tvm.IRModule({"main": function}))
        print("applied")
    except Exception as error:
        print("tuner.vnni" in str(error))
    register_named(open(folder + "/database_tuning_record.json").read())
    applied = apply(tvm.IRModule({"main": function}))
print("vpdpbusd" in applied.script())
"""


def test_stock_tvm_applies_such_a_database_once_the_intrinsics_are_registered(
    tmp_path: Path,
) -> None:
    task = product_task((40, 48, 64))
    point = point_of(task, 0, 0.0)
    export_database(tmp_path, [(task, point.candidate, [1e-3])])
    assert "tuner.vnni" in (tmp_path / RECORDS).read_text()
    found = in_a_fresh_process(_STOCK, task, point, str(tmp_path))
    assert found.split() == ["True", "True"]


def in_a_fresh_process(code: str, task: Task, point: Point, last: str | None = None) -> str:
    words = (task.module, task.target, last or point.candidate.trace or point.candidate.payload)
    done = subprocess.run(
        [sys.executable, "-c", LEAN + code],
        input=chr(0).join(words),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout.strip()
