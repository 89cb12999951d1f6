"""The types in which a run's model multiplies: what the user asks for, or the run began with."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from tuner.errors import TunerError, UsageError
from tuner.precision import AS_IS, Precision
from tuner.request.options import TuneOptions
from tuner.run_location import RunLocation
from tuner.runs.remote import begun_as

if TYPE_CHECKING:
    from spaces.frontends.model import Model


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
