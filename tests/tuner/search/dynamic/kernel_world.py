"""A made-up task with one symbolic dimension: what each kernel takes on each shape is known.

A kernel has a tile, a knob and a layout. Large tiles run fast and waste the most where the last
tile is mostly padding, so each shape has a favourite. The estimate knows the tiles and not the
rest. Some settings never run.
"""

from __future__ import annotations

import json
import random
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import combinations, product

import numpy as np
import numpy.typing as npt

from tuner.candidate import Candidate, CandidateKind, Draft, generic_of
from tuner.measure import Evaluated, OnShapes
from tuner.record import Measurement, Provenance, Record, Status, Trial
from tuner.replay.replay import VirtualClock
from tuner.search.base import Search
from tuner.search.dynamic.kernel_table import Kernel
from tuner.task import Instance, Task

TILES = (1, 2, 4, 8, 12, 16, 24, 32, 48, 64)
KNOBS = range(6)
LAYOUTS = ("rows", "columns")
SPECIALISED_PAYS = 1
"""The one size where a kernel that is specialised for it is faster."""
SIZES = (1, 5, 16, 24, 43, 64, 81, 100, 119, 128)

Setting = tuple[int, int, str]
SETTINGS: tuple[Setting, ...] = tuple(product(TILES, KNOBS, LAYOUTS))


def shape(size: int) -> Instance:
    return (("T", size),)


def world_task(key: str = "gemm", sizes: Iterable[int] = SIZES) -> Task:
    shapes = tuple((shape(size), 1.0) for size in sizes)
    return Task(key, key, "module", '{"kind":"llvm"}', shapes=shapes)


def kernel_candidate(setting: Setting) -> Candidate:
    return Candidate(CandidateKind.TRACE, json.dumps(setting), "test")


def setting_of(candidate: Candidate) -> Setting:
    if candidate.kind is CandidateKind.SPECIALISED:
        candidate, _ = generic_of(candidate)
    tile, knob, layout = json.loads(candidate.payload)
    return tile, knob, layout


def breaks(setting: Setting) -> bool:
    """Whether a kernel never runs."""
    tile, knob, _ = setting
    return tile >= 48 and knob == 5


def estimate_s(setting: Setting, size: int) -> float:
    """What is known without a measurement."""
    return 1e-6 * (3 + -(-size // setting[0]) * (setting[0] + 4))


def latency_s(setting: Setting, size: int) -> float:
    """What it takes."""
    tile, knob, layout = setting
    off = abs(knob - 2 - tile // 32)
    wrong_by = (1.0 + 0.12 * off) * (1.0 if layout == "rows" else 1.04)
    return estimate_s(setting, size) * wrong_by * (1.0 + 0.3 / tile)


def measured(trial: Trial) -> Record:
    setting = setting_of(trial.candidate)
    if breaks(setting):
        outcome = Measurement(Status.RUN_FAILED, error="crash", build_s=0.1, run_s=0.1)
    else:
        seconds = latency_s(setting, trial.instance[0][1])
        if (
            trial.candidate.kind is CandidateKind.SPECIALISED
            and trial.instance[0][1] == SPECIALISED_PAYS
        ):
            seconds *= 0.8
        outcome = Measurement(Status.OK, (seconds,) * 3, build_s=0.1, run_s=0.1)
    return Record(trial, outcome, Provenance("fake"))


def answered(draft: Draft, task: Task) -> Evaluated:
    """A draft carried out: described, mutated in one of its choices, or sampled."""
    rng = random.Random(draft.seed)
    setting = rng.choice(SETTINGS) if draft.parent is None else setting_of(draft.parent)
    if draft.parent is not None and not draft.describe:
        near = [s for s in SETTINGS if sum(a != b for a, b in zip(s, setting, strict=True)) == 1]
        setting = rng.choice(near)
    return evaluated(draft, setting, task)


def evaluated(draft: Draft, setting: Setting, task: Task) -> Evaluated:
    """The answer to a draft that gave a kernel."""
    return Evaluated(
        draft,
        kernel_candidate(setting),
        code_hash=json.dumps(setting),
        features=_features(setting),
        on_shapes=_on_shapes(setting, [i[0][1] for i, _ in task.shapes]),
    )


def search_on(search: Search, task: Task, trials: int) -> list[Record]:
    """Give a search so many trials, three in flight; fewer where it is exhausted."""
    flying: deque[Trial] = deque()
    records: list[Record] = []
    while len(records) < trials and not search.exhausted:
        search.absorb(answered(draft, task) for draft in search.drafts(8))
        flying.extend(search.propose(min(3, trials - len(records)) - len(flying)))
        if flying:
            records.append(measured(flying.popleft()))
            search.observe(records[-1:])
    return records


def world_kernel(candidate: Candidate, sizes: Sequence[int] = SIZES) -> Kernel:
    """What there is to know of a kernel."""
    setting = setting_of(candidate)
    features = tuple(_features(setting).tolist())
    return Kernel(candidate, features, _on_shapes(setting, sizes))


def _on_shapes(setting: Setting, sizes: Iterable[int]) -> OnShapes:
    return OnShapes(tuple(estimate_s(setting, size) for size in sizes), setting[2])


def _features(setting: Setting) -> npt.NDArray[np.float32]:
    return np.array([np.log2(setting[0]), setting[1]], dtype=np.float32)


def loss_of(kernels: Iterable[Candidate], sizes: Sequence[int] = SIZES) -> float:
    """Mean over the shapes of a set's latency over that of the best kernel there is."""
    rows = _table([setting_of(candidate) for candidate in kernels], sizes)
    return float((rows.min(axis=0) / _table(_SOUND, sizes).min(axis=0)).mean())


def least_loss(most: int, sizes: Sequence[int] = SIZES) -> float:
    """Of the best set of so many kernels of one layout, found by trying all."""
    best = _table(_SOUND, sizes).min(axis=0)
    tables = [_table([s for s in _SOUND if s[2] == layout], sizes) / best for layout in LAYOUTS]
    return min(
        float(rows[list(chosen)].min(axis=0).mean())
        for rows in tables
        for chosen in combinations(range(len(rows)), most)
    )


_SOUND = [setting for setting in SETTINGS if not breaks(setting)]


def _table(settings: Sequence[Setting], sizes: Sequence[int]) -> npt.NDArray[np.float64]:
    return np.array([[latency_s(s, size) for size in sizes] for s in settings])


class WorldMeasurer:
    """Measures in virtual time, first come, first done.

    Args:
        slots: trials at work at once; `clock` is moved by `collect`.
    """

    def __init__(self, *, slots: int, clock: VirtualClock) -> None:
        self._slots, self._clock = slots, clock
        self._flying: deque[Trial] = deque()

    def free(self) -> int:
        return self._slots - len(self._flying)

    def submit(self, trials: Sequence[Trial], cutoff_s: float | None = None) -> None:
        self._flying.extend(trials)

    def collect(self, timeout_s: float) -> list[Record]:
        self._clock.now_s += timeout_s
        if not self._flying:
            return []
        return [replace(measured(self._flying.popleft()), attempt=1, time_s=self._clock.now_s)]

    def toolchain(self) -> str:
        return ""

    def close(self) -> None:
        self._flying.clear()


class WorldPool:
    """Answers drafts at once."""

    def __init__(self, tasks: Sequence[Task]) -> None:
        self._tasks = {task.key: task for task in tasks}
        self._waiting: list[Draft] = []

    def free(self) -> int:
        return 32 - len(self._waiting)

    def submit(self, drafts: Sequence[Draft]) -> None:
        self._waiting.extend(drafts)

    def collect(self, timeout_s: float) -> list[Evaluated]:
        drafts, self._waiting = self._waiting, []
        return [answered(draft, self._tasks[draft.task_key]) for draft in drafts]

    def use_model(self, version: int, model: bytes) -> None:
        pass

    def close(self) -> None:
        self._waiting.clear()
