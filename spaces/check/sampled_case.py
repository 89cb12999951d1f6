"""The inputs of one draw of a large program, some elements of its outputs, and a judged kernel's.

Before there is a judged kernel, one is right if it is right at these elements. After that it is
compared wholly. Where two kernels differ, the elements at which they differ by most are computed,
which decides who is wrong; it may be the one that was judged first.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping

from spaces.check.case import Case
from spaces.check.draws import Argument, Array
from spaces.check.elements.stages import Unevaluable
from spaces.check.judged import Judged, judge
from spaces.check.sampled_program import Sample
from spaces.check.stored import Places

_log = logging.getLogger(__name__)
_ROUNDS = 4
"""How often elements are computed for one output. Kernels that still differ elsewhere differ there
by less than where both were found right, relative to what is estimated."""
_MOST = (1024, 256, 64, 1)

Compute = Callable[[Mapping[int, Places]], dict[int, Sample]]
"""Computes elements of outputs, by position."""


class SampledCase:
    """Implements `spaces.check.case.Draw`.

    Args:
        inputs: the arguments before a run; it knows no outputs.
        samples: of the outputs, by position.
        compute: other elements of the same draw.
    """

    def __init__(self, inputs: Case, samples: Mapping[int, Sample], compute: Compute) -> None:
        self._inputs, self._samples, self._compute = inputs, samples, compute
        self._judged: Judged | None = None
        self._disproved: set[bytes] = set()

    @property
    def arguments(self) -> tuple[Argument, ...]:
        """See `Draw`."""
        return self._inputs.arguments

    @property
    def size_bytes(self) -> int:
        """See `Draw`."""
        return (self.whole or self._inputs).size_bytes

    @property
    def whole(self) -> Case | None:
        """See `Draw`: the outputs of the judged kernel."""
        return None if self._judged is None else self._judged.case

    def fresh(self, position: int) -> Array:
        """See `Draw`."""
        return self._inputs.fresh(position)

    def wrong(self, position: int, got: Array) -> str | None:
        """See `Draw`. A judged kernel that this disproves is judged no longer."""
        for _ in range(_ROUNDS):
            judged = self._judged
            if judged is None:
                return self._samples[position].wrong(got)
            if judged.case.wrong(position, got) is None:
                return None
            sample = self._between(judged, position, got)
            if (error := sample.wrong(got)) is not None:
                return error
            if sample.wrong(judged.case.outputs[position]) is not None:
                self._disproved.add(judged.by)
                self._judged = None
            judged.put(position, sample)
        _log.info("kernels differ in more places than can be computed, and are right in those")
        return None

    def _between(self, judged: Judged, position: int, got: Array) -> Sample:
        """What is right where two kernels differ by most."""
        for most in _MOST:
            try:
                places = judged.far_places(position, got, most)
                return self._compute({position: places})[position]
            except Unevaluable as error:
                _log.debug("%d elements of an output: %s", most, error)
        return self._samples[position]

    def keep(self, by: bytes, outputs: Mapping[int, Array]) -> None:
        """Judge a kernel by what it wrote, which was not found wrong; the first one is kept.

        Args:
            by: digest of the kernel.
            outputs: by position; they become the case's own.
        """
        if self._judged is None:
            self._judged = judge(by, self._inputs, self._samples, outputs)

    def is_by(self, by: bytes) -> bool:
        """Whether others are compared with this kernel."""
        return self._judged is not None and self._judged.by == by

    def forget(self, by: bytes) -> None:
        """Judge a kernel no longer, since it is wrong."""
        if self.is_by(by):
            self._judged = None

    def take_disproved(self) -> set[bytes]:
        """The kernels that were judged right and have turned out wrong since this was asked."""
        found, self._disproved = self._disproved, set()
        return found
