"""The two seams between the logic of a session and the machines that work for it."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

from tuner.arrays import Features, Ints32
from tuner.candidate import Candidate, Draft, of_knobs
from tuner.record import Measurement, Record, Status, Trial
from tuner.task import Instance

_BUILDS_KNOWN = 5
_BUILD_PATIENCE = 30.0
"""A build may take this many times as long as the longest so far of its task."""
_LEAST_BUILD_S = 10.0
_OTHERS_KEPT = 512
"""Built kernels for other shapes and rounds, of some ten kilobytes each."""

_Built = TypeVar("_Built")


class Measurer(Protocol):
    """Builds and measures trials somewhere. Every submitted trial comes back as one record.

    Where a task's reference output cannot be worked out, each of its trials comes back UNCHECKED.
    """

    def free(self) -> int:
        """Number of further trials that can be put to work now; changes as machines come and go."""

    def submit(self, trials: Sequence[Trial], cutoff_s: float | None = None) -> None:
        """Take trials. A kernel slower than `cutoff_s` may be cut short as CENSORED."""

    def collect(self, timeout_s: float) -> list[Record]:
        """Records that are ready, waiting at most `timeout_s` for the first."""

    def toolchain(self) -> str | None:
        """Fingerprint of the compiler that the measuring machines use; None until a machine has
        reported it."""

    def close(self) -> None:
        """Stop the workers. Trials in flight are dropped without a record."""


@dataclass(frozen=True, slots=True)
class OnShapes:
    """The space's predictions for a kernel on each shape of a task with symbolic dimensions.

    Attributes:
        costs_s: analytic latencies, in the order of the shapes; infinite where it is hopeless.
        layout: kernels of different layouts cannot share packed weights, hence not one function.
        traits: further inputs of a cost model: shapes by traits, the same columns for all
            candidates of a task; None where there are none.
    """

    costs_s: tuple[float, ...]
    layout: str = ""
    traits: Features | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings of one template for one task, a row each: a part of a search's pool.

    Attributes:
        space: the name of the template's space.
        knobs: names of the columns.
        values: of the knobs, settings by knobs.
        features: vectors for a cost model, the estimate among them
            (`tuner.cost_models.process.ESTIMATE_COLUMN`).
    """

    space: str
    knobs: tuple[str, ...]
    values: Ints32
    features: Features

    def __len__(self) -> int:
        return len(self.values)

    def candidate(self, row: int) -> Candidate:
        """The candidate that a row stands for."""
        return of_knobs(dict(zip(self.knobs, self.values[row].tolist(), strict=True)), self.space)


@dataclass(frozen=True, slots=True)
class Evaluated:
    """The answer to a draft: a candidate, or the reason why there is none; or a listing.

    Attributes:
        draft: the draft that this answers.
        candidate: the point that the draft gave; None if it gave none.
        error: why there is no candidate.
        fault: what a user's object did wrong, which ends the run.
        code_hash: hash of the realised program, where the space has written it; equal programs
            need only one timing.
        score: predicted merit, higher is better, comparable within one task and model version.
        model_version: of the cost model that scored it; 0 is no model.
        features: vector for the cost model, one length for all candidates.
        estimate_s: analytic latency, where the space has such an estimate.
        on_shapes: predictions for each of the task's shapes; None for a static task.
        space_points: the number of points of the candidate's space, where it is known.
        settings: the answer to a draft of a listing, for each template of the task; none where its
            space has more than templates.
    """

    draft: Draft
    candidate: Candidate | None = None
    error: str = ""
    fault: str = ""
    code_hash: str = ""
    score: float = 0.0
    model_version: int = 0
    features: Features | None = None
    estimate_s: float | None = None
    on_shapes: OnShapes | None = None
    space_points: int | None = None
    settings: tuple[Settings, ...] = ()


class MeasuredPrograms:
    """Programs that have a time: a candidate that turns out to be one of them need not be timed.

    Args:
        records: of earlier sessions.
    """

    def __init__(self, records: Iterable[Record] = ()) -> None:
        self._first: dict[tuple[str, Instance, str], tuple[str, tuple[float, ...]]] = {}
        """Key and samples of the first candidate of each: whole records hold their traces."""
        for record in records:
            self.add(record)

    def add(self, record: Record) -> None:
        """Remember a record's program, if the search timed it."""
        if record.code_hash and record.latency_s is not None and not record.trial.rung:
            timed = record.trial.candidate.key, record.measurement.samples_s
            self._first.setdefault(_program(record.trial, record.code_hash), timed)

    def reused(self, trial: Trial, code_hash: str, build_s: float) -> Measurement | None:
        """The measurement of a trial of the search whose program was timed before on its shape, as
        another candidate's; None where it was not. A trial that is repeated is timed anew."""
        key, samples_s = self._first.get(_program(trial, code_hash), ("", ()))
        if not key or trial.rung or key == trial.candidate.key:
            return None
        return Measurement(Status.DUPLICATE, samples_s, build_s=build_s)


def _program(trial: Trial, code_hash: str) -> tuple[str, Instance, str]:
    return trial.task_key, trial.instance, code_hash


class BuiltKernels(Generic[_Built]):
    """What was built and will be measured again: the fastest kernels of each static task, which
    become its finalists; and kernels with more trials to come, on other shapes or in other rounds.

    Args:
        each: number of kernels that are kept of a static task.
    """

    def __init__(self, each: int) -> None:
        self._each = each
        self._fastest: dict[str, dict[str, tuple[float, _Built]]] = {}
        """By the keys of task and candidate: the latency in the search, seconds."""
        self._others: OrderedDict[tuple[str, str], _Built] = OrderedDict()

    def find(self, trial: Trial) -> _Built | None:
        """What was built for a trial's candidate; None where it is to be built."""
        key = (trial.task_key, trial.candidate.key)
        if key in self._others:
            self._others.move_to_end(key)
            return self._others[key]
        _, built = self._fastest.get(trial.task_key, {}).get(trial.candidate.key, (0.0, None))
        return built

    def add(self, trial: Trial, built: _Built) -> None:
        """Keep what was built for a trial that more trials will follow."""
        if trial.rung > 0 or trial.instance:
            self._others[trial.task_key, trial.candidate.key] = built
            while len(self._others) > _OTHERS_KEPT:
                self._others.popitem(last=False)

    def settle(self, trial: Trial, latency_s: float | None, built: _Built) -> None:
        """Keep what a trial of the search was built as, while it is among its task's fastest."""
        if trial.rung > 0 or trial.instance or latency_s is None or not self._each:
            return
        mine = self._fastest.setdefault(trial.task_key, {})
        mine[trial.candidate.key] = (latency_s, built)
        if len(mine) > self._each:
            del mine[max(mine, key=lambda key: mine[key][0])]

    def drop(self, trial: Trial) -> None:
        """Forget what was built for a trial's candidate: its bytes were lost."""
        self._others.pop((trial.task_key, trial.candidate.key), None)
        self._fastest.get(trial.task_key, {}).pop(trial.candidate.key, None)


class BuildDeadlines:
    """The time that a build may take: what the effort allows, and much less where a task's builds
    are known to be short. A compiler that does not come to an end on one schedule would otherwise
    hold a builder for as long as hundreds of other builds take.

    Args:
        most_s: what the effort allows.
    """

    def __init__(self, most_s: float) -> None:
        self._most_s = most_s
        self._done: dict[str, tuple[int, float]] = {}
        """By task: the number of builds, and what the longest of them took, seconds."""

    def built(self, task_key: str, build_s: float) -> None:
        """Remember a build that ended well."""
        number, longest_s = self._done.get(task_key, (0, 0.0))
        self._done[task_key] = number + 1, max(longest_s, build_s)

    def of(self, trial: Trial) -> float:
        """The deadline of a trial's build, seconds; a candidate that was built before keeps the
        whole."""
        number, longest_s = self._done.get(trial.task_key, (0, 0.0))
        if trial.rung or number < _BUILDS_KNOWN:
            return self._most_s
        return min(self._most_s, max(_LEAST_BUILD_S, _BUILD_PATIENCE * longest_s))


class SpacePool(Protocol):
    """Turns drafts into checked, scored candidates somewhere. Every draft is answered once."""

    def free(self) -> int:
        """Number of further drafts that can be taken now."""

    def submit(self, drafts: Sequence[Draft]) -> None:
        """Take drafts."""

    def collect(self, timeout_s: float) -> list[Evaluated]:
        """Answers that are ready, waiting at most `timeout_s` for the first."""

    def use_model(self, version: int, model: bytes) -> None:
        """Score from now on with this cost model, as `CostModel.dump` wrote it."""

    def close(self) -> None:
        """Stop the workers. Drafts in flight are dropped."""
