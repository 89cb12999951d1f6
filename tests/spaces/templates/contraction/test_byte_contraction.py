"""Sums of products of bytes: exact in every form, by VNNI where a CPU has it, else widened."""

from __future__ import annotations

import json
import re
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, example, given, settings
from hypothesis import strategies as st

from spaces.codegen.artifact import build_artifact, load_kernel
from spaces.codegen.prepack import split
from spaces.design_space.default_schedule import default_candidate
from spaces.design_space.knob_space import KnobSpace
from spaces.design_space.realize import realize
from spaces.ir.schedules import code_hash
from spaces.passes.cpu_passes import before_compile
from spaces.targets.cpu import cpu_of
from spaces.targets.target import parse_target, resolve_target
from spaces.templates.registry import templates_of
from tests.contracts.programs import write_down
from tests.few_examples import examples
from tests.spaces.templates.contraction.byte_programs import (
    BYTES,
    OLDER,
    VNNI,
    answer,
    arguments,
    byte_templates,
    graph_tasks,
    multiply,
    point_of,
    product_task,
    run,
)
from tests.spaces.templates.contraction.test_pair_products import assembly
from tests.spaces.templates.open_programs import draw_feasible
from tuner.task import Task

pytestmark = pytest.mark.tvm

long = pytest.mark.long
FEW = settings(max_examples=examples(25), deadline=None, suppress_health_check=list(HealthCheck))
PLACES = (0.0, 0.4, 0.8)
DOT = "vpdpbusd"
SIGNS = [(one, other) for one in BYTES for other in BYTES]
TURNED = [(one, other) for one in (False, True) for other in (False, True)]
sizes = st.tuples(*[st.integers(1, 70)] * 3)


@pytest.fixture(scope="module")
def host() -> str:
    """This machine as a target of one core."""
    target = resolve_target("llvm", cores=1)
    if not cpu_of(target).vnni:
        pytest.skip("this CPU has no VNNI")
    return target


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
    found = answer(task, point.schedule, [a, b, c])
    assert np.array_equal(found, multiply((a, b), turned))
    assert code_hash(realize(task, point.candidate).mod) == point.code_hash


OPEN: dict[str, Any] = {
    "rows": {"sizes": ("m", 48, 36), "constant": True},
    "rows, an odd depth": {"sizes": ("m", 53, 71), "constant": True},
    "rows, A turned": {"sizes": ("m", 48, 24), "turned": (True, False)},
    "columns": {"sizes": (24, "n", 40), "turned": (False, True)},
    "the depth": {"sizes": (24, 48, "k")},
    "all": {"sizes": ("m", "n", "k"), "turned": (False, True)},
    "a batch": {"sizes": (9, 40, 32), "batch": "b"},
}


@pytest.mark.parametrize("number", [1, pytest.param(4, marks=long)])
@pytest.mark.parametrize("name", OPEN)
def test_products_of_open_sizes_are_exact(host: str, name: str, number: int) -> None:
    for dtypes in SIGNS[:1] if number == 1 else SIGNS:
        task = product_task(dtypes=dtypes, target=host, **OPEN[name])
        templates = byte_templates(task)
        assert templates
        for template in templates:
            for knobs in draw_feasible(template, number):
                module = write_down(KnobSpace(task, template), knobs).schedule.mod
                assert DOT in assembly(module, host), knobs
                kernel = load_kernel(build_artifact(module, host))
                for size in (1, knobs["rows"], knobs["rows"] + 1, 66):
                    given = arguments(task, size, dict.fromkeys("mnkb", size))
                    wanted = multiply(given[:2], OPEN[name].get("turned", (False, False)))
                    assert np.array_equal(run(kernel, given), wanted), (knobs, size)


def convolution(strides: int, padding: int) -> Any:
    from tvm import relax

    def build(data: Any, weight: Any) -> Any:
        return relax.op.nn.conv2d(
            data, weight, strides=strides, padding=padding, data_layout="NHWC",
            kernel_layout="HWIO", out_dtype="int32",
        )  # fmt: skip

    return build


@FEW
@given(
    side=st.integers(5, 14),
    kernel=st.sampled_from((1, 3)),
    strides=st.sampled_from((1, 2)),
    padding=st.sampled_from((0, 1)),
    channels=st.sampled_from(((3, 16), (4, 16), (32, 20), (68, 64))),
    dtypes=st.tuples(*[st.sampled_from(BYTES)] * 2),
    variant=st.integers(0, 1),
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
    variant: int,
    place: float,
    seed: int,
) -> None:
    shapes = ((1, side, side, channels[0]), (kernel, kernel, *channels))
    (task,) = graph_tasks(convolution(strides, padding), shapes, dtypes, host)
    given = arguments(task, seed)
    plain = answer(task, realize(task, default_candidate(task)), given)
    assert np.array_equal(answer(task, point_of(task, variant, place).schedule, given), plain)


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
    for constant in (False, True):
        task = product_task((33, 50, 37), constant=constant)
        assert (split(point_of(task, 0, 0.0).schedule.mod) is not None) is constant


def code_of(task: Task, place: float = 0.0) -> str:
    """The machine code of a point."""
    return assembly(point_of(task, 0, place).schedule.mod, task.target)


@pytest.mark.parametrize("dtypes", SIGNS)
def test_each_step_of_a_sum_is_the_instruction(dtypes: tuple[str, str]) -> None:
    for number, turned in enumerate(TURNED):
        code = code_of(product_task((48, 64, 96), dtypes, turned=turned), number / 4)
        assert DOT in code
        assert not re.search(r"\tvpmul|\tvpmadd", code)


@pytest.mark.parametrize("turned", TURNED)
def test_factors_that_lie_apart_are_put_together_by_vectors(turned: tuple[bool, bool]) -> None:
    task = product_task((48, 64, 96), ("uint8", "int8"), turned=turned)
    for place in (0.0, 0.5):
        code = before_compile(point_of(task, 0, place).schedule.mod).script()
        assert code.count("T.Shuffle") == turned[0] + (not turned[1]), "those of a row, or a column"


@pytest.mark.parametrize(
    ("cpu", "register"), [("cascadelake", "%zmm"), ("alderlake", "%ymm"), ("sierraforest", "%ymm")]
)
def test_each_cpu_that_has_the_instruction_gets_it_in_its_widest_registers(
    cpu: str, register: str
) -> None:
    target = json.dumps({**json.loads(VNNI), "mcpu": cpu})
    code = code_of(product_task((64, 64, 64), ("uint8", "int8"), target=target))
    found = [line for line in code.splitlines() if DOT in line]
    assert found
    assert all(register in line for line in found)


def test_a_schedule_that_a_cpu_without_the_instruction_takes_over_is_loops() -> None:
    module = point_of(product_task((64, 64, 64)), 0, 0.0).schedule.mod
    assert DOT in assembly(module, VNNI)
    assert DOT not in assembly(module, OLDER)


def test_who_gets_groups() -> None:
    def names(task: Task) -> list[str]:
        return [template.name for template in templates_of(task)]

    bytes_ = names(product_task((64, 64, 64)))
    assert all("-of-groups-" in name for name in bytes_[:1])
    ungrouped = (
        product_task((64, 64, 64), target=OLDER),
        product_task((64, 64, 64), ("int8", "int16")),
        product_task((64, 64, 64), ("int32", "int8")),
        depthwise(("uint8", "int8"), VNNI),
    )
    for task in ungrouped:
        assert names(task)[0].startswith("kernel:contraction-1")
    assert not any("kernel:shapes" in n for n in names(product_task(("m", 64, 64), target=OLDER)))


def depthwise(dtypes: tuple[str, str], target: str, channels: int = 48) -> Task:
    from tvm import relax

    def build(data: Any, weight: Any) -> Any:
        return relax.op.nn.conv2d(
            data, weight, strides=2, padding=1, groups=channels, data_layout="NHWC",
            kernel_layout="HWIO", out_dtype="int32",
        )  # fmt: skip

    shapes = ((1, 9, 11, channels), (3, 3, 1, channels))
    (task,) = graph_tasks(build, shapes, dtypes, target)
    return task


def check(task: Task) -> None:
    """See that settings from all over the templates of contractions give the same sums."""
    given = arguments(task, 1)
    plain = answer(task, realize(task, default_candidate(task)), given)
    templates = byte_templates(task)
    assert templates
    for template in templates:
        space = KnobSpace(task, template)
        for place in PLACES:
            point = write_down(space, space.ranked[int(len(space.ranked) * place**2)])
            np.testing.assert_array_equal(answer(task, point.schedule, given), plain)


@pytest.mark.parametrize("data", BYTES)
def test_depthwise_convolutions_are_exact(data: str) -> None:
    check(depthwise((data, "int8"), resolve_target("llvm", cores=1)))


@pytest.mark.parametrize("constant", [False, True])
def test_products_of_odd_sizes_are_exact_without_the_instruction(
    constant: bool, without_vnni: str
) -> None:
    check(product_task((13, 37, 29), ("uint8", "int8"), constant=constant, target=without_vnni))


@pytest.fixture
def without_vnni() -> str:
    """This machine as a target of one core, without the instruction."""
    config = json.loads(resolve_target("llvm", cores=1))
    hidden = ["-avx512vnni", "-avxvnni"] if "86" in str(config.get("mtriple", "x86")) else []
    target = json.dumps({**config, "mattr": [*config.get("mattr", []), *hidden]})
    parse_target(target)
    assert not cpu_of(target).vnni
    return target
