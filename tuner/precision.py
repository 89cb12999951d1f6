"""The types in which a run's model multiplies, and what that costs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

AS_IS, AUTO = "as-is", "auto"
PRECISIONS = ("f32", "bf16", "f16", "int8", "int4")
"""The types that products can have."""
ASKED = (AS_IS, *PRECISIONS, AUTO)
"""What a user may ask for."""
DRAWN = "drawn"
"""Stands for drawn inputs, where a file of inputs could be named."""


@dataclass(frozen=True, slots=True)
class Perplexity:
    """Of the same tokens, before and after."""

    before: float
    after: float


@dataclass(frozen=True, slots=True)
class PrecisionError:
    """How far outputs are from those of the model as it is.

    Attributes:
        inputs: number of inputs that were compared.
        largest: difference of an element; infinite where one side alone has a number.
        relative: norm of the differences over that of the outputs, of the worst input.
        logits: the largest difference of a logit; None where outputs are not known to be some.
        perplexity: of the tokens that were given or drawn; None likewise.
    """

    inputs: int
    largest: float
    relative: float
    logits: float | None = None
    perplexity: Perplexity | None = None

    @property
    def numbers(self) -> dict[str, object]:
        """Those that are known, by name."""
        told = {
            "max_abs_error": self.largest,
            "relative_error": self.relative,
            "logits_shift": self.logits,
            "perplexity_before": self.perplexity and self.perplexity.before,
            "perplexity_after": self.perplexity and self.perplexity.after,
        }
        return {name: number for name, number in told.items() if number is not None}

    @property
    def line(self) -> str:
        """For people."""
        parts = [f"largest error {self.largest:.3g}, relative {self.relative:.3g}"]
        if self.logits is not None:
            parts.append(f"logits shift by {self.logits:.3g} at most")
        if self.perplexity is not None:
            parts.append(
                f"perplexity {self.perplexity.before:.6g} before, {self.perplexity.after:.6g} after"
            )
        return f"{'; '.join(parts)}; of {self.inputs} inputs"


@dataclass(frozen=True, slots=True)
class Precision:
    """The types in which a model multiplies.

    Attributes:
        asked: one of `ASKED`.
        name: one of `PRECISIONS`.
        why: how that came from `auto`; else empty.
        rows: what rows of 8 bits are scaled by; else empty.
        ranges: of each product's first operand, its least and its largest number, by the product's
            place among all; empty where each tensor is scaled by its own.
        error: against the model as it is.
    """

    asked: str
    name: str
    why: str = ""
    rows: str = ""
    ranges: tuple[tuple[float, float], ...] = ()
    error: PrecisionError | None = None

    @property
    def line(self) -> str:
        """For people."""
        return "; ".join(self._parts())

    def _parts(self) -> Iterator[str]:
        yield f"precision {self.name}" + (f" ({self.why})" if self.why else "")
        if self.rows:
            yield self.rows
        if self.error is not None:
            yield self.error.line

    @property
    def facts(self) -> dict[str, object]:
        """For the tracker: the type, and each number of the error that is known, by name."""
        told = {} if self.error is None else self.error.numbers
        return {"precision": self.name, **told}

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return asdict(self)


def precision_from_json(plain: Mapping[str, Any]) -> Precision:
    """What `Precision.to_json` told.

    Raises:
        ValueError, TypeError, KeyError: it is no such.
    """
    rest = {**plain}
    ranges = tuple((float(low), float(high)) for low, high in rest.pop("ranges"))
    error = rest.pop("error")
    return Precision(**rest, ranges=ranges, error=None if error is None else _error(error))


def _error(plain: Mapping[str, Any]) -> PrecisionError:
    rest = {**plain}
    known = rest.pop("perplexity")
    return PrecisionError(**rest, perplexity=None if known is None else Perplexity(**known))
