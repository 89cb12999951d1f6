"""The reference of a task's program: seeded inputs, the unscheduled program's outputs, and bounds
on how far the outputs of a schedule may differ from them.

Programs are run on two draws (`spaces.check.draws`). Outputs start as garbage, so elements that a
schedule forgets to write are seen; only where the program itself lets old contents through do they
start as seeded data. The bound of an element follows from the sums and roundings on the way to it
(`spaces.check.error_bounds`); for programs with operations that are not known there it is

    eps * (32 + 8 * sqrt(K)) * (|want| + rms(want))

with `eps` of the coarsest float type that the program stores anything in, K the number of terms
that its reductions add up, and `rms` over the tensor. `spaces.check.compare` compares.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

import numpy as np

from spaces.check.case import Case, Draw
from spaces.check.draws import Argument, Array, arguments, draw, ranges, thresholds_of
from spaces.check.stored import Computed, load, save
from spaces.check.whole_program import WholeProgram
from tuner.request.target_text import EXACT, Arithmetic

FORMAT = 4
"""Part of a cached reference's file name: goes up when inputs, outputs or bounds change meaning."""


_C = TypeVar("_C", bound=Draw)


@dataclass(frozen=True, slots=True)
class Reference(Generic[_C]):
    """The inputs of a program and what is known of its outputs.

    Attributes:
        cases: the wide draw and the moderate one.
    """

    arguments: tuple[Argument, ...]
    cases: tuple[_C, ...]

    @property
    def size_bytes(self) -> int:
        """Memory of all cases."""
        return sum(case.size_bytes for case in self.cases)


def reference(
    module: Any, seed: str, cache: Path | None = None, *, arithmetic: Arithmetic = EXACT
) -> Reference[Case]:
    """The reference of a task's module, whose one function is "main".

    Args:
        seed: draws the inputs; a task's key.
        cache: folder that keeps outputs, so that another process need not compute them.
        arithmetic: of kernels, see `spaces.check.errors.fast_math`, `spaces.check.errors.tf32`.

    Raises:
        ValueError: the program has a parameter that is no tensor of known shape.
    """
    function = module["main"]
    args = arguments(function)
    path = cache / f"reference-{FORMAT}-{seed}.npz" if cache else None
    stored = load(path, args) if path else None
    if stored is None:
        stored = compute(WholeProgram(module, args, arithmetic), function, args, seed)
        if path:
            save(path, stored)
    drawn = zip(contents(function, args, seed, stored), stored, strict=True)
    return Reference(args, tuple(Case(args, kept, c.outputs, c.bounds) for kept, c in drawn))


def contents(
    function: Any, args: tuple[Argument, ...], seed: str, stored: Sequence[Computed]
) -> Iterator[tuple[Array | None, ...]]:
    """For each draw that was computed, the arguments before a run; None is garbage."""
    thresholds = thresholds_of(function)
    for case, (tried, computed) in enumerate(zip(ranges(function), stored, strict=True)):
        initial = draw(args, f"{seed}/{case}", tried[computed.range], thresholds)
        yield tuple(
            None if arg.written and not computed.keeps else data
            for arg, data in zip(args, initial, strict=True)
        )


class Program(Protocol):
    """A program whose outputs can be computed, or some elements of them."""

    def compute(self, inputs: Sequence[Array], case: int, number: int) -> Computed:
        """What it computes of contents of its arguments.

        Args:
            case: number of the draw.
            number: of the range that they were drawn from.
        """


def compute(
    program: Program, function: Any, args: tuple[Argument, ...], seed: str
) -> list[Computed]:
    """What a program computes of both draws, each of the range that suits it."""
    thresholds = thresholds_of(function)
    found = []
    for case, tried in enumerate(ranges(function)):
        best: Computed | None = None
        fewest = math.inf
        for number, values in enumerate(tried):
            inputs = draw(args, f"{seed}/{case}", values, thresholds)
            computed = program.compute(inputs, case, number)
            broken = sum(_count_broken(output) for output in computed.outputs.values())
            if broken < fewest:
                best = computed
            elif broken == fewest:
                break  # these are not finite whatever the range, as in a mask of -inf
            fewest = min(broken, fewest)
            if broken == 0:
                break
        assert best is not None
        found.append(best)
    return found


def _count_broken(output: Array) -> int:
    """The number of elements that are NaN or infinite."""
    return 0 if output.dtype.kind in "iub" else int((~np.isfinite(output)).sum())
