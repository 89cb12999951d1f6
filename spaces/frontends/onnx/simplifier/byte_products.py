"""Products of numbers that stand for bytes, as products of integers.

One whose result becomes bytes again is `QLinearConv` or `QLinearMatMul`, as onnxruntime makes it
of the same nodes. Any other is `ConvInteger` or `MatMulInteger`, whose sums are scaled. Sums are
exact, so a byte may be one step off where the sum of floats was rounded to the other side of a tie.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from spaces.frontends.onnx.simplifier.known_tensors import Array, KnownTensors
from spaces.frontends.onnx.simplifier.linear_steps import BYTES, Steps
from spaces.frontends.onnx.simplifier.padding import attributes_of

Find = Callable[[str], Steps | None]
"""What a value stands for, by its name; None where it does not stand for integers."""
_MOST_SUM = (1 << 31) - 1
_MOST_TERM = 255 * 255
_COARSEST = 0.125
"""A bias is rounded to steps of the sums. They may be so many steps of the result at most."""
_WIDE, _FLOAT = "int32", 1


@dataclass(frozen=True, slots=True)
class Rounded:
    """How a result becomes bytes.

    Attributes:
        nodes: those that do so, in order.
        least, most: what the bytes are cut off at.
    """

    steps: Steps
    nodes: tuple[Any, ...]
    least: int
    most: int

    @property
    def is_cut(self) -> bool:
        """Whether it is cut off at more than what bytes hold."""
        limits = np.iinfo(self.steps.dtype)
        return self.least > limits.min or self.most < limits.max


@dataclass(frozen=True, slots=True)
class Product:
    """A product of bytes.

    Attributes:
        data, weight: what its operands stand for.
        codes: the second one, with its outputs along the first axis in a convolution, along the
            last one in others; None where it is not known.
        bias: the name of what is added; empty for nothing.
    """

    node: Any
    data: Steps
    weight: Steps
    codes: Array | None
    bias: str

    @property
    def convolves(self) -> bool:
        return bool(self.node.op_type == "Conv")

    @property
    def rounds(self) -> bool:
        """Whether one operator of integers can give bytes."""
        return self.convolves or not self.bias

    @property
    def unit(self) -> Array:
        """What a step of its sums stands for: float64, one number, or one for each output."""
        return np.asarray(self.data.scale.astype("float64") * self.weight.scale).reshape(-1)

    @property
    def outputs(self) -> int:
        """Outputs of the weight; 1 where it is not known."""
        return 1 if self.codes is None else self.codes.shape[0 if self.convolves else -1]

    @property
    def largest_sum(self) -> int:
        """What no sum exceeds, 0 where the weight is not known."""
        return 0 if self.codes is None else self.codes.size // self.outputs * _MOST_TERM


def read_product(node: Any, find: Find, known: KnownTensors) -> Product | None:
    """A product whose operands are bytes, the first of one scale; None of any other node."""
    if node.op_type not in ("Conv", "Gemm", "MatMul"):
        return None
    data, weight = find(node.input[0]), find(node.input[1])
    if data is None or weight is None or not {data.dtype, weight.dtype} <= {*BYTES}:
        return None
    given, codes = attributes_of(node), known.array(weight.data)
    axis, turned = -1, False
    if node.op_type == "Conv":
        if codes is None or codes.ndim not in (3, 4, 5):
            return None
        axis = 0
        if given.get("auto_pad", b"NOTSET") not in (b"NOTSET", b"VALID"):
            return None
    elif node.op_type == "Gemm":
        if codes is None or given.get("transA", 0) or given.get("alpha", 1.0) != 1:
            return None
        if given.get("beta", 1.0) != 1 and len(node.input) > 2:
            return None
        turned = bool(given.get("transB", 0))
    if data.scale.size != 1 or not _is_along(weight, codes, 0 if turned else axis):
        return None
    bias = node.input[2] if len(node.input) > 2 else ""
    return Product(node, data, weight, codes.T if turned and codes is not None else codes, bias)


def _is_along(weight: Steps, codes: Array | None, axis: int) -> bool:
    """Whether a weight has one scale, or one for each place of an axis."""
    if weight.scale.size == 1:
        return True
    if codes is None or (axis == -1 and codes.ndim != 2):
        return False
    along = weight.axis % codes.ndim == axis % codes.ndim
    return along and weight.scale.size == codes.shape[axis]


def write_product(
    product: Product, rounded: Rounded | None, find: Find, known: KnownTensors
) -> list[Any] | None:
    """The nodes in the place of a product, and of those that round its result; None where 32 bits
    may be too few for its sums, or its bias cannot be one of integers."""
    if product.largest_sum > _MOST_SUM:
        return None
    writer = _Writer(product, known)
    if rounded is None:
        return writer.write_scaled()
    bias = _round_bias(product, float(rounded.steps.scale.item()), find, known)
    return None if bias is None else writer.write_rounded(rounded, bias)


def _round_bias(product: Product, step: float, find: Find, known: KnownTensors) -> Array | None:
    """A bias in steps of the sums, which may be empty; None where it cannot be that."""
    if not product.bias:
        return np.zeros(0, _WIDE)
    steps, real = find(product.bias), known.array(product.bias)
    if steps is not None:
        codes = known.array(steps.data)
        if codes is None:
            return None
        real = (codes.astype("float64") - steps.zero) * steps.scale
    if real is None or real.dtype.kind != "f" or real.shape != (product.outputs,):
        return None
    exact = real / product.unit
    rounded = np.rint(exact)
    off = np.abs(exact - rounded) > 1e-6 * np.abs(exact)
    if np.any(off & (product.unit > _COARSEST * step)):
        return None
    if not np.all(np.abs(rounded) <= _MOST_SUM - product.largest_sum):
        return None
    return rounded.astype(_WIDE)


class _Writer:
    def __init__(self, product: Product, known: KnownTensors) -> None:
        self._product = product
        self._known = known
        self._name = product.node.output[0]
        self._nodes: list[Any] = []

    def write_rounded(self, rounded: Rounded, bias: Array) -> list[Any]:
        """With a result of bytes.

        Args:
            bias: empty without one.
        """
        steps, last = rounded.steps, rounded.nodes[-1].output[0]
        operator = "QLinearConv" if self._product.convolves else "QLinearMatMul"
        operands = []
        for side, name in zip(
            (self._product.data, self._product.weight), self._bytes(), strict=True
        ):
            operands += [name, side.scale_name, self._zero(side)]
        operands += [steps.scale_name, self._zero(steps)]
        if bias.size:
            operands.append(self._constant("bias", bias))
        self._emit(operator, operands, f"{last}/whole" if rounded.is_cut else last, said=True)
        if rounded.is_cut:
            for number, (by, limit) in enumerate((("Max", rounded.least), ("Min", rounded.most))):
                bound = self._constant(by, np.array(limit, steps.dtype))
                name = last if number else f"{last}/{by}"
                self._emit(by, [self._nodes[-1].output[0], bound], name)
        return self._nodes

    def write_scaled(self) -> list[Any]:
        """With a result of floats."""
        product = self._product
        zeros = [self._zero(side) for side in (product.data, product.weight)]
        operator = "ConvInteger" if product.convolves else "MatMulInteger"
        kernel = 0 if product.codes is None else product.codes.ndim - 2
        shape = (-1, *[1] * kernel) if product.convolves else (-1,)
        unit = product.unit.astype("float32").reshape(shape)
        self._emit(operator, [*self._bytes(), *zeros], f"{self._name}/sums", said=True)
        self._emit("Cast", [f"{self._name}/sums"], f"{self._name}/wide", to=_FLOAT)
        scaled = f"{self._name}/scaled" if product.bias else self._name
        self._emit("Mul", [f"{self._name}/wide", self._constant("unit", unit)], scaled)
        if product.bias:
            bias = product.bias
            if product.convolves:
                places = self._constant("places", np.array([1, -1, *[1] * kernel]))
                self._emit("Reshape", [bias, places], f"{self._name}/bias")
                bias = f"{self._name}/bias"
            self._emit("Add", [scaled, bias], self._name)
        return self._nodes

    def _bytes(self) -> tuple[str, str]:
        product = self._product
        right = product.weight.data
        if product.node.op_type == "Gemm" and product.codes is not None:
            right = self._constant("weight", product.codes)
        return product.data.data, right

    def _zero(self, steps: Steps) -> str:
        return steps.zero_name or self._constant(f"{steps.data}/zero", steps.zero)

    def _constant(self, name: str, array: Array) -> str:
        return self._known.new(f"{self._name}/{name}", array)

    def _emit(
        self, operator: str, operands: list[str], result: str, *, said: bool = False, **more: Any
    ) -> None:
        """
        Args:
            said: whether it is a convolution as the product says.
        """
        import onnx

        node = onnx.helper.make_node(
            operator, operands, [result], name=self._product.node.name, **more
        )
        if said and self._product.convolves:
            node.attribute.extend(self._product.node.attribute)
        self._nodes.append(node)
