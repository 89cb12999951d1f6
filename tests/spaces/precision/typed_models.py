"""Small models of ONNX and PyTorch, and what they compute in other types."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx

from spaces.codegen.executable import LoadedModel
from spaces.frontends.memory_model import model_in_memory
from spaces.frontends.model import Model
from spaces.import_check.plain_code import compile_untuned
from spaces.ir import tvm_compat
from spaces.lowering.lower import lower
from spaces.precision.convert import in_precision
from tuner.precision import Precision
from tuner.request.model_spec import ModelSpec

Array = npt.NDArray[Any]
LLVM = '{"kind":"llvm","num-cores":1}'
_NORM = ("scale", "shift", "mean", "var")
VOCABULARY, WIDTH, INNER = 41, 64, 96


def normal(*shape: int, seed: int = 0) -> Array:
    values = np.random.default_rng([seed, *shape]).standard_normal(shape)
    return (values / np.sqrt(shape[0])).astype("float32")


def parsed(text: str, **weights: Array) -> Any:
    proto = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17]> {text}')
    tensors = [onnx.numpy_helper.from_array(array, name) for name, array in weights.items()]
    proto.graph.initializer.extend(tensors)
    return proto


def imported(proto: Any, dims: Mapping[str, Sequence[int]] | None = None) -> Model:
    listed = tuple((name, tuple(sizes)) for name, sizes in (dims or {}).items())
    return model_in_memory(proto, ModelSpec("small", dims=listed))


def dense(rows: str = "6") -> Any:
    """Two products, something between and after them."""
    return parsed(
        f"dense (float[{rows}, {WIDTH}] x) => (float[{rows}, 40] y) {{"
        " a = MatMul(x, up)  b = Relu(a)  c = MatMul(b, down)  d = Add(c, bias)"
        " y = Softmax <axis = 1> (d) }",
        up=normal(WIDTH, INNER),
        down=normal(INNER, 40),
        bias=normal(40),
    )


def images() -> Any:
    """A convolution whose batch norm is folded, another one, and a product."""
    rng = np.random.default_rng(3)
    return parsed(
        "images (float[1, 3, 8, 8] x) => (float[1, 10] y) {"
        " a = Conv <pads = [1, 1, 1, 1]> (x, w0)"
        " b = BatchNormalization (a, scale, shift, mean, var)  c = Relu(b)"
        " d = Conv <pads = [1, 1, 1, 1], strides = [2, 2]> (c, w1)  e = Relu(d)"
        " f = Flatten(e)  y = MatMul(f, head) }",
        w0=normal(8, 3, 3, 3),
        w1=normal(12, 8, 3, 3),
        head=normal(192, 10),
        **{name: rng.random(8).astype("float32") + 0.5 for name in _NORM},
    )


def language(last: str = "head") -> Any:
    """Tokens go in; logits come out, or as many numbers as a token has."""
    width = VOCABULARY if last == "head" else WIDTH
    weights = {"up": normal(WIDTH, INNER), "down": normal(INNER, WIDTH)}
    return parsed(
        f"language (int64[B, T] ids) => (float[B, T, {width}] logits) {{"
        " x = Gather(table, ids)  a = MatMul(x, up)  b = Relu(a)  c = MatMul(b, down)"
        f" d = Add(c, x)  logits = MatMul(d, {last}) }}",
        table=normal(VOCABULARY, WIDTH),
        **weights,
        **{last: normal(WIDTH, width)},
    )


def outputs(model: Model, *feeds: Array, precision: Precision | None = None) -> list[Array]:
    """What a model gives in other types, compiled without schedules."""
    module = in_precision(model, precision).module
    return LoadedModel(compile_untuned(module, LLVM), list(feeds)).outputs()


def constants(model: Model, precision: Precision | None) -> list[Array]:
    """The weights that a lowered model holds: its constants of more than a hundred elements."""
    from tvm.relax.analysis import post_order_visit

    found: list[Array] = []
    main = lower(in_precision(model, precision).module, LLVM)["main"]

    def look(expression: Any) -> None:
        if tvm_compat.is_constant(expression):
            found.append(expression.value.numpy())

    post_order_visit(main, look)
    return [array for array in found if array.size > 100]


def calls(model: Model, precision: Precision, name: str) -> list[Any]:
    """A graph's calls of an operator, before it becomes programs."""
    from tvm.relax.analysis import post_order_visit

    found: list[Any] = []
    post_order_visit(
        in_precision(model, precision).module["main"],
        lambda e: found.append(e) if tvm_compat.operator_name(e) == f"relax.{name}" else None,
    )
    return found
