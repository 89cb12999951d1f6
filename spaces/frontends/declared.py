"""What a model declares of its inputs, and the inputs that this makes with what a user says. Pure.

Models are imported in three steps, the same for all kinds: a frontend reads one and says what it
declares; `resolve` closes that with `--shape` and `--dim`, and says what is wrong with them; the
frontend imports the model with the inputs that came of it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Protocol

from spaces.frontends.inputs import InputSpec, Shape, check_names
from tuner.dynamic.derived_names import bases_of, close, text_of_name
from tuner.dynamic.dimension_text import name_expression
from tuner.dynamic.shapes import NO_DOMAIN, Domain
from tuner.errors import TunerError
from tuner.request.model_spec import IntRange

UNNAMED = "?"
"""A dimension of which nothing is known."""
Dims = tuple[int | str, ...]
"""Dimensions as declared: a number, a name, or `UNNAMED`."""
ModelKind = Literal["onnx", "torch", "function"]
_MADE_STATIC = "make the function static, for instance by an argument for --arg"


@dataclass(frozen=True, slots=True)
class DeclaredInput:
    """One input as a model declares it.

    Attributes:
        dims: None where not even the rank is known.
        drawn: see `InputSpec`.
    """

    name: str
    dtype: str
    dims: Dims | None
    drawn: IntRange | None = None


@dataclass(frozen=True, slots=True)
class Declared:
    """What a model says of its inputs by itself.

    Attributes:
        inputs: in order.
        symbols: the dimensions that are sizes by themselves. Others are named after some of them,
            see `tuner.dynamic.derived_names`.
        bounds: the least and the largest value that the model takes of a dimension.
        domain: the sizes that the model itself is to be tuned for, where nobody says others.
        takes_shapes: whether symbols can be given a value by the shape of an input.
        note: what is to be known of the names of its dimensions.
    """

    inputs: tuple[DeclaredInput, ...]
    symbols: tuple[str, ...] = ()
    bounds: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    domain: Domain = NO_DOMAIN
    takes_shapes: bool = True
    note: str = ""


class ModelSource(Protocol):
    """A model that was read: what a frontend gives."""

    @property
    def name(self) -> str:
        """For people."""

    @property
    def kind(self) -> ModelKind:
        """Where it came from."""

    @property
    def declared(self) -> Declared:
        """What it says of its inputs."""

    @property
    def torch_program(self) -> Any:
        """The program of PyTorch that it is; None of any other."""

    def imported(self, inputs: Sequence[InputSpec], domain: Domain) -> Any:
        """Its module with these inputs. What was read may be changed by it: it is called once.

        Args:
            domain: of the dimensions that stay symbolic.

        Raises:
            TunerError: whatever keeps it from being imported, in one line.
        """

    def content_hash(self, module: Any, inputs: Sequence[InputSpec]) -> str:
        """Changes with anything that changes what is computed or its shapes.

        Args:
            module: what `imported` gave for these inputs.
        """


def resolve(
    declared: Declared, shapes: Iterable[tuple[str, Shape]] = (), domain: Domain = NO_DOMAIN
) -> tuple[InputSpec, ...]:
    """The inputs of a model, with all dimensions known, or symbolic with a domain.

    Args:
        shapes: of inputs that the model leaves dynamic. A dimension that several have need be given
            only once.
        domain: of the dimensions that stay symbolic.

    Raises:
        TunerError: an input or a dimension is unknown, a shape contradicts the model or another
            one, a size is outside of the model's bounds, or an input is left open.
    """
    given = dict(shapes)
    declared = replace(
        declared, inputs=tuple(_unless_given(one, given.get(one.name)) for one in declared.inputs)
    )
    sizes = _sizes(declared, given)
    inputs = [
        replace(one, dims=None if one.dims is None else _at(one.dims, sizes))
        for one in declared.inputs
    ]
    _check_dims(domain.largest, declared, inputs)
    _check_bounds(declared, sizes, domain)
    return tuple(_close(one, given.get(one.name), domain.largest, declared) for one in inputs)


def tie(declared: Declared, ties: Iterable[tuple[str, str]]) -> Declared:
    """What a model declares where some of its dimensions follow from others.

    Args:
        ties: each such dimension, and what it is: `past + new`.

    Raises:
        TunerError: a dimension is unknown or tied itself, or what follows has no name.
    """
    tied = dict(ties)
    for dim, text in tied.items():
        said = f"{dim}={text}"
        if not declared.takes_shapes:
            raise TunerError(f"--dim {said}: write so in the tensor program, whose sizes these are")
        for name in (dim, *bases_of(name_expression(text) or text)):
            if name not in declared.symbols:
                raise _unknown(name, said, declared)
            if name != dim and name in tied:
                raise TunerError(f"--dim {said}: {name} follows from others, too: name those")
    if not tied:
        return declared
    inputs = tuple(
        replace(one, dims=one.dims and tuple(_tied(d, tied) for d in one.dims))
        for one in declared.inputs
    )
    left = tuple(symbol for symbol in declared.symbols if symbol not in tied)
    bounds = {dim: bound for dim, bound in declared.bounds.items() if dim not in tied}
    return replace(declared, inputs=inputs, symbols=left, bounds=bounds)


def _tied(dim: int | str, tied: Mapping[str, str]) -> int | str:
    """A dimension in terms of those that it follows from."""
    if isinstance(dim, int) or not {*bases_of(dim)} & {*tied}:
        return dim
    text = text_of_name(dim)
    for name in bases_of(dim):
        text = re.sub(rf"\b{name}\b", f"({tied.get(name, name)})", text)
    if (found := name_expression(text)) is None:
        raise TunerError(f"--dim: a model with the dimension {text} is not supported")
    return found


def _unless_given(one: DeclaredInput, shape: Shape | None) -> DeclaredInput:
    """An input whose sizes of 0 are what a shape says: some exporters wrote 0 for any size."""
    if shape is None or one.dims is None or len(shape) != len(one.dims):
        return one
    dims = tuple(s if d == 0 else d for d, s in zip(one.dims, shape, strict=True))
    return replace(one, dims=dims)


def _sizes(declared: Declared, given: Mapping[str, Shape]) -> dict[str, int]:
    """Value of each symbol that a given shape determines.

    Raises:
        TunerError: a shape is for no input, or contradicts what is declared of it.
    """
    if given and not declared.takes_shapes:
        raise TunerError(
            f"--shape {next(iter(given))}: the inputs of a tensor program take none; give sizes "
            f"to tune for with --dim, or {_MADE_STATIC}"
        )
    check_names(given, [one.name for one in declared.inputs], "--shape")
    sizes: dict[str, int] = {}
    for one in declared.inputs:
        shape = given.get(one.name)
        if shape is None or one.dims is None:
            continue
        _check_shape(one.name, one.dims, shape)
        for dim, size in zip(one.dims, shape, strict=True):
            if dim in declared.symbols:  # what follows from one tells none
                sizes.setdefault(str(dim), size)
    return sizes


def _at(dims: Dims, values: Mapping[str, int]) -> Dims:
    """Dimensions with those that follow from some values as numbers."""
    return tuple(d if isinstance(d, int) else close(d, values) for d in dims)


def _name_inputs(inputs: Iterable[DeclaredInput]) -> list[str]:
    """The names of dimensions that are left, each once, in order."""
    dims = [d for one in inputs for d in one.dims or ()]
    return list(dict.fromkeys(d for d in dims if isinstance(d, str) and d != UNNAMED))


def _close(
    one: DeclaredInput, given: Shape | None, largest: Mapping[str, int], declared: Declared
) -> InputSpec:
    """An input at the largest of its domain, or of the shape that is given."""
    dims = given if one.dims is None else one.dims
    if dims is None:
        raise TunerError(_open_text(one.name, None, declared))
    bound = _at(dims, largest)
    if given is None:
        given = tuple(d for d in bound if isinstance(d, int))
        if len(given) != len(bound):
            raise TunerError(_open_text(one.name, bound, declared))
    _check_shape(one.name, bound, given)
    kept = zip(dims, bound, given, strict=True)
    named = tuple(dim if isinstance(known, int) else size for dim, known, size in kept)
    return InputSpec(one.name, given, one.dtype, () if named == given else named, one.drawn)


def _check_shape(name: str, dims: Dims, given: Shape) -> None:
    """Refuse a shape that the model contradicts."""
    if len(given) != len(dims):
        raise TunerError(f"input {name} has {len(dims)} dimensions, but --shape gives {len(given)}")
    for axis, (have, want) in enumerate(zip(dims, given, strict=True)):
        if isinstance(have, int) and have != want:
            raise TunerError(
                f"input {name}: dimension {axis} is {have} in the model, but --shape says {want}"
            )


def _check_dims(given: Iterable[str], declared: Declared, left: Iterable[DeclaredInput]) -> None:
    """Refuse sizes for a dimension that the model does not have, or that a shape has closed."""
    names, open_names = _name_inputs(declared.inputs), _name_inputs(left)
    for dim in given:
        if not _heads(dim, names):
            raise _unknown(dim, dim, declared)
        if not _heads(dim, open_names):
            raise TunerError(f"--dim {dim}: a --shape says already what it is")


def _unknown(dim: str, said: str, declared: Declared) -> TunerError:
    """That the model has no such dimension, which was said with `--dim`."""
    names = _name_inputs(declared.inputs)
    listed = ", ".join(dict.fromkeys(base for name in names for base in bases_of(name))) or "none"
    text = f"--dim {said}: no such dimension{'' if dim == said else f' as {dim}'}"
    return TunerError(_with_note(f"{text}; the model has {listed}", declared.note))


def _heads(dim: str, names: Iterable[str]) -> bool:
    """Whether one of some dimensions is this one, or named after it."""
    return any(dim == name or dim in bases_of(name) for name in names)


def _check_bounds(declared: Declared, sizes: Mapping[str, int], domain: Domain) -> None:
    """Refuse sizes outside of the bounds that a model was exported with."""
    said: dict[str, tuple[str, tuple[int, ...]]]
    said = {dim: (f"--shape {_place(declared, dim)}", (size,)) for dim, size in sizes.items()}
    said |= {dim: (f"--dim {dim}", values) for dim, values in domain.dims}
    for dim, (least, most) in declared.bounds.items():
        option, values = said.get(dim, ("", ()))
        for size in values:
            if not least <= size <= most:
                bound = f"at most {most}" if size > most else f"at least {least}"
                raise TunerError(f"{option}: the model takes {bound}, not {size}")


def _place(declared: Declared, dim: str) -> str:
    """Where in the inputs a dimension is first met."""
    return next(
        f"{one.name}: dimension {one.dims.index(dim)}"
        for one in declared.inputs
        if one.dims is not None and dim in one.dims
    )


def _open_text(name: str, dims: Dims | None, declared: Declared) -> str:
    """That an input is open, and all that can be done about it."""
    ways = []
    if declared.takes_shapes:
        asked = [UNNAMED if isinstance(d, str) else str(d) for d in dims or ()]
        sizes = "..." if dims is None else ",".join(asked)
        number = " with a number for each ?" if UNNAMED in asked else ""
        ways.append(f"give its shape: --shape {name}={sizes}{number}")
    named = [d for d in dims or () if isinstance(d, str) and d.isidentifier()]
    if named:
        ways.append(f"give the sizes to tune for: --dim {bases_of(named[0])[0]}=1..128")
    if not declared.takes_shapes:
        ways.append(_MADE_STATIC)
    shown = "unknown rank" if dims is None else ",".join(map(str, dims))
    return _with_note(f"input {name} is dynamic ({shown}); {', or '.join(ways)}", declared.note)


def _with_note(text: str, note: str) -> str:
    return f"{text}; {note}" if note else text
