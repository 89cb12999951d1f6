"""The micro-kernels of one task: their analytic estimates, their times, and predictions from both.

A table of kernels by shapes. A pair that was measured has its time. Any other has its analytic
estimate, corrected by a Gaussian process that is fitted to the log-ratio of measured to estimated
time (`tuner.search.dynamic.pair_residuals`).
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from tuner.arrays import Floats, Ints
from tuner.candidate import Candidate
from tuner.generations import generation_of, is_of
from tuner.measure import Evaluated, OnShapes
from tuner.record import Record, Status
from tuner.search.dynamic.pair_residuals import Residuals
from tuner.task import Instance, Shapes

_UNKNOWN = 0.5
"""Standard deviation of an estimate's error before anything was measured."""
_HOPELESS_S = 1e3
"""The latency assumed for a kernel on a shape that it has no finite estimate for."""
_MOST_LEARNED = 400
"""The most pairs that predictions are fitted to: the latest."""


@dataclass(frozen=True, slots=True)
class Kernel:
    """A candidate whose schedule holds for every shape: a micro-kernel.

    Attributes:
        features: vector of its knobs, near for similar kernels; the same columns within a task.
        on_shapes: predictions for each shape of the task, and the layout of weights packed ahead.
            Kernels of different layouts cannot be in one set.
        padding: for each shape, the share of the kernel's tiles that lies beyond it, computed or
            guarded; empty where the template does not tell.
        work: work of each shape, without padding, in any unit; empty where `padding` is.
    """

    candidate: Candidate
    features: tuple[float, ...]
    on_shapes: OnShapes
    padding: tuple[float, ...] = ()
    work: tuple[float, ...] = ()

    @property
    def costs_s(self) -> tuple[float, ...]:
        """Analytic latency for each shape."""
        return self.on_shapes.costs_s

    @property
    def layout(self) -> str:
        """The layout of the weights that are packed ahead; empty where none are packed."""
        return self.on_shapes.layout


def kernel_of(answer: Evaluated) -> Kernel | None:
    """The kernel that an evaluated draft gave; None where it gave no kernel."""
    if answer.candidate is None or answer.on_shapes is None:
        return None
    features = () if answer.features is None else tuple(map(float, answer.features))
    return Kernel(answer.candidate, features, answer.on_shapes)


class Kernels:
    """Kernels by number, with their times and predictions.

    Args:
        fastest: whether a pair's time is its fastest sample instead of the median. Other load of a
            machine only ever makes samples slower, and a search takes few: measured again, fastest
            samples came out within 4 to 6 %, medians within 7 to 9 %. Users are told medians.
    """

    def __init__(self, shapes: Shapes, *, fastest: bool = False) -> None:
        self._fastest = fastest
        self.instances: tuple[Instance, ...] = tuple(instance for instance, _ in shapes)
        self.weights = np.array([weight for _, weight in shapes], dtype=np.float64)
        self._places = {instance: i for i, instance in enumerate(self.instances)}
        self._values = np.array(
            [[value for _, value in i] for i in self.instances], dtype=np.float64
        )
        self._kernels: list[Kernel] = []
        self._numbers: dict[str, int] = {}
        self._times_s: dict[tuple[int, int], float] = {}
        self._rungs: dict[tuple[int, int], int] = {}
        self._failed: set[int] = set()
        self._dropped: set[int] = set()
        self._rows: dict[int, int] = {}
        self._residuals: Residuals | None = None

    def __len__(self) -> int:
        return len(self._kernels)

    def __getitem__(self, number: int) -> Kernel:
        return self._kernels[number]

    def number(self, candidate: Candidate) -> int | None:
        """The number of a candidate; None where it is not known."""
        return self._numbers.get(candidate.key)

    def place(self, instance: Instance) -> int | None:
        """The number of a shape; None where the task has no such shape."""
        return self._places.get(instance)

    def add(self, kernel: Kernel) -> int:
        """Take in a kernel. Return its number."""
        key = kernel.candidate.key
        if key not in self._numbers:
            self._numbers[key] = len(self._kernels)
            self._kernels.append(kernel)
            self._residuals = None
        return self._numbers[key]

    def of_measured(self) -> Kernels:
        """A copy of the table that predicts for the measured kernels alone."""
        table = copy.copy(self)
        table._dropped = set(range(len(self))) - {number for number, _ in self._times_s}
        table._residuals = None
        return table

    def drop(self, numbers: Iterable[int]) -> None:
        """Stop predicting for these kernels, which were never measured."""
        self._dropped.update(numbers)

    def observe(self, record: Record) -> None:
        """Take in a record of a known kernel. Times of a higher rung replace those of a lower."""
        number = self.number(record.trial.candidate)
        place = self.place(record.trial.instance)
        if number is None or place is None or record.measurement.status is Status.LOST:
            return
        seconds = record.latency_s
        self._learn_trace(number, record)
        given = record.measurement.status in (Status.CENSORED, Status.DUPLICATE)
        if given or (seconds is not None and self._fastest):
            seconds = min(record.measurement.samples_s, default=math.inf)
        if seconds is None or not math.isfinite(seconds):
            self._failed.add(number)
            return
        pair, rung = (number, place), record.trial.rung
        if rung < self._rungs.get(pair, 0):
            return
        if self._rungs.get(pair) and is_of(self._rungs[pair], generation_of(rung)):
            seconds = min(seconds, self._times_s[pair])
        self._times_s[pair], self._rungs[pair] = seconds, rung
        if not rung or number in self._dropped:
            # Finalists are known well, and a refit takes the cores that they are timed on.
            self._residuals = None
        self._dropped.discard(number)

    def _learn_trace(self, number: int, record: Record) -> None:
        """Name the kernel by the trace that a builder wrote: later builds replay it."""
        kernel = self._kernels[number]
        if record.trial.candidate.trace and not kernel.candidate.trace:
            self._kernels[number] = replace(kernel, candidate=record.trial.candidate)

    def time_s(self, number: int, place: int) -> float | None:
        """The measured time of a pair; None where it has none."""
        return self._times_s.get((number, place))

    def retimed_s(self, number: int, place: int) -> float | None:
        """The time of a pair that was retimed among the finalists; None where it was not."""
        return self.time_s(number, place) if self._rungs.get((number, place)) else None

    @property
    def measured(self) -> list[int]:
        """Kernels with at least one time and no failure, in order."""
        return sorted({number for number, _ in self._times_s} - self._failed)

    @property
    def pairs(self) -> int:
        """Pairs of a kernel and a shape with a time."""
        return len(self._times_s)

    def failed(self, number: int) -> bool:
        """Whether the kernel gave no time, or a wrong result, on any shape."""
        return number in self._failed

    def estimates_s(self, numbers: Sequence[int], places: Sequence[int]) -> Floats:
        """The analytic estimates, kernels by shapes, also where a time was measured."""
        if not len(numbers):
            return np.zeros((0, len(places)))
        costs = np.array([self._kernels[n].costs_s for n in numbers], dtype=np.float64)
        return np.minimum(costs[:, list(places)], _HOPELESS_S)

    def latencies_s(self, numbers: Sequence[int], places: Sequence[int]) -> Floats:
        """The measured times, kernels by shapes; elsewhere the predicted medians."""
        costs = self.estimates_s(numbers, places)
        if self._times_s and len(numbers):
            learned = self._learned()
            costs = costs * np.exp(learned.means(*self._grid(numbers, places))).reshape(costs.shape)
        for row, column, known_s in self._known(numbers, places):
            costs[row, column] = known_s
        return costs

    def fastest_s(self, places: Sequence[int]) -> Floats:
        """The fastest time that any kernel has on each shape; infinite where none has one."""
        times_s = np.full(len(places), np.inf)
        for _, column, known_s in self._known(self.measured, places):
            times_s[column] = min(times_s[column], known_s)
        return times_s

    def forecast(self, numbers: Sequence[int], places: Sequence[int]) -> tuple[Floats, Floats]:
        """Latencies, kernels by shapes, and the standard deviations of their logarithms, which are
        0 for measured pairs."""
        costs = self.estimates_s(numbers, places)
        spreads = np.full(costs.shape, _UNKNOWN)
        if self._times_s and len(numbers):
            learned = self._learned()
            mean, spread = learned.predict(*self._grid(numbers, places))
            costs = costs * np.exp(mean).reshape(costs.shape)
            spreads = spread.reshape(costs.shape)
        for row, column, known_s in self._known(numbers, places):
            costs[row, column], spreads[row, column] = known_s, 0.0
        return costs, spreads

    def _grid(self, numbers: Sequence[int], places: Sequence[int]) -> tuple[Ints, Ints]:
        """All pairs of some kernels and some shapes, the kernels as rows of the fitted model."""
        rows = np.array([self._rows[n] for n in numbers], dtype=np.int64)
        shapes = np.asarray(places, dtype=np.int64)
        return np.repeat(rows, len(shapes)), np.tile(shapes, len(rows))

    def _known(
        self, numbers: Sequence[int], places: Sequence[int]
    ) -> Iterator[tuple[int, int, float]]:
        for row, number in enumerate(numbers):
            for column, place in enumerate(places):
                known_s = self._times_s.get((number, place))
                if known_s is not None:
                    yield row, column, known_s

    def _spaces(self, numbers: Sequence[int]) -> list[int]:
        names = [self._kernels[n].candidate.space for n in numbers]
        known = {name: number for number, name in enumerate(dict.fromkeys(names))}
        return [known[name] for name in names]

    def _traits(self, numbers: Sequence[int]) -> Floats:
        """Kernels by shapes by traits; the first trait is the estimate."""
        costs = np.log(self.estimates_s(numbers, range(len(self.instances))))[:, :, None]
        more = [t for n in numbers if (t := self._kernels[n].on_shapes.traits) is not None]
        return np.concatenate([costs, np.stack(more)], axis=2) if more else costs

    def _learned(self) -> Residuals:
        if self._residuals is None:
            known = [(n, p) for n, p in self._times_s if self._kernels[n].costs_s[p] < _HOPELESS_S]
            pairs = known[-_MOST_LEARNED:]
            errors = [math.log(self._times_s[n, p] / self._kernels[n].costs_s[p]) for n, p in pairs]
            alive = [n for n in range(len(self._kernels)) if n not in self._dropped]
            self._rows = {number: row for row, number in enumerate(alive)}
            self._residuals = Residuals(
                np.array([self._kernels[n].features for n in alive], dtype=np.float64),
                self._spaces(alive),
                self._traits(alive),
                self._values,
                [self._rows[n] for n, _ in pairs],
                [p for _, p in pairs],
                errors,
            )
        return self._residuals
