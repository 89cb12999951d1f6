"""The types in which a run's model multiplies, and what that costs: a file beside the model."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tuner.errors import TunerError

AS_IS, AUTO = "as-is", "auto"
PRECISIONS = ("f32", "bf16", "f16", "int8", "int4")
"""The types that products can have."""
ASKED = (AS_IS, *PRECISIONS, AUTO)
"""What a user may ask for."""
_FILE = "precision.json"


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

    def to_json(self) -> dict[str, Any]:
        """Plain values, without the ranges."""
        plain = asdict(self)
        del plain["ranges"]
        return plain


def write_precision(precision: Precision, model_dir: Path) -> None:
    """Write it into the folder of a model's copy.

    Raises:
        OSError: the file cannot be written.
    """
    text = json.dumps(precision.to_json() | {"ranges": precision.ranges}, indent=1)
    (model_dir / _FILE).write_text(text + "\n")


def read_precision(model_dir: Path) -> Precision | None:
    """The one that the folder of a model's copy has; None for a model as it is.

    Raises:
        TunerError: the file is damaged.
    """
    path = model_dir / _FILE
    if not path.exists():
        return None
    try:
        plain = json.loads(path.read_text(encoding="utf-8"))
        ranges = tuple((float(low), float(high)) for low, high in plain.pop("ranges"))
        error = plain.pop("error")
        return Precision(**plain, ranges=ranges, error=None if error is None else _error(error))
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise TunerError(f"{path} is damaged ({error})") from error


def _error(plain: dict[str, Any]) -> PrecisionError:
    texts = plain.pop("perplexity")
    return PrecisionError(**plain, perplexity=None if texts is None else Perplexity(**texts))
