"""Whether a kernel is judged by all elements of the outputs, or by some and by other kernels."""

from __future__ import annotations

import math
from functools import partial
from pathlib import Path
from typing import Any

from spaces.check.case import Case
from spaces.check.draws import arguments
from spaces.check.reference import FORMAT, Reference, compute, contents, reference
from spaces.check.sampled_case import SampledCase
from spaces.check.sampled_program import Sample, SampledProgram
from spaces.check.stored import load, save
from spaces.ir import tvm_compat
from spaces.ir.guard import refusals
from tuner.request.target_text import EXACT, Arithmetic

Judge = Reference[Case] | Reference[SampledCase]
QUICK_STEPS = 1e10
"""Steps of a program up to which all outputs are computed: for both draws two cores take two to ten
seconds (`benchmarks/results/references.json`)."""


def reference_of(
    module: Any,
    seed: str,
    cache: Path | None = None,
    quick_steps: float | None = None,
    *,
    arithmetic: Arithmetic = EXACT,
) -> Judge:
    """What kernels of a task's module are judged by.

    Args:
        seed, cache, arithmetic: see `spaces.check.reference.reference`.
        quick_steps: a program of more steps is computed at some elements, if that is known how;
            None is `QUICK_STEPS`.

    Raises:
        ValueError: the program has a parameter that is no tensor of known shape.
    """
    if steps_of(module["main"]) > (QUICK_STEPS if quick_steps is None else quick_steps):
        with refusals(f"the reference of {seed} at some elements"):  # all of them are right too
            return _judge_sample(module["main"], seed, cache, arithmetic)
    return reference(module, seed, cache, arithmetic=arithmetic)


def steps_of(function: Any) -> float:
    """The number of times that a program stores an element."""
    return sum(
        math.prod(tvm_compat.as_int(axis.dom.extent) or 1 for axis in block.iter_vars)
        for block in tvm_compat.sblocks(function)
    )


def _judge_sample(function: Any, seed: str, cache: Path | None, arithmetic: Arithmetic) -> Judge:
    args = arguments(function)
    program = SampledProgram(function, args, seed, arithmetic=arithmetic)
    path = cache / f"elements-{FORMAT}-{seed}.npz" if cache else None
    stored = load(path, args, sampled=True) if path else None
    if stored is None:
        stored = compute(program, function, args, seed)
        if path:
            save(path, stored)
    cases = []
    for initial, known in zip(contents(function, args, seed, stored), stored, strict=True):
        samples = {
            i: Sample(places, known.outputs[i], known.bounds[i])
            for i, places in known.places.items()
        }
        inputs = Case(args, initial, {}, {})
        cases.append(SampledCase(inputs, samples, partial(program.samples, initial)))
    return Reference(args, tuple(cases))
