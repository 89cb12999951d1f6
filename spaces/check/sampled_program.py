"""Some elements of the outputs of an unscheduled program, and their bounds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from spaces.check.compare import difference
from spaces.check.draws import Argument, Array
from spaces.check.elements.evaluation import Evaluation
from spaces.check.elements.places import choose_places
from spaces.check.elements.stages import Unevaluable
from spaces.check.errors.shadows import Unbounded
from spaces.check.output_bounds import OutputBounds
from spaces.check.stored import Computed, Places
from tuner.request.target_text import EXACT, Arithmetic

_MOST = (4096, 1024, 256, 64)
"""Elements of an output that are computed: of these numbers the first that takes no longer than
allowed."""
_MOST_S = 1.0
"""The time that a draw may be expected to take, on a slow core."""


@dataclass(frozen=True, slots=True)
class Sample:
    """Elements of an output, in a grid.

    Attributes:
        bound: the most that each may differ by; None where it must be equal.
    """

    places: Places
    want: Array
    bound: Array | None

    @property
    def where(self) -> tuple[Array, ...]:
        """The index of the grid in the whole output."""
        return np.ix_(*self.places)

    def wrong(self, got: Array) -> str | None:
        """The error of these elements of a whole output, in one line; None if they are right."""
        return difference(got[self.where], self.want, self.bound, self.places)


class SampledProgram:
    """A program of which elements are computed by NumPy.

    Args:
        seed: chooses the elements.
        arithmetic: see `OutputBounds`.

    Raises:
        Unevaluable: it is not known how.
    """

    def __init__(
        self,
        function: Any,
        args: tuple[Argument, ...],
        seed: str,
        *,
        arithmetic: Arithmetic = EXACT,
    ) -> None:
        self.args, self._seed = args, seed
        try:
            self._bounds = OutputBounds(function, args, arithmetic=arithmetic)
        except Unbounded:
            self._bounds = OutputBounds(function, args, arithmetic=arithmetic, follow=False)
        self._evaluation = Evaluation(self._bounds.function)

    def compute(self, inputs: Sequence[Array], case: int, number: int) -> Computed:
        """See `spaces.check.reference.Program`.

        Raises:
            Unevaluable: an operation is not known, or even a few elements would take long.
        """
        found = self._first_quick(inputs, self._choices(case))
        outputs = {i: sample.want for i, sample in found.items()}
        bounds = {i: sample.bound for i, sample in found.items()}
        places = {i: sample.places for i, sample in found.items()}
        return Computed(number, False, outputs, bounds, places)

    def _choices(self, case: int) -> Iterator[dict[int, Places]]:
        for most in _MOST:
            yield {
                i: choose_places(arg.shape, f"{self._seed}/{case}/{i}", most)
                for i, arg in enumerate(self.args)
                if arg.written
            }

    def _first_quick(
        self, inputs: Sequence[Array], choices: Iterator[dict[int, Places]]
    ) -> dict[int, Sample]:
        refused = Unevaluable("nothing to compute")
        for wanted in choices:
            try:
                return self.samples(inputs, wanted)
            except Unevaluable as error:
                refused = error
        raise refused

    def samples(
        self, inputs: Sequence[Array | None], wanted: Mapping[int, Places]
    ) -> dict[int, Sample]:
        """Elements of outputs, by position.

        Args:
            inputs: contents of the arguments; those of outputs are not looked at.

        Raises:
            Unevaluable: see `compute`.
        """
        beside = self._bounds.beside
        extra = {len(self.args) + n: wanted[i] for n, i in enumerate(beside) if i in wanted}
        read = {
            i: known
            for i, (arg, known) in enumerate(zip(self.args, inputs, strict=True))
            if known is not None and not arg.written
        }
        found = self._evaluation.at(read, {**wanted, **extra}, _MOST_S)
        outputs = {i: found[i] for i in wanted}
        bounds = self._bounds.of(outputs, [found[position] for position in extra])
        return {i: Sample(wanted[i], outputs[i], bounds[i]) for i in wanted}
