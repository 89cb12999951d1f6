"""Programs to tune in tests: small, and made by the code that users go through."""

from __future__ import annotations

from pathlib import Path

from tuner.candidate import Candidate, CandidateKind, Draft
from tuner.task import Task

EXAMPLES = Path(__file__).parents[2] / "examples"
LLVM = '{"kind":"llvm","num-cores":2}'
BROKEN = Candidate(CandidateKind.TRACE, '[[["GetSBlock",[],["nowhere","main"],["b0"]]],[]]', "x")
"""A candidate that no program has."""


def gemm_task(target: str = LLVM, size: int = 64) -> Task:
    """A square matrix product."""
    from spaces.frontends.model import load_model
    from spaces.lowering.extract_tasks import extract
    from spaces.lowering.lower import lower
    from tuner.options import ModelSpec

    spec = ModelSpec(f"{EXAMPLES / 'gemm.py'}:gemm", args=(("m", size), ("n", size), ("k", size)))
    return extract(lower(load_model(spec).module, target), target)[0]


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
