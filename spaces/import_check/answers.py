"""Inputs that a model is compared on, and what its source gives for them."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Any, Protocol

import numpy.typing as npt

from spaces.frontends.inputs import InputSpec
from spaces.frontends.model import Model
from spaces.frontends.references import Reference, References
from spaces.import_check.draws import draw
from spaces.import_check.sources import CannotRun, Source, onnx_source
from spaces.import_check.torch_source import TorchSource
from tuner.dynamic.shapes import sample_shapes
from tuner.request.model_spec import InputValue
from tuner.task import Instance, Shapes

Array = npt.NDArray[Any]
Given = Sequence[tuple[str, InputValue]]
_SHAPES = 3
"""Shapes of a model with open dimensions that are compared."""
_DRAWS = 2


class Answers(Protocol):
    """A source's answers.

    Attributes:
        name: of the program that computes, with its version.
    """

    name: str

    def of(self, instance: Instance, number: int) -> tuple[Sequence[Array], Sequence[Array]]:
        """Inputs of one draw at one shape, and what the source gives for them.

        Raises:
            CannotRun: it takes none.
        """


def plan(shapes: Shapes) -> Iterator[tuple[Instance, int]]:
    """The shapes and draws that a model is compared on, in order."""
    some = [instance for instance, _ in sample_shapes(shapes, _SHAPES)] if shapes else []
    first: Instance = some[0] if some else ()
    yield from ((first, number) for number in range(_DRAWS))
    yield from ((other, 0) for other in some[1:])


def answers_for(
    model: Model, given: Given, references: References | None, limit_s: float
) -> Answers:
    """Who answers for a model.

    Args:
        references: what was recorded of its source.
        limit_s: see `record`, for a model that was read just now.

    Raises:
        CannotRun: nobody here does.
    """
    if model.kind != "torch":
        names = [spec.name for spec in model.inputs]
        source = onnx_source(model.proto if model.path is None else model.path, names)
        return _Asked(source, model.inputs, given)
    references = references or record(model, given, limit_s)
    if references is None:
        raise CannotRun("what PyTorch computes was not recorded when the model was read")
    return _Recorded(references)


def record(model: Model, given: Given, limit_s: float) -> References | None:
    """What PyTorch computes; None for a model that was not exported from it, or not read just now.

    Args:
        limit_s: after so many seconds it is asked no more.
    """
    if model.torch_program is None:
        return None
    try:
        asked = _Asked(TorchSource(model.torch_program), model.inputs, given)
    except CannotRun as error:
        return References("torch", (), str(error))
    known, refused, until_s = list[Reference](), "", time.monotonic() + limit_s
    for instance, number in plan(model.shapes):
        if known and time.monotonic() > until_s:
            refused = refused or f"PyTorch took more than {limit_s:g} s for what came before"
            break
        try:
            inputs, outputs = asked.of(instance, number)
        except CannotRun as error:
            refused = refused or str(error)
            continue
        known.append(Reference(instance, number, tuple(inputs), tuple(outputs)))
    return References(asked.name, tuple(known), refused)


class _Asked:
    """A source that is here."""

    def __init__(self, source: Source, inputs: Sequence[InputSpec], given: Given) -> None:
        self.name = source.name
        self._source, self._inputs, self._given = source, inputs, given

    def of(self, instance: Instance, number: int) -> tuple[list[Array], list[Array]]:
        """See `Answers`. Integers that the source refuses are drawn anew, as small ones."""
        specs = [spec.at(dict(instance)) for spec in self._inputs]
        feeds = draw(specs, self._given, number)
        try:
            return feeds, self._source.outputs(feeds)
        except CannotRun:
            if number == 0:
                raise
            feeds = draw(specs, self._given, number, wide_integers=False)
            return feeds, self._source.outputs(feeds)


class _Recorded:
    """A source that was asked before."""

    def __init__(self, references: References) -> None:
        self.name = references.name
        self._known = {(one.instance, one.number): one for one in references.known}
        self._refused = references.refused

    def of(self, instance: Instance, number: int) -> tuple[Sequence[Array], Sequence[Array]]:
        """See `Answers`."""
        if (found := self._known.get((instance, number))) is None:
            raise CannotRun(self._refused or "it was not recorded for these sizes")
        return found.inputs, found.outputs
