"""A space of traces: those that TVM's rules, or a user's, span over one task."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

from spaces.design_space.analysis.draws import (
    draws,
    form,
    form_and_decisions,
    number_of_points,
    read_draws,
)
from spaces.design_space.analysis.interpreter import Reading, read_sketch
from spaces.design_space.point import Point
from spaces.design_space.schedule_rules import RuleSet, postprocess, task_rules
from spaces.design_space.theirs import with_mutators
from spaces.ir.guard import note
from spaces.ir.schedules import (
    InvalidCandidate,
    canonical_payload,
    code_hash,
    new_schedule,
    replay,
    task_module,
)
from spaces.targets.gpu import gpu_of
from tuner.candidate import Candidate, CandidateKind, Draft
from tuner.errors import first_line
from tuner.source import Source
from tuner.task import Task

_MORE_MUTATIONS = 0.5
_MAX_MUTATIONS = 5
MOST_DRAWS = 32
"""Draws of one draft that a constraint may refuse."""
_MOST_TRIES, _MOST_MUTANTS = 5000, 50
_REDRAWS = 4
"""Of each decision, once a kernel is within the device's limits."""
_REDRAWN = 0.5
"""Share of mutations that draw a decision anew, where that is allowed."""


class ConstraintRefused(InvalidCandidate):
    """A user's predicate refused all that was drawn."""


class TraceSpace:
    """All schedules that some rules allow for one task.

    The rules are applied once, when the first draft comes, and leave a few sketches: traces whose
    sampling instructions are open. A sample replays one of them with random decisions; a mutation
    changes decisions of a parent. The same draft gives the same point in any process.

    Args:
        rules: None is those that TVM's own tuner would use.
        mutators: a user's own, beside those of the rules.
    """

    def __init__(
        self, task: Task, rules: RuleSet | None = None, mutators: tuple[Source, ...] = ()
    ) -> None:
        self._module = task_module(task.module)
        self._rules = with_mutators(rules or task_rules(task.module, task.target), mutators)
        self._gpu = gpu_of(task.target)

    @property
    def name(self) -> str:
        """The name of the space, which its candidates carry."""
        return self._rules.name

    @cached_property
    def sketches(self) -> Sequence[Any]:
        """Traces that span the space."""
        return [simple if self._short else trace for trace, simple in self._traces]

    @cached_property
    def _short(self) -> bool:
        """Whether traces are drawn from without their dead code."""
        return self._rules.redraws or any(self._readings)

    @cached_property
    def _traces(self) -> Sequence[tuple[Any, Any]]:
        """The traces of the rules' schedules, each also without its dead code."""
        traces = [schedule.trace for schedule in self._rules.sketch()]
        return [(trace, trace.simplified(True)) for trace in traces]

    @cached_property
    def _readings(self) -> Sequence[Reading | None]:
        """What is known of each sketch's kernel before it is replayed."""
        return [self._read(trace) for _, trace in self._traces]

    @cached_property
    def _numbers(self) -> dict[str, int]:
        """The number of each sketch, by form."""
        return {form(trace): number for number, (_, trace) in enumerate(self._traces)}

    def _read(self, trace: Any) -> Reading | None:
        try:
            return read_sketch(self._module, trace, self._gpu)
        except Exception as error:  # whatever TVM throws at what it does not expect
            note(error, f"a sketch of {self.name}")
            return None

    @cached_property
    def points(self) -> int | None:
        """The number of points where nothing is drawn, else None."""
        drawn = any(draws(instruction) for trace in self.sketches for instruction in trace.insts)
        return None if drawn else len(self.sketches)

    @cached_property
    def size(self) -> int:
        """The number of points, with tiles of extents as in the rules' own schedules; where blocks
        are computed is not counted."""
        return sum(number_of_points(trace) for _, trace in self._traces)

    def realize_draft(self, draft: Draft) -> Point:
        """Carry out a draft.

        A kernel for a GPU whose sketch could be read as a whole is within the device's limits; the
        rest of TVM's check of its code is left to whoever writes it to build it.

        Raises:
            InvalidCandidate: the random choices gave a schedule that is not valid.
        """
        rng = random.Random(draft.seed)
        if draft.anew and self._rules.anew is not None:
            return self._point(self._run_anew(self._rules.anew, rng), checked=False)
        if draft.parent is None or draft.parent.space != self.name:
            trace, reading = self._sample(rng)
        else:
            trace, reading = self._mutate(draft.parent, rng)
        return self._point(self._replay(trace, rng), checked=reading is not None and reading.whole)

    def _run_anew(self, run: Callable[[int], Sequence[Any]], rng: random.Random) -> Any:
        """One of the schedules that the rules make with another seed."""
        try:
            found = run(rng.randrange(1, 2**31 - 1))
        except Exception as error:  # a user's code, or TVM, may raise anything
            raise InvalidCandidate(f"{self.name}: {first_line(error)}") from error
        if not found:
            raise InvalidCandidate(f"{self.name}: no schedule")
        schedule = rng.choice(found)
        if self._rules.refused(schedule.trace):
            raise ConstraintRefused("its constraint refused what was drawn")
        return schedule

    def _point(self, schedule: Any, *, checked: bool) -> Point:
        """The point of a schedule that is not post-processed yet; see `postprocess`."""
        payload = canonical_payload(schedule.trace)
        postprocess(schedule, self._rules, checked=checked)
        candidate = Candidate(CandidateKind.TRACE, payload, self.name)
        return Point(candidate, schedule, code_hash(schedule.mod), space_points=self.size)

    def write(self, candidate: Candidate) -> Any:
        """See `spaces.design_space.base.Space`."""
        schedule = replay(self._module, candidate.payload)
        postprocess(schedule, self._rules)
        return schedule

    def _sample(self, rng: random.Random) -> tuple[Any, Reading | None]:
        """A sketch, its decisions open or within the device's limits; and what is known of it."""
        from tvm.s_tir.schedule import Trace

        if not self.sketches:
            raise InvalidCandidate(f"{self.name}: no rule applies")
        number = rng.choice(range(len(self.sketches)))
        sketch, reading = self.sketches[number], self._readings[number]
        decisions = {} if reading is None else _find_allowed(sketch, reading, rng)
        return Trace(sketch.insts, decisions), reading

    def _mutate(self, parent: Candidate, rng: random.Random) -> tuple[Any, Reading | None]:
        """A parent's trace with some decisions changed; and what is known of its sketch."""
        trace, reading = self._trace_of(parent)
        for _ in range(_MOST_MUTANTS):
            mutant = self._change(trace, rng)
            if reading is None or not _exceeds(reading, mutant):
                return mutant, reading
        raise InvalidCandidate(f"{_MOST_MUTANTS} mutations in a row exceed the device")

    def _change(self, trace: Any, rng: random.Random) -> Any:
        """The trace after one change or several.

        Raises:
            InvalidCandidate: there was nothing to change.
        """
        changes = 1
        while changes < _MAX_MUTATIONS and rng.random() < _MORE_MUTATIONS:
            changes += 1
        changed = False
        for _ in range(changes):
            mutant = self._mutant(trace, rng)
            if mutant is not None:
                trace, changed = mutant, True
        if not changed:
            raise InvalidCandidate("no mutator applies")
        return trace

    def _trace_of(self, candidate: Candidate) -> tuple[Any, Reading | None]:
        """A candidate's trace, and what is known of its sketch. It is not scheduled where its
        sketch is one of today's."""
        from tvm.s_tir.schedule import Trace

        found, decisions = form_and_decisions(candidate.payload)
        number = self._numbers.get(found) if self._short else None
        if number is None:
            return replay(self._module, candidate.payload).trace, None
        instructions = self.sketches[number].insts
        made = {instructions[at]: decided for at, decided in decisions.items()}
        return Trace(instructions, made), self._readings[number]

    def why_not(self, trace: Any) -> str:
        """Why a device would not take a trace's kernel; empty where it may, or has open draws."""
        number = self._numbers.get(form(trace))
        reading = None if number is None else self._readings[number]
        return "" if reading is None else _exceeds(reading, trace)

    def _mutant(self, trace: Any, rng: random.Random) -> Any:
        """The trace after one change; None where there was nothing to change."""
        from tvm.s_tir.meta_schedule import _ffi_api

        mutant = None
        if self._rules.mutators and not (self._rules.redraws and rng.random() < _REDRAWN):
            mutators, weights = zip(*self._rules.mutators, strict=True)
            mutator = rng.choices(mutators, weights)[0]
            if callable(mutator):  # a user's
                return mutator(trace, rng)
            # The public `apply` draws its own seed; a draft must give the same point anywhere.
            mutant = _ffi_api.MutatorApply(mutator, trace, rng.randrange(1, 2**31 - 1))
        return _redrawn(trace, rng) if mutant is None and self._rules.redraws else mutant

    def _replay(self, trace: Any, rng: random.Random) -> Any:
        """A schedule with a trace's instructions, its open decisions drawn until they are allowed.

        Only those that a constraint is about are drawn again.
        """
        for _ in range(MOST_DRAWS):
            schedule = self._replay_once(trace, rng)
            again = self._rules.refused(schedule.trace)
            if not again:
                return schedule
            trace = _open(schedule.trace, again)
        raise ConstraintRefused(f"its constraint refused {MOST_DRAWS} draws in a row")

    def _replay_once(self, trace: Any, rng: random.Random) -> Any:
        schedule = new_schedule(self._module, rng.randrange(1, 2**31 - 1))
        try:
            trace.apply_to_schedule(schedule, True)
        except Exception as error:  # TVM raises whatever its C++ side threw
            raise InvalidCandidate(f"trace does not apply: {first_line(error)}") from error
        return schedule


def _exceeds(reading: Reading, trace: Any) -> str:
    """What a trace's kernel has too much of; empty for nothing, or where draws are open."""
    if any(trace.get_decision(i) is None for i in trace.insts if draws(i)):
        return ""
    return reading.launch.why_not(read_draws(trace))


def _find_allowed(sketch: Any, reading: Reading, rng: random.Random) -> dict[Any, Any]:
    """Decisions of a sketch, by instruction, for which its kernel is within the device's limits.

    Decisions are drawn anew one at a time, and kept where they bring the kernel no farther from
    these limits; within them, for a while, which gives any that are allowed with the odds of what
    is drawn (Gibbs sampling).

    Raises:
        InvalidCandidate: none were found.
    """
    sampling = [instruction for instruction in sketch.insts if draws(instruction)]
    found = [draw.draw(rng) if draw is not None else ([1], None) for draw in reading.draws]
    open_draws = [(n, draw) for n, draw in enumerate(reading.draws) if draw is not None]
    left, excess = _REDRAWS * len(open_draws), reading.launch.count_excess([v for v, _ in found])
    for _ in range(_MOST_TRIES):
        if not left:
            pairs = zip(sampling, found, strict=True)
            return {i: decision for i, (_, decision) in pairs if decision is not None}
        left -= not excess
        number, draw = rng.choice(open_draws)
        before, found[number] = found[number], draw.draw(rng)
        now = reading.launch.count_excess([values for values, _ in found])
        if now > excess:
            found[number] = before
        else:
            excess = now
    raise InvalidCandidate(f"{_MOST_TRIES} draws in a row exceed the device")


def _redrawn(trace: Any, rng: random.Random) -> Any:
    """A trace with one of its decisions open; None where it has none."""
    number = sum(map(draws, trace.insts))
    return _open(trace, frozenset([rng.randrange(number)])) if number else None


def _open(trace: Any, numbers: frozenset[int]) -> Any:
    """A trace with these of its decisions open, by the number of their instruction."""
    from tvm.s_tir.schedule import Trace

    drawn = [instruction for instruction in trace.insts if draws(instruction)]
    known = {i: trace.get_decision(i) for n, i in enumerate(drawn) if n not in numbers}
    return Trace(trace.insts, {i: made for i, made in known.items() if made is not None})
