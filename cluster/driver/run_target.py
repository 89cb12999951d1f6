"""The target of a run: what the user asks for, or what a run that goes on began with."""

from __future__ import annotations

from tuner.checks import TARGET_KINDS
from tuner.errors import TunerError
from tuner.run_location import RunLocation
from tuner.runs.remote import target_of

_LEFT_OPEN = ("auto", *TARGET_KINDS)


def begun_target(run: RunLocation, asked: str) -> str | None:
    """The target of a run that is there, as its manifest has it, where that is asked for.

    Versions of the tuner and of TVM may see the same machine as another target; a run stays with
    the one that its records were measured for.

    Raises:
        UsageError: malformed JSON, an unknown kind or option.
        TunerError: trouble with the place of the run, or what is there is damaged.
    """
    from spaces.targets.target import asks_for

    begun = target_of(run)
    return begun if begun is not None and asks_for(asked, begun) else None


def target_here(run: RunLocation, asked: str) -> str:
    """The target of a run that is measured on this machine, see
    `spaces.targets.target.resolve_target`.

    Raises:
        UsageError: malformed JSON, an unknown kind or option.
        TunerError: this machine is no such device, or none that the run began on.
    """
    from spaces.targets.target import fits_here, refuse_other_features, resolve_target

    begun = begun_target(run, asked)
    target = begun or resolve_target(asked)
    refuse_other_features(target)
    if begun and asked in _LEFT_OPEN and not fits_here(begun):
        raise TunerError(
            f"{run} is a run for another target ({begun}) than this machine is: "
            "name another run folder"
        )
    return target
