"""Specialised copies of kernels for the fastest shapes: their trials, and whether they pay. Pure.

Where a kernel takes a few microseconds, computing its loop extents at run time takes a fifth of it:
192 products of 5 x 5 with 5 x 64 took 4.6 us, and 3.6 us with the same schedule and constant
extents. On larger shapes nothing is gained. So the few fastest shapes get a copy of their kernel
that is compiled for the shape alone, where it is measured to be faster, timed in turns with the
kernel itself.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping

from tuner.candidate import Candidate, CandidateKind, generic_of, specialise_for
from tuner.dynamic.kernel_set import KernelSet
from tuner.generations import rung_of
from tuner.record import Record, Status, Trial
from tuner.task import Instance, Task

_SHORT_S = 20e-6
"""Kernels that take longer than this gain nothing from a copy."""
_MOST = 2
"""Shapes of one task that copies are tried for: each costs a build, and code in the library."""
_GAIN = 0.97
"""A copy is used where its time is at most this part of its kernel's."""


_MEASURED_ON = ("llvm",)
"""Kinds of target on which such copies were seen to pay; others were not tried."""


Copies = Mapping[tuple[str, Instance], tuple[Candidate, float]]
"""Copies and their best times, by the key of the generic kernel and the shape."""


def specializations(
    task: Task, chosen: KernelSet, rounds: int, generation: int = 0
) -> Iterator[Trial]:
    """Yield trials of specialised copies that may pay, each next to a trial of its generic kernel.

    Only for CPUs.

    Args:
        rounds: number of times that each is timed, at rungs above the finalists'.
        generation: of the re-timings, see `tuner.generations`.
    """
    if json.loads(task.target)["kind"] not in _MEASURED_ON:
        return
    short = [s for s in chosen.shapes if s.measured and s.latency_s <= _SHORT_S]
    short = sorted(short, key=lambda s: s.latency_s)[:_MOST]
    for number in range(rounds + 1, 2 * rounds + 1):
        rung = rung_of(generation, number)
        for shape in short:
            kernel = chosen.kernels[shape.kernel]
            for candidate in (kernel, specialise_for(kernel, shape.instance)):
                yield Trial(task.key, candidate, shape.instance, rung)


def read_copies(records: Iterable[Record]) -> Copies:
    """The measured copies, without those that ever failed."""
    found: dict[tuple[str, Instance], tuple[Candidate, float]] = {}
    failed: set[tuple[str, Instance]] = set()
    for record in records:
        copy = record.trial.candidate
        if copy.kind is not CandidateKind.SPECIALISED:
            continue
        kernel, shape = generic_of(copy)
        pair = (kernel.key, shape)
        if record.latency_s is not None:
            known_s = found[pair][1] if pair in found else record.latency_s
            found[pair] = (copy, min(known_s, record.latency_s))
        elif record.measurement.status is not Status.LOST:
            failed.add(pair)
    return {pair: known for pair, known in found.items() if pair not in failed}


def pays(
    copies: Copies, kernel: Candidate, shape: Instance, latency_s: float
) -> tuple[Candidate, float] | None:
    """The copy of a kernel for a shape, and its time; None where it is not faster by enough."""
    known = copies.get((kernel.key, shape))
    return known if known is not None and known[1] <= _GAIN * latency_s else None
