"""How far a model's outputs move when it multiplies in other types."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from spaces.check.compare import gaps
from spaces.codegen.executable import LoadedModel
from spaces.frontends.inputs import make_inputs
from spaces.frontends.model import Model
from spaces.import_check.answers import plan
from spaces.import_check.plain_code import compile_untuned, target_here
from spaces.ir.element_types import is_float
from spaces.precision.language import Language, read_language
from spaces.precision.products import Array
from tuner.precision import Perplexity, PrecisionError
from tuner.request.model_spec import InputValue, IntRange

Given = Sequence[tuple[str, InputValue]]
_LEAST = float(np.finfo(np.float32).tiny)
"""Outputs that are smaller have this norm: so a relative error is finite."""


def measure_error(
    model: Model, other: Model, target: str, given: Given, samples: Sequence[Sequence[Array]] = ()
) -> PrecisionError:
    """Compare a model with the same one in other types, both compiled without schedules.

    Without samples that is on usual inputs: two draws, and of open dimensions one at each of
    several sizes. Of a language model (`spaces.precision.language`) tokens are drawn from its whole
    vocabulary.

    Args:
        target: canonical JSON; models for another machine are compiled for this one.
        given: values for inputs, and ranges.
        samples: inputs to compare on.

    Raises:
        TunerError: the compiler refused one, or a value does not fit.
    """
    here = target_here(target)
    pair = [compile_untuned(each.module, here) for each in (model, other)]
    language = read_language(model)
    fold = _Fold(language, [spec.name for spec in model.inputs])
    for feeds in samples or _draw(model, language, given):
        want, got = (LoadedModel(each, feeds).outputs() for each in pair)
        fold.take(feeds, got, want)
    return fold.error()


def _draw(model: Model, language: Language | None, given: Given) -> Iterator[list[Array]]:
    if language is not None and language.tokens not in dict(given):
        given = (*given, (language.tokens, IntRange(0, language.vocabulary - 1)))
    for instance, number in plan(model.shapes):
        specs = [spec.at(dict(instance)) for spec in model.inputs]
        yield make_inputs(specs, given, seed=number)


@dataclass(slots=True)
class _Fold:
    """What came of all inputs so far."""

    language: Language | None
    names: Sequence[str]
    inputs: int = 0
    largest: float = 0.0
    relative: float = 0.0
    logits: float | None = None
    losses: tuple[float, float] = (0.0, 0.0)
    tokens: int = 0

    def take(self, feeds: Sequence[Array], got: Sequence[Array], want: Sequence[Array]) -> None:
        """Add the outputs for some inputs."""
        self.inputs += 1
        places = [n for n, array in enumerate(want) if is_float(str(array.dtype))]
        apart = {n: gaps(got[n], want[n]) for n in places or range(len(want))}
        self.largest = max(self.largest, *(float(g.max(initial=0.0)) for g in apart.values()))
        off = _norm(apart.values())
        scale = _norm(np.where(np.isfinite(want[n]), want[n], 0) for n in apart)
        self.relative = max(self.relative, off / max(scale, _LEAST))
        if self.language is not None and (place := self.language.place) in apart:
            self.logits = max(self.logits or 0.0, float(apart[place].max(initial=0.0)))
            tokens = feeds[self.names.index(self.language.tokens)]
            self._predict(tokens, got[place], want[place])

    def _predict(self, tokens: Array, got: Array, want: Array) -> None:
        after = _loss(got, tokens), _loss(want, tokens)
        self.losses = (self.losses[0] + after[1], self.losses[1] + after[0])
        self.tokens += tokens[..., 1:].size

    def error(self) -> PrecisionError:
        """The error of all."""
        known = None
        if self.tokens:
            with np.errstate(over="ignore"):
                known = Perplexity(*(float(np.exp(loss / self.tokens)) for loss in self.losses))
        return PrecisionError(self.inputs, self.largest, self.relative, self.logits, known)


def _norm(arrays: Iterable[Array]) -> float:
    return float(np.sqrt(sum(float(np.square(a.astype(np.float64)).sum()) for a in arrays)))


def _loss(logits: Array, tokens: Array) -> float:
    """Negative logarithm of the probability of each token after the first, added up."""
    wide = logits[..., :-1, :].astype(np.float64)
    wide = wide - wide.max(-1, keepdims=True)
    logs = wide - np.log(np.exp(wide).sum(-1, keepdims=True))
    following = tokens[..., 1:, None].astype(np.int64)
    return -float(np.take_along_axis(logs, following, -1).sum())
