"""The precision of a run: asked for, or chosen by the instructions that a CPU has."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from spaces.frontends.model import Model
from spaces.precision.calibrate import calibrate
from spaces.precision.compare import measure_error
from spaces.precision.convert import in_precision
from spaces.precision.products import Array
from spaces.precision.samples import draw_samples, read_samples
from spaces.targets.backends import backend_of
from spaces.targets.cpu import cpu_of
from tuner.errors import TunerError, UsageError
from tuner.precision import AUTO, DRAWN, Precision
from tuner.request.model_spec import InputValue

Given = Sequence[tuple[str, InputValue]]
_COMPARED = 16
"""The most of a user's samples that outputs are compared on."""


def choose_precision(
    model: Model, asked: str, target: str, given: Given, samples: Path | str | None
) -> Precision:
    """The precision of a model, with its ranges, and its error against the model as it is.

    Args:
        asked: one of `tuner.precision.ASKED`, but for `AS_IS`.
        target: canonical JSON.
        given: values for inputs.
        samples: what ranges of bytes are taken from: a file, whose inputs are what outputs are
            compared on, too, or `DRAWN`; None scales each tensor by its own largest number.

    Raises:
        UsageError: the choice is left to us for a target that is no CPU, or samples are named for
            another type than bytes.
        TunerError: the model has no graph, samples do not fit, or outputs are no longer finite.
    """
    name, why = choose_type(target) if asked == AUTO else (asked, "")
    precision, inputs = Precision(asked, name, why), Samples()
    if name == "int8":
        inputs = _samples(samples, model, given)
        precision = replace(precision, rows=f"rows scaled by {inputs.said}")
        if inputs.all:
            ranges = calibrate(model, target, inputs.all)
            precision = replace(precision, ranges=ranges)
    elif samples is not None and asked != AUTO:
        raise UsageError(f"--calibrate: rows are scaled for int8, not for {name}")
    typed = in_precision(model, precision)
    error = measure_error(model, typed, target, given, inputs.given[:_COMPARED])
    if not error.largest < float("inf"):
        raise TunerError(
            f"--precision {name}: outputs are infinite or no numbers where the model's are not"
        )
    return replace(precision, error=error)


def choose_type(target: str) -> tuple[str, str]:
    """The type that suits a CPU, and why.

    Bytes where it has instructions for them that our kernels use, else bfloat16 where it has
    instructions for that. Other halves have none: kernels widen them, which is faster only where
    memory is the limit, as with one row.

    Raises:
        UsageError: the target is no CPU.
    """
    if not backend_of(target).on_host:
        raise UsageError(f"--precision {AUTO}: it is for CPUs: name a type")
    cpu = cpu_of(target)
    if cpu.vnni:
        return "int8", f"{AUTO}: the CPU multiplies bytes four at a time (VNNI)"
    why = "the CPU has no instructions for products of bytes (VNNI)"
    if cpu.dots_bf16:
        return "bf16", f"{AUTO}: {why}; it multiplies bfloat16 two at a time (AVX512-BF16)"
    return "f32", f"{AUTO}: {why}"


@dataclass(frozen=True, slots=True)
class Samples:
    """Inputs that rows are scaled by.

    Attributes:
        said: what rows are scaled by, for people.
        all: none where each tensor is scaled by its own.
        given: those that are a user's.
    """

    said: str = "the largest number of each tensor"
    all: Sequence[Sequence[Array]] = ()
    given: Sequence[Sequence[Array]] = ()


def _samples(named: Path | str | None, model: Model, given: Given) -> Samples:
    if named is None:
        return Samples()
    if named == DRAWN:
        drawn = list(draw_samples(model, given))
        return Samples(f"the ranges of {len(drawn)} drawn inputs", drawn)
    read = read_samples(Path(named), model, given)
    return Samples(f"the ranges of {len(read)} inputs of {named}", read, read)
