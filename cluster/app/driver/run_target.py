"""The target of a run: the one that the user asks for, or the one that the run began with."""

from __future__ import annotations

from tuner.errors import TunerError
from tuner.request.target_text import kind_alone
from tuner.run_location import RunLocation
from tuner.runs.remote import begun_as


def read_begun_target(run: RunLocation, asked: str) -> str | None:
    """The target in the manifest of an existing run, if it is one that `asked` stands for.

    Other versions of the tuner and of TVM may resolve the same machine to another target; a run
    stays with the target that its records were measured for.

    Raises:
        UsageError: malformed JSON, an unknown kind or option.
        TunerError: trouble with the place of the run, or the run is damaged.
    """
    from spaces.targets.target import asks_for

    begun = begun_as(run)
    return begun.target if begun is not None and asks_for(asked, begun.target) else None


def target_here(run: RunLocation, asked: str) -> str:
    """The target of a run that is measured on this machine, see
    `spaces.targets.target.resolve_target`.

    Raises:
        UsageError: malformed JSON, an unknown kind or option.
        TunerError: this machine does not fit the target, or not the one that the run began with.
    """
    from spaces.targets.target import fits_here, refuse_other_features, resolve_target

    begun = read_begun_target(run, asked)
    target = begun or resolve_target(asked)
    refuse_other_features(target)
    if begun and (asked == "auto" or kind_alone(asked)) and not fits_here(begun):
        raise TunerError(
            f"{run} is a run for another target ({begun}) than this machine is: "
            "name another run folder"
        )
    return target
