"""Rows fetched ahead: asked for in the second pass, and nothing else changes."""

from __future__ import annotations

import numpy as np
import pytest

from spaces.design_space.knob_space import KnobSpace
from spaces.design_space.point import Point
from spaces.passes.prefetch import AHEAD, with_prefetches
from spaces.templates.memory.template import memory_template
from tests.contracts.programs import write_down
from tuner.task import Task

pytestmark = pytest.mark.tvm

CPU = '{"kind":"llvm","mcpu":"skylake-avx512","num-cores":2}'


def row_task(rows: int, columns: int, kind: str = "softmax", target: str = CPU) -> Task:
    from tvm import te, topi

    from spaces.lowering.extract_tasks import task_of

    data = te.placeholder((rows, columns), name="data")
    out = {"softmax": topi.nn.softmax, "relu": lambda x, axis: topi.nn.relu(x)}[kind](data, axis=1)
    return task_of(te.create_prim_func([data, out]), target, name=kind)


def points(task: Task, **wanted: int) -> list[Point]:
    template = memory_template(task)
    assert template is not None
    space = KnobSpace(task, template)
    chosen = [k for k in space.ranked if wanted.items() <= k.items()]
    return [write_down(space, knobs) for knobs in chosen]


def script(point: Point) -> str:
    return str(with_prefetches(point.schedule.mod["main"]).script())


@pytest.mark.parametrize("vectors", [1, 2])
def test_each_line_of_the_next_row_and_of_this_result_is_asked_for_once(vectors: int) -> None:
    found = points(row_task(64, 256), ahead=1, vectors=vectors)
    assert found
    for point in found:
        text = script(point)
        assert text.count("prefetch") == 2 * vectors
        assert "+ 1, " in text[text.index("prefetch") :]
        assert AHEAD not in text


def test_what_is_not_marked_stays_as_it_is() -> None:
    for point in points(row_task(64, 256), ahead=0)[:3]:
        function = point.schedule.mod["main"]
        assert with_prefetches(function).same_as(function)


def test_one_pass_has_nothing_to_fetch_ahead() -> None:
    template = memory_template(row_task(64, 256, "relu"))
    assert template is not None
    assert template.choices["ahead"] == (0,)


def test_a_mark_where_nothing_is_read_twice_is_taken_off() -> None:
    from spaces.ir.schedules import new_schedule, task_module

    schedule = new_schedule(task_module(row_task(8, 64, "relu").module))
    (block,) = (schedule.get_sblock(name) for name in ("compute",))
    schedule.annotate(schedule.get_loops(block)[0], AHEAD, 1)
    text = str(with_prefetches(schedule.mod["main"]).script())
    assert AHEAD not in text
    assert "prefetch" not in text


def test_the_estimate_fetches_ahead_what_no_near_cache_holds() -> None:
    def best(rows: int) -> dict[str, int]:
        task = row_task(rows, 1024)
        template = memory_template(task)
        assert template is not None
        return dict(KnobSpace(task, template).ranked[0])

    assert best(16)["ahead"] == 0
    assert best(32768)["ahead"] == 1


@pytest.mark.parametrize("shape", [(1, 16), (3, 40), (17, 1000), (5, 64)])
def test_results_are_the_same(shape: tuple[int, int]) -> None:
    import tvm

    from spaces.codegen.artifact import build_artifact, load_kernel
    from spaces.targets.target import resolve_target

    target = resolve_target("llvm", cores=2)
    data = np.random.default_rng(1).standard_normal(shape, np.float32)
    exact = np.exp(data - data.max(axis=1, keepdims=True))
    exact /= exact.sum(axis=1, keepdims=True)
    for point in points(row_task(*shape, target=target), ahead=1)[::3]:
        kernel = load_kernel(build_artifact(point.schedule.mod, target))
        out = tvm.runtime.tensor(np.full(shape, np.nan, np.float32))
        kernel.module["main"](tvm.runtime.tensor(data), out)
        np.testing.assert_allclose(out.numpy(), exact, rtol=1e-5)
