"""A user's mutators and post-processors, beside those of a space."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache, partial
from typing import Any

from spaces.design_space.schedule_rules import RuleSet
from spaces.ir.schedules import InvalidCandidate
from tuner.errors import first_line
from tuner.source import Source
from tuner.user_code.faults import LayerFailed, blame
from tuner.user_code.load import load

_MUTATOR, _POSTPROC = "mutator, apply", "post-processor, apply"


@lru_cache(maxsize=32)
def _make(source: Source, what: str) -> Any:
    with blame(source, what):
        return load(source)()


def with_mutators(rules: RuleSet, mutators: tuple[Source, ...]) -> RuleSet:
    """Rules whose mutations are also a user's; each is as likely as all of the rules' together,
    unless its class has another `weight` than 1."""
    theirs = [(_make(source, _MUTATOR), source) for source in mutators]
    more = tuple(
        (partial(_mutate, made, source), float(getattr(made, "weight", 1.0)))
        for made, source in theirs
    )
    return replace(rules, mutators=(*rules.mutators, *more)) if more else rules


def _mutate(mutator: Any, source: Source, trace: Any, rng: Any) -> Any:
    try:
        with blame(source, _MUTATOR, always=False):
            return mutator.apply(trace, rng)
    except LayerFailed:
        raise
    except Exception as error:  # TVM raises whatever its C++ side threw
        raise InvalidCandidate(f"{type(mutator).__name__}: {first_line(error)}") from error


def postprocess_theirs(schedule: Any, postprocs: tuple[Source, ...]) -> None:
    """Apply a user's post-processors, after a space's own.

    Raises:
        InvalidCandidate: one refused the schedule; the error names it.
        LayerFailed: a line of the user's file raised.
    """
    if postprocs:
        schedule.enter_postproc()
    for source in postprocs:
        made = _make(source, _POSTPROC)
        try:
            with blame(source, _POSTPROC, always=False):
                accepted = made.apply(schedule)
        except LayerFailed:
            raise
        except Exception as error:  # TVM raises whatever its C++ side threw
            raise InvalidCandidate(f"{type(made).__name__}: {first_line(error)}") from error
        if not accepted:
            raise InvalidCandidate(f"refused by {type(made).__name__}")
