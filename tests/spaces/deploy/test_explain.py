"""What is said of a schedule is what its program does."""

from __future__ import annotations

import json
from typing import Any

import pytest

from spaces.deploy.explain import explain
from spaces.design_space.default_schedule import default_candidate
from spaces.design_space.knob_space import KnobSpace
from spaces.ir.schedules import canonical_payload, new_schedule, task_module
from spaces.targets.target import emulate_target, resolve_target
from spaces.templates.registry import templates_of
from spaces.templates.tensor_cores.hopper_knobs import tile_of
from spaces.templates.tensor_cores.tile import HALVES
from tests.contracts.programs import gemm_task, setting_of
from tests.needed import needs_nvcc
from tests.spaces.templates.tensor_cores.products import Sizes, task_for
from tuner.candidate import Candidate, CandidateKind, of_knobs
from tuner.task import Task

pytestmark = pytest.mark.tvm

CPU = '{"kind":"llvm","mcpu":"znver4","num-cores":2,"model":"l1=32768 l2=1048576 l3=33554432"}'


@pytest.fixture(scope="module")
def task() -> Task:
    return gemm_task(CPU, 64)


def scheduled(task: Task, *, rows: int, lanes: int, parallel: bool) -> Candidate:
    schedule = new_schedule(task_module(task.module))
    block = schedule.get_sblock("C")
    i, j, r = schedule.get_loops(block)
    i0, i1 = schedule.split(i, [None, rows])
    j0, j1 = schedule.split(j, [None, lanes])
    schedule.reorder(i0, j0, r, i1, j1)
    if parallel:
        schedule.parallel(i0)
    if lanes > 1:
        schedule.vectorize(j1)
    payload = canonical_payload(schedule.trace)
    return Candidate(CandidateKind.TRACE, payload, "mine")


def test_the_loops_are_those_of_the_heaviest_block(task: Task) -> None:
    said = explain(task, scheduled(task, rows=4, lanes=16, parallel=True))
    assert said is not None
    loops = [(loop.extent, loop.kind, loop.reduces) for loop in said.loops]
    assert loops == [
        (16, "parallel", False),
        (4, "serial", False),
        (64, "serial", True),
        (4, "serial", False),
        (16, "vectorized", False),
    ]
    assert (said.parallel_steps, said.cores, said.busy, said.lanes) == (16, 2, 1.0, 16)
    assert said.remarks == ()
    assert json.loads(json.dumps(said.to_json()))["lanes"] == 16


def test_what_speaks_against_it_is_said(task: Task) -> None:
    said = explain(task, scheduled(task, rows=4, lanes=1, parallel=False))
    assert said is not None
    assert said.remarks == ("50% of the cores' time is idle", "nothing is computed in vectors")


def test_caches_hold_what_fits(task: Task) -> None:
    said = explain(task, scheduled(task, rows=4, lanes=16, parallel=True))
    assert said is not None
    nearest, *_, last = said.caches
    tile = 4 * 16 * 4 + 4 * 64 * 4 + 64 * 16 * 4
    assert nearest.cache_bytes == 32768
    assert tile <= nearest.inside_bytes <= 32768
    whole = 3 * 64 * 64 * 4
    assert (last.loops_inside, last.moved_bytes) == (5, whole)
    assert nearest.moved_bytes >= whole


def test_of_the_emulated_device_is_said_what_is_said_of_a_gpu() -> None:
    """It is no CPU, though it is one's threads."""
    said = []
    for resolve in (resolve_target, emulate_target):
        task = gemm_task(resolve('{"kind":"cuda","arch":"sm_80"}'), 64)
        said.append(explain(task, default_candidate(task)))
    assert said[0] == said[1]
    assert said[0] is not None
    assert (said[0].caches, said[0].remarks) == ((), ())


def test_a_template_says_what_it_predicted(task: Task) -> None:
    said = explain(task, setting_of(task))
    assert said is not None
    assert said.predicted_ms is not None
    assert said.predicted_ms > 0


@pytest.mark.parametrize("shape", [(), (1, 1)])
def test_a_program_without_loops_is_left_out(shape: tuple[int, ...]) -> None:
    from tvm import te

    from spaces.lowering.extract_tasks import task_of

    x = te.placeholder(shape, name="x")
    one: Any = te.compute(shape, lambda *at: x(*at) + 1.0, name="one")
    alone = task_of(te.create_prim_func([x, one]), CPU, name="alone")
    assert explain(alone, Candidate(CandidateKind.TRACE, "[[],[]]", "default")) is None


@needs_nvcc
def test_a_program_for_a_gpu_s_threads_has_settings_and_registers() -> None:
    task = task_for("NT", Sizes(200, 136, 72))
    template, *_ = templates_of(task)
    space = KnobSpace(task, template)
    said = explain(task, of_knobs(space.ranked[0], space.name))
    assert said is not None
    assert said.settings == space.ranked[0]
    assert said.loops == ()
    (kernel,) = said.to_json()["kernels"]
    tile = tile_of(HALVES, space.ranked[0])
    assert kernel["threads"] == tile.threads == 128 * (1 + space.ranked[0]["consumers"])
    assert kernel["registers"] > 24
    assert kernel["spilled_bytes"] == 0
    assert kernel["shared_bytes"] == tile.block_bytes(16)
    assert kernel["resident_blocks"] * kernel["threads"] == round(2048 * kernel["occupancy"])
    assert kernel["mix"]["counts"]["HGMMA"] > 0
    assert said.predicted_ms is not None


def test_a_program_that_does_not_compile_here_is_explained_without_its_kernels(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(*_: Any) -> bytes:
        raise RuntimeError("the compiler refused the source")

    monkeypatch.setattr("spaces.deploy.explain.build_artifact", refuse)
    task = task_for("NT", Sizes(200, 136, 72))
    template, *_ = templates_of(task)
    space = KnobSpace(task, template)
    said = explain(task, of_knobs(space.ranked[0], space.name))
    assert said is not None
    assert said.settings == space.ranked[0]
    assert said.kernels == ()
