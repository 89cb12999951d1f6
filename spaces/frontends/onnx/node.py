"""One node of a graph, with what is known of its operands."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from spaces.frontends.onnx.sizes import Arithmetic, Size, Sizes, shape_expression
from spaces.ir.tvm_compat import as_int
from tuner.errors import TunerError

STANDARD_DOMAINS = ("", "ai.onnx")


@dataclass(slots=True)
class Value:
    """A value of the graph: sizes that are known, an expression of Relax, or both. Few are no
    tensors, see `spaces.frontends.onnx.sequences`.

    Attributes:
        expression: of known sizes it is made only where something computes with it at run time.
        largest: the largest number in it, where that is known, see
            `spaces.frontends.onnx.index_bounds`.
        missing: why it is not computed; it is an error where something needs it.
        narrow: the type that it has, where its numbers are kept in another one, see
            `spaces.frontends.onnx.narrow_types`.
        parts: of a sequence; None of a tensor.
        absent: whether it is an optional without an element.
    """

    sizes: Sizes | None = None
    expression: Any = None
    largest: Size | None = None
    missing: TunerError | None = None
    narrow: str = ""
    parts: tuple[Value, ...] | None = None
    absent: bool = False

    @property
    def is_tensor(self) -> bool:
        """Whether it is a tensor."""
        return self.parts is None and not self.absent

    @property
    def form(self) -> str:
        """What it is, for messages."""
        if self.absent:
            return "an optional without an element"
        return "a tensor" if self.parts is None else "a sequence"

    def tensor(self, builder: Any) -> Any:
        """The value as a tensor that is there when the model runs."""
        if self.expression is None:
            assert self.sizes is not None, "a value is one or the other"
            self.expression = _materialise(self.sizes, builder)
        return self.expression

    @property
    def numbers(self) -> list[int] | None:
        """What it holds in order, if all of that is known and no symbol in it."""
        if has_nothing(self.dims or ()):
            return []
        known = self.sizes is not None and self.sizes.numbers
        return [int(v) for v in self.sizes.flat()] if self.sizes and known else None

    @property
    def array(self) -> np.ndarray[Any, Any] | None:
        """What it holds, if it is a constant of any type."""
        if self.sizes is None:
            constant = getattr(self.expression, "value", None)
            return None if constant is None else np.asarray(constant.numpy())
        if not self.sizes.numbers:
            return None
        values = np.array(self.sizes.flat(), dtype=self.sizes.dtype)
        return values.reshape(self.sizes.values.shape)

    @property
    def dtype(self) -> str:
        """Of its elements."""
        return str(self.expression.ty.dtype) if self.sizes is None else self.sizes.dtype

    @property
    def kind(self) -> str:
        """The type that ONNX says it has."""
        return self.narrow or self.dtype

    @property
    def dims(self) -> list[Size] | None:
        """Its shape; None where that is not known."""
        if self.sizes is not None:
            return list(self.sizes.values.shape)
        shape: Any = getattr(getattr(self.expression, "ty", None), "shape", None)
        return [*shape.values] if hasattr(shape, "values") else None


@dataclass(frozen=True, slots=True)
class Requirement:
    """A size that may not be larger than another one, or the model cannot be run.

    Attributes:
        excess: how much larger it is; 0 or less is well.
        node: that needs it.
        said: what is wrong with a node that has so much, `{}`, too much.
    """

    excess: Size
    node: str
    said: str


@dataclass(frozen=True, slots=True)
class Node:
    """What an operator of the graph is applied to.

    Attributes:
        name: as a message calls it.
        inputs: None for an operand that is left out.
        attributes: by name, as the importer of TVM reads them.
        opset: version of ONNX that it is written in.
        outputs: whether each of its outputs is wanted.
        arithmetic: for sizes of this model.
        requirements: of the graph, which it may add to.
    """

    operator: str
    name: str
    inputs: tuple[Value | None, ...]
    attributes: Mapping[str, Any]
    opset: int
    outputs: tuple[bool, ...]
    arithmetic: Arithmetic
    requirements: list[Requirement]

    def refused(self, why: str) -> TunerError:
        """The error that it cannot be imported, for a reason of one line."""
        return TunerError(f"cannot import {self.name}: {why}")

    def require(self, size: Size, most: Size, said: str = "reaches {} too far") -> None:
        """Have the model refuse shapes for which one size is larger than another."""
        if not self.arithmetic.always(size <= most):
            excess = self.arithmetic.simple(size - most)
            if isinstance(excess, int):
                raise self.refused(said.format(excess))
            if excess not in [known.excess for known in self.requirements]:
                self.requirements.append(Requirement(excess, self.name, said))

    def require_equal(self, size: Size, other: Size) -> None:
        """Have the model refuse shapes for which two numbers of elements are not the same."""
        if not self.arithmetic.equal(size, other):
            self.require(size, other, "has {} elements too many")
            self.require(other, size, "has {} elements too few")

    def input(self, number: int) -> Value | None:
        """An operand; None where it is left out."""
        return self.inputs[number] if number < len(self.inputs) else None

    def sizes(self, number: int) -> Sizes | None:
        """An operand's values, if they are known."""
        value = self.input(number)
        return None if value is None else value.sizes

    def numbers(self, number: int) -> list[int] | None:
        """An operand's values in order, if all of them are numbers."""
        value = self.input(number)
        return None if value is None else value.numbers

    def array(self, number: int) -> np.ndarray[Any, Any] | None:
        """An operand's values, if it is a constant of any type."""
        value = self.input(number)
        return None if value is None else value.array

    def operand(self, number: int) -> Value:
        """An operand.

        Raises:
            TunerError: it is left out.
        """
        value = self.input(number)
        if value is None:
            raise self.refused(f"its operand {number} is missing")
        return value

    def tensor(self, number: int, builder: Any) -> Any:
        """An operand as a tensor.

        Raises:
            TunerError: it is left out.
        """
        return self.operand(number).tensor(builder)

    def shape(self, number: int) -> list[Size]:
        """The shape of an operand.

        Raises:
            TunerError: it is not known.
        """
        dims = self.dims(number)
        if dims is None:
            raise self.refused(f"operand {number} has no shape that is known")
        return dims

    def axis(self, rank: int, usual: int) -> int:
        """Its attribute `axis`, counted from the front.

        Raises:
            TunerError: there is no such axis.
        """
        axis = int(self.attributes.get("axis", usual))
        if not rank:
            raise self.refused(f"there is no axis {axis} of a scalar")
        return self.axis_within(axis, rank)

    def axis_within(self, axis: int, rank: int) -> int:
        """An axis counted from the front; 0 of a scalar is all of it.

        Raises:
            TunerError: there is no such axis.
        """
        if not -rank <= axis < max(rank, 1):
            raise self.refused(f"its axis {axis} is none of {rank}")
        return axis % max(rank, 1)

    def rank(self, number: int = 0) -> int:
        """Number of axes of an operand.

        Raises:
            TunerError: it is not known.
        """
        value = self.operand(number)
        if value.dims is not None:
            return len(value.dims)
        rank = int(getattr(getattr(value.expression, "ty", None), "ndim", -1))
        if rank < 0:
            raise self.refused(f"the rank of its operand {number} is not known")
        return rank

    def dims(self, number: int) -> list[Size] | None:
        """The shape of an operand, if it is known, each size in its shortest form."""
        value = self.input(number)
        dims = None if value is None else value.dims
        return None if dims is None else [self.arithmetic.simple(d) for d in dims]

    def listed(self, attribute: str, operand: int) -> list[int] | None:
        """Numbers that are an attribute in older versions of an operator, an operand in newer."""
        if attribute in self.attributes:
            return [int(v) for v in self.attributes[attribute]]
        return self.numbers(operand)


Convert: TypeAlias = Callable[[Node, Any], Any]
"""Gives a node as an expression of Relax, or a list of these, one for each output, with a builder;
None where it is for TVM's importer, or for what ONNX says that it is made of."""


def require_shapes(converters: Mapping[str, Convert]) -> dict[str, Convert]:
    """Converters that leave operands without a known shape to TVM's importer."""

    def leaves_others(convert: Convert) -> Convert:
        def converted(node: Node, builder: Any) -> Any:
            known = all(value is None or value.dims is not None for value in node.inputs)
            return convert(node, builder) if known else None

        return converted

    return {operator: leaves_others(convert) for operator, convert in converters.items()}


def has_nothing(dims: Iterable[Size]) -> bool:
    """Whether a tensor of this shape has no element."""
    return any(as_int(size) == 0 for size in dims)


def describe_node(node: Any) -> str:
    """A node of a protobuf as a message calls it."""
    domain = "" if node.domain in STANDARD_DOMAINS else f"{node.domain}."
    return f"operator {domain}{node.op_type} (node {node.name or f'of output {node.output[0]}'})"


def empty_tensor(builder: Any, shape: Iterable[Size], dtype: str) -> Any:
    """A tensor without elements: memory alone. TVM can neither store a constant of none nor fuse a
    program that makes one."""
    from tvm import relax

    whole = shape_expression(shape)
    return builder.emit(relax.op.builtin.alloc_tensor(whole, dtype, 0))


def _materialise(sizes: Sizes, builder: Any) -> Any:
    from tvm import relax

    if not sizes.values.size:
        return empty_tensor(builder, sizes.values.shape, sizes.dtype)
    if sizes.numbers:
        array = np.array(sizes.values.tolist(), dtype=sizes.dtype)
        return relax.const(array.reshape(sizes.values.shape), sizes.dtype)
    made = builder.emit(relax.op.shape_to_tensor(shape_expression(sizes.flat())))
    if sizes.values.ndim != 1:
        made = builder.emit(relax.op.reshape(made, sizes.values.shape))
    return made if sizes.dtype == "int64" else builder.emit(relax.op.astype(made, sizes.dtype))
