"""Which space answers a draft: a task's templates, or TVM's rules."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from spaces.design_space.task_space import TaskSpace
from spaces.ir.schedules import InvalidCandidate
from spaces.lowering.extract_tasks import task_of
from spaces.targets.target import resolve_target
from tuner.candidate import Candidate, CandidateKind, Draft
from tuner.cost_models.process import ESTIMATE_COLUMN
from tuner.task import Task

pytestmark = pytest.mark.tvm

CPU = resolve_target("llvm", cores=2)


def task(program: str) -> Task:
    from tvm import te, topi

    a, b = te.placeholder((64, 48), name="a"), te.placeholder((48, 80), name="b")
    tensors: list[Any] = {
        "product": [a, b, topi.nn.matmul(a, b)],
        "softmax": [a, topi.nn.softmax(a, axis=1)],
    }[program]
    return task_of(te.create_prim_func(tensors), CPU, name=program)


def answered(
    space: TaskSpace, key: str, count: int, *, first: int = 1, parent: Candidate | None = None
) -> Counter[str]:
    """How many drafts, numbered from `first`, each kind of space answered."""
    found: Counter[str] = Counter()
    for number in range(first, first + count):
        try:
            point = space.realize_draft(Draft(key, number, 7 * number, parent))
        except InvalidCandidate:
            found["rules"] += 1  # settings of a template were checked before
            continue
        found[point.candidate.space.partition(":")[0]] += 1
    return found


def test_fresh_samples_come_from_the_template_and_now_and_then_from_the_rules() -> None:
    product = task("product")
    found = answered(TaskSpace(product), product.key, 60)
    assert found["kernel"] > 40
    assert found["rules"] > 0


def test_a_mutation_stays_in_its_parents_space() -> None:
    product = task("product")
    space = TaskSpace(product)
    points = [space.realize_draft(Draft(product.key, n, n)) for n in range(1, 40)]
    for kind in ("kernel", "rules"):
        parent = next(p.candidate for p in points if p.candidate.space.startswith(kind))
        assert answered(space, product.key, 10, parent=parent) == {kind: 10}


def test_a_parent_of_another_task_is_no_parent() -> None:
    product = task("product")
    stranger = Candidate(CandidateKind.TRACE, "[]", "kernel:unknown")
    point = TaskSpace(product).realize_draft(Draft(product.key, 1, 1, stranger))
    assert point.candidate.space


def test_once_a_small_template_must_be_known_most_drafts_are_the_rules() -> None:
    softmax = task("softmax")
    space = TaskSpace(softmax)
    early = answered(space, softmax.key, 20)
    late = answered(space, softmax.key, 40, first=1000)
    assert early["kernel"] > 10
    assert late["rules"] > 20
    assert late["kernel"] > 0


def test_the_same_draft_gives_the_same_point_in_any_space() -> None:
    softmax = task("softmax")
    for number in (1, 1001, 1002, 1003):
        draft = Draft(softmax.key, number, number)
        points = [TaskSpace(softmax).realize_draft(draft) for _ in range(2)]
        assert points[0].candidate == points[1].candidate


def test_a_listing_has_the_settings_of_every_template() -> None:
    product = task("product")
    space = TaskSpace(product)
    settings = space.settings(Draft(product.key, 1, 1, listing=True))
    assert {s.space for s in settings} == {t.name for t in space.templates}
    for part, template in zip(settings, space.templates, strict=True):
        point = template.describe(dict(zip(part.knobs, part.values[0].tolist(), strict=True)))
        assert point.candidate == part.candidate(0)
        assert point.features is not None
        assert point.features.tolist() == part.features[0].tolist()
        estimate_s = np.exp2(part.features[0, ESTIMATE_COLUMN])
        assert point.estimate_s == pytest.approx(estimate_s, rel=1e-5)


def test_a_task_with_symbolic_dimensions_is_drafted_point_by_point() -> None:
    product = replace(task("product"), shapes=(((("n", 64),), 1.0),))
    assert TaskSpace(product).settings(Draft(product.key, 1, 1, listing=True)) == ()
