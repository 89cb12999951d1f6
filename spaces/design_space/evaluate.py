"""Drafts to evaluated candidates: the work of a space worker's child process."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from spaces.design_space.point import Point
from spaces.design_space.realize import realize
from spaces.design_space.task_space import TaskSpace
from spaces.features.vectors import FeatureExtractor, Matrix, Vector, beside_programs
from spaces.ir.guard import note
from spaces.ir.lean_tvm import import_tvm_lean
from spaces.ir.schedules import InvalidCandidate
from tuner.candidate import Candidate, Draft
from tuner.contracts.seams import Extracts
from tuner.cost_models.base import CostModel
from tuner.cost_models.named import XGB_MODEL, new_model
from tuner.errors import describe_error
from tuner.layers import OURS, Layers
from tuner.measure import Evaluated
from tuner.source import Source
from tuner.task import Task
from tuner.user_code.faults import LayerFailed, blame
from tuner.user_code.load import load

_SPACES_KEPT = 64


class Evaluator:
    """Carries out drafts: makes the candidate, checks it, extracts features, scores it.

    Args:
        seed: seed of the cost model's loader; scores do not depend on it.
        layers: of the user's: cost model, features, mutators, and post-processors.
    """

    def __init__(self, seed: int = 0, layers: Layers = OURS) -> None:
        self._seed = seed
        self._layers = layers
        self._tasks: dict[str, Task] = {}
        self._spaces: OrderedDict[str, TaskSpace] = OrderedDict()
        self._extractors: dict[str, Extracts] = {}
        self._model: CostModel | None = None
        self._version = 0

    def put_tasks(self, tasks: Sequence[Task]) -> None:
        """Make tasks known; drafts name them by key."""
        self._tasks.update((task.key, task) for task in tasks)

    def use_model(self, version: int, model: bytes) -> None:
        """Score with this cost model from now on.

        The first model imports its libraries here, so that a search without one need not wait.
        """
        source = self._layers.cost_model
        self._model = new_model(source or XGB_MODEL, self._seed)
        with blame(source, "cost model, load"):
            self._model.load(model)
        self._version = version

    def evaluate(self, drafts: Sequence[Draft]) -> list[Evaluated]:
        """One answer for each draft, in order.

        Raises:
            LayerFailed: an object of the user's is at fault.
        """
        answers: list[Evaluated] = []
        points: list[tuple[int, Point]] = []
        for draft in drafts:
            answer, point = self._carry_out(draft)
            if point is not None:
                points.append((len(answers), point))
            answers.append(answer)
        for task_key in {d.task_key for d in drafts}:
            mine = [(i, p) for i, p in points if drafts[i].task_key == task_key]
            if mine:
                self._score(self._tasks[task_key], answers, mine)
        return answers

    def _carry_out(self, draft: Draft) -> tuple[Evaluated, Point | None]:
        if draft.describe and draft.parent is not None:
            return self._told(draft, draft.parent), None
        try:
            if draft.listing:
                return self._list(draft), None
            point = self._space(draft.task_key).realize_draft(draft)
        except InvalidCandidate as error:
            return Evaluated(draft, error=str(error)), None
        except LayerFailed:
            raise
        except Exception as error:  # whatever TVM's C++ side throws on an odd schedule
            note(error, f"a draft for {draft.task_key}")
            return Evaluated(draft, error=describe_error(error)), None
        answer = Evaluated(
            draft,
            point.candidate,
            code_hash=point.code_hash,
            estimate_s=point.estimate_s,
            on_shapes=point.on_shapes,
            space_points=point.space_points,
        )
        return answer, point

    def _list(self, draft: Draft) -> Evaluated:
        """The settings that a draft asks for; none where a user's cost model or features are to
        judge them, which takes written programs."""
        if self._layers.features is not None or self._layers.cost_model is not None:
            return Evaluated(draft)
        return Evaluated(draft, settings=self._space(draft.task_key).settings(draft))

    def _told(self, draft: Draft, candidate: Candidate) -> Evaluated:
        kernel = self._space(draft.task_key).kernel(candidate)
        if kernel is None:
            return Evaluated(draft, error=f"{candidate.space}: nothing is known of its candidates")
        return Evaluated(
            draft,
            candidate,
            features=np.asarray(kernel.features, dtype=np.float32),
            on_shapes=kernel.on_shapes,
        )

    def _score(
        self, task: Task, answers: list[Evaluated], points: Sequence[tuple[int, Point]]
    ) -> None:
        rows = self._features(task, [point for _, point in points])
        scores = np.zeros(len(rows), dtype=np.float32)
        if self._model is not None and not task.shapes:
            scores = self._predict(np.asarray(rows, dtype=np.float32))
        for (index, _), row, score in zip(points, rows, scores, strict=True):
            answers[index] = replace(
                answers[index],
                features=row,
                score=float(score),
                model_version=self._version,
            )

    def _predict(self, rows: Matrix) -> Vector:
        """The cost model's scores."""
        assert self._model is not None
        with blame(self._layers.cost_model, "cost model, predict"):
            scores = np.asarray(self._model.predict(rows), dtype=np.float32)
            if scores.shape != (len(rows),):
                raise ValueError(f"{scores.shape} scores for {len(rows)} candidates")
        return scores

    def _features(self, task: Task, points: Sequence[Point]) -> list[Vector]:
        """The points' feature vectors, extracted from programs only for points without any, or
        where a user's class extracts them."""
        if self._layers.features is not None:
            return self._their_features(task, points, self._layers.features)
        bare = [point.schedule for point in points if point.features is None]
        found = iter(self._extractor(task.target).extract(task.module, bare) if bare else ())
        # Symbolic tasks have templates alone, and a search of their own that learns of these.
        known = (lambda row: row) if task.shapes else beside_programs
        return [next(found) if p.features is None else known(p.features) for p in points]

    def _their_features(self, task: Task, points: Sequence[Point], source: Source) -> list[Vector]:
        written = [
            realize(task, p.candidate, self._layers.postprocs) if p.schedule is None else p.schedule
            for p in points
        ]
        with blame(source, "feature extractor, extract"):
            rows = list(self._extractor(task.target).extract(task.module, written))
            found = [np.asarray(row, dtype=np.float32) for row in rows]
            if [row.ndim for row in found] != [1] * len(points):
                shapes = [row.shape for row in found]
                raise ValueError(f"{shapes} are no vectors of {len(points)} programs")
        return found

    def _space(self, task_key: str) -> TaskSpace:
        """The space of a task, kept while it is in use, so that its rules are applied only once."""
        if task_key not in self._spaces:
            self._spaces[task_key] = TaskSpace(self._tasks[task_key], self._layers)
            if len(self._spaces) > _SPACES_KEPT:
                self._spaces.popitem(last=False)
        self._spaces.move_to_end(task_key)
        return self._spaces[task_key]

    def _extractor(self, target: str) -> Extracts:
        if target not in self._extractors:
            source = self._layers.features
            make = FeatureExtractor if source is None else load(source)
            self._extractors[target] = make(target)
        return self._extractors[target]


def make_evaluator(seed: int = 0, layers: Layers = OURS) -> Evaluator:
    """Make the object that a space worker's child process serves. TVM is imported here, so that a
    child that reports ready is ready for the first draft."""
    import_tvm_lean()
    import tvm  # noqa: F401

    from spaces.intrinsics.registration import stub_intrinsics

    stub_intrinsics()
    return Evaluator(seed, layers)
