"""Programs to tune in tests: small, and made by the code that users go through."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from tuner.candidate import Candidate, CandidateKind, Draft
from tuner.task import Task

if TYPE_CHECKING:
    from spaces.design_space.knob_space import KnobSpace
    from spaces.design_space.point import Point

EXAMPLES = Path(__file__).parents[2] / "examples"
LLVM = '{"kind":"llvm","num-cores":2}'
BROKEN = Candidate(CandidateKind.TRACE, '[[["GetSBlock",[],["nowhere","main"],["b0"]]],[]]', "x")
"""A candidate that no program has."""


def gemm_task(target: str = LLVM, size: int = 64) -> Task:
    """A square matrix product."""
    from spaces.frontends.model import load_model
    from spaces.lowering.extract_tasks import extract
    from spaces.lowering.lower import lower
    from tuner.request.model_spec import ModelSpec

    spec = ModelSpec(f"{EXAMPLES / 'gemm.py'}:gemm", args=(("m", size), ("n", size), ("k", size)))
    return extract(lower(load_model(spec).module, target), target)[0]


def without_bf16(target: str) -> str:
    """A CPU that has no instructions for bfloat16, and is the same in all else."""
    config = json.loads(target)
    return json.dumps({**config, "mattr": [*config.get("mattr", []), "-avx512bf16"]})


def sampled(task: Task, count: int) -> tuple[Candidate, ...]:
    """Valid candidates of a task, all different."""
    from spaces.design_space.trace_space import TraceSpace

    space = TraceSpace(task)
    found: dict[str, Candidate] = {}
    for seed in range(50 * count):
        candidate = space.realize_draft(Draft(task.key, seed, seed)).candidate
        found[candidate.key] = candidate
        if len(found) == count:
            break
    return tuple(found.values())


def write_down(space: KnobSpace, knobs: Mapping[str, int]) -> Point:
    """The point of some knobs, with all that is known of it once a builder has written it."""
    from spaces.ir.schedules import canonical_payload, code_hash

    point = space.describe(knobs)
    schedule = space.write(point.candidate)
    candidate = replace(point.candidate, trace=canonical_payload(schedule.trace))
    return replace(point, candidate=candidate, schedule=schedule, code_hash=code_hash(schedule.mod))


def twin_of(task: Task, candidate: Candidate) -> Candidate:
    """Another trace of the same program."""
    from tvm.s_tir.schedule import Trace

    from spaces.ir.schedules import canonical_payload, new_schedule, task_module
    from spaces.ir.tvm_compat import stage_blocks

    schedule = new_schedule(task_module(task.module))
    Trace.apply_json_to_schedule(json.loads(candidate.payload), schedule)
    block = stage_blocks(schedule)[0]
    schedule.annotate(block, "nothing", 0)
    schedule.unannotate(block, "nothing")
    return Candidate(candidate.kind, canonical_payload(schedule.trace), candidate.space)


def setting_of(task: Task) -> Candidate:
    """The setting of a template that is estimated to be the fastest."""
    from spaces.design_space.knob_space import KnobSpace
    from spaces.templates.registry import templates_of

    space = KnobSpace(task, templates_of(task)[0])
    return space.describe(space.ranked[0]).candidate
