"""The target of a run and the types that it multiplies in: what the user asks for, or what the run
began with."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from tuner.errors import TunerError, UsageError
from tuner.precision import AS_IS, Precision
from tuner.request.options import TuneOptions
from tuner.request.target_text import kind_alone
from tuner.run_location import RunLocation
from tuner.runs.remote import begun_as

if TYPE_CHECKING:
    from spaces.frontends.model import Model


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


def find_precision(options: TuneOptions, run: RunLocation, model: Model) -> Precision | None:
    """The precision of a run, and a line on it for people; None for the model's own types.

    A run that goes on keeps what it began with, ranges and error included.

    Args:
        options: with the target resolved.

    Raises:
        UsageError: something is said of a precision, and none is asked for.
        TunerError: the run was begun with another, the error is larger than is allowed, or as
            `spaces.precision.choose.choose_precision`.
    """
    from spaces.precision.choose import choose_precision

    begun = begun_as(run)
    asked = options.precision
    if begun is not None:
        known = begun.precision
        was = AS_IS if known is None else known.asked
        if asked not in (None, was):
            raise TunerError(
                f"{run} was begun with --precision {was}, not {asked}: name another run folder"
            )
        _refuse_unasked(options, was)
        return known if known is None else _within(known, options.max_error)
    asked = asked or AS_IS
    _refuse_unasked(options, asked)
    if asked == AS_IS:
        return None
    chosen = choose_precision(model, asked, options.target, options.model.inputs, options.calibrate)
    print(f"tuner: {chosen.line}", file=sys.stderr)
    return _within(chosen, options.max_error)


def _refuse_unasked(options: TuneOptions, asked: str) -> None:
    said = {"--max-error": options.max_error, "--calibrate": options.calibrate}
    for flag, value in said.items():
        if asked == AS_IS and value is not None:
            raise UsageError(f"{flag}: the model keeps its types: name others with --precision")


def _within(precision: Precision, most: float | None) -> Precision:
    error = precision.error
    if most is not None and error is not None and error.relative > most:
        raise TunerError(
            f"--precision {precision.name}: the relative error is {error.relative:.3g}, and "
            f"--max-error allows {most:g}"
        )
    return precision
