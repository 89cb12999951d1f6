"""Programs that kernels are judged by, and the judge: what a runner's child asks of outputs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from tuner.request.target_text import Arithmetic

Array = np.ndarray[Any, Any]
Inputs = list[Array]
M, N = 24, 40
STEP = 0.32
CPU = '{"kind":"llvm","num-cores":1}'


@dataclass(frozen=True)
class Held:
    """An output, as the runner's child holds it."""

    array: Array

    def numpy(self) -> Array:
        return self.array


def tensor(name: str, *shape: int, dtype: str = "float32") -> Any:
    from tvm import te

    return te.placeholder(shape, dtype, name=name)


def product(dtype: str, accumulated: str, stored: str, k: int, right: str = "") -> list[Any]:
    """A product of matrices that is accumulated in one type and stored in another."""
    from tvm import te

    a, b = tensor("a", M, k, dtype=dtype), tensor("b", k, N, dtype=right or dtype)
    step = te.reduce_axis((0, k), "k")
    out = te.compute(
        (M, N),
        lambda i, j: te.sum(a[i, step].astype(accumulated) * b[step, j].astype(accumulated), step),
        name="product",
    )
    narrowed = te.compute((M, N), lambda i, j: out[i, j].astype(stored))
    return [a, b, out if stored == accumulated else narrowed]


def one(make: Callable[[Any], Any], *shape: int, dtype: str = "float32") -> list[Any]:
    a = tensor("a", *shape, dtype=dtype)
    return [a, make(a)]


def convolution_relu6() -> list[Any]:
    from tvm import topi

    a, w = tensor("a", 1, 4, 9, 9), tensor("w", 8, 4, 3, 3)
    return [a, w, topi.clip(topi.nn.conv2d_nchw(a, w, 1, 1, 1), 0.0, 6.0)]


def quantised(x: Any, scale: float = 0.037) -> Any:
    """By a scale that no binary fraction equals."""
    from tvm import te, tirx

    def element(*at: Any) -> Any:
        level = tirx.round(x(*at) / tirx.const(scale, "float32")) + tirx.const(11.0, "float32")
        clipped = tirx.Max(
            tirx.Min(level, tirx.const(255.0, "float32")), tirx.const(0.0, "float32")
        )
        return clipped.astype("uint8")

    return te.compute(x.shape, element, name="quantised")


def quantised_product() -> list[Any]:
    """Bytes to floats, multiplied, to bytes: a layer of a quantised network.

    By scales of which one sum in 64 is to be rounded right between two steps, and what its terms
    were rounded to decides.
    """
    from tvm import te

    a, b = tensor("a", M, 64, dtype="uint8"), tensor("b", 64, N, dtype="int8")
    x = te.compute(a.shape, lambda i, j: (a[i, j].astype("float32") - 128.0) * 0.1)
    w = te.compute(b.shape, lambda i, j: b[i, j].astype("float32") * 0.05)
    step = te.reduce_axis((0, 64), "k")
    y = te.compute((M, N), lambda i, j: te.sum(x[i, step] * w[step, j], step), name="product")
    return [a, b, quantised(y, STEP)]


def dequantised_product() -> list[Any]:
    """The same, and to floats again."""
    from tvm import te

    *inputs, q = quantised_product()
    out = te.compute(q.shape, lambda i, j: (q[i, j].astype("float32") - 11.0) * STEP)
    return [*inputs, out]


def masked_attention() -> list[Any]:
    """Scores of which each row sees what is before it, minus infinity elsewhere."""
    from tvm import te, tirx

    a = tensor("a", 4, 16, 16)
    low = tirx.const(float("-inf"), "float32")
    return [a, te.compute(a.shape, lambda h, i, j: tirx.Select(j <= i, a[h, i, j] * 0.25, low))]


def divided() -> list[Any]:
    """A quotient by what all lanes share, rounded."""
    from tvm import te, tirx

    a, scale = tensor("a", 64, 64), tensor("scale", 64)
    return [a, scale, te.compute(a.shape, lambda i, j: tirx.round(a[i, j] / scale[i]), name="out")]


def _topi(name: str, *given: Any) -> Callable[[Any], Any]:
    def make(a: Any) -> Any:
        from tvm import topi

        function: Any = topi
        for part in name.split("."):
            function = getattr(function, part)
        return function(a, *given)

    return make


def _gelu(a: Any) -> Any:
    from tvm import te, tirx

    def element(i: Any, j: Any) -> Any:
        x, one = a[i, j], tirx.const(1.0, a.dtype)
        return x * tirx.const(0.5, a.dtype) * (one + tirx.erf(x * tirx.const(0.70710678, a.dtype)))

    return te.compute(a.shape, element)


def layer_norm() -> list[Any]:
    from tvm import topi

    a, g, b = tensor("a", 16, 96), tensor("g", 96), tensor("b", 96)
    return [a, g, b, topi.nn.layer_norm(a, g, b, [1], 1e-5)]


def _mean(a: Any) -> Any:
    from tvm import te, tirx, topi

    total, count = topi.sum(a, 1), int(a.shape[1])
    return te.compute(total.shape, lambda i: total[i] / tirx.const(float(count), a.dtype))


def wrapping() -> list[Any]:
    from tvm import te

    a, b = tensor("a", 33, 17, dtype="int8"), tensor("b", 33, 17, dtype="int8")
    return [a, b, te.compute(a.shape, lambda i, j: a[i, j] + b[i, j])]


PROGRAMS: dict[str, Callable[[], list[Any]]] = {
    "f32": lambda: product("float32", "float32", "float32", 256),
    "f16": lambda: product("float16", "float16", "float16", 128),
    "bf16": lambda: product("bfloat16", "bfloat16", "bfloat16", 256),
    "bf16-f32": lambda: product("bfloat16", "float32", "bfloat16", 256),
    "f16-f32": lambda: product("float16", "float32", "float16", 256),
    "bytes": lambda: product("uint8", "int32", "int32", 200, right="int8"),
    "relu6": convolution_relu6,
    "quantise": lambda: one(quantised, 32, 48),
    "layer": quantised_product,
    "dequantise": dequantised_product,
    "attention": masked_attention,
    "divided": divided,
    "softmax": lambda: one(_topi("nn.softmax"), 16, 64),
    "softmax-bf16": lambda: one(_topi("nn.softmax"), 16, 64, dtype="bfloat16"),
    "log": lambda: one(_topi("log"), 8, 64),
    "exp-f16": lambda: one(_topi("exp"), 8, 64, dtype="float16"),
    "mean-f16": lambda: one(_mean, 32, 147, dtype="float16"),
    "sum-bf16": lambda: one(_topi("sum", 1), 32, 147, dtype="bfloat16"),
    "transpose": lambda: one(_topi("transpose"), 20, 20, dtype="float16"),
    "relu-bf16": lambda: one(_topi("nn.relu"), 20, 21, dtype="bfloat16"),
    "widen": lambda: one(_topi("cast", "float32"), 20, 21, dtype="uint8"),
    "abs-i8": lambda: one(_topi("abs"), 20, 21, dtype="int8"),
    "sum-u8": lambda: one(_topi("sum", 1), 20, 21, dtype="uint8"),
    "gelu": lambda: one(_gelu, 32, 48),
    "norm": layer_norm,
    "wrap": wrapping,
    "row-max": lambda: one(_topi("max", 1), 33, 17, dtype="int8"),
    "inverse": lambda: one(_topi("rsqrt"), 8, 64),
}


@cache
def module_of(name: str) -> Any:
    import tvm
    from tvm import te

    return tvm.IRModule({"main": te.create_prim_func(PROGRAMS[name]())})


@cache
def known(name: str, fast_math: bool = False) -> Any:
    from spaces.check.reference import reference

    return reference(module_of(name), name, arithmetic=Arithmetic(fast_math=fast_math))


def judged(name: str, compute: Callable[..., Array], *, fast_math: bool = False) -> list[str]:
    """What the gate says of outputs, for each draw; empty where they pass.

    Args:
        compute: an output, of the inputs and, where it takes it, what is wanted.
        fast_math: whether kernels are compiled with it.
    """
    from spaces.devices.checker import how_wrong

    said = []
    for case in known(name, fast_math).cases:
        last = len(case.arguments) - 1
        inputs = [case.fresh(i) for i in range(last)]
        with np.errstate(all="ignore"):
            got = compute(*inputs, case.outputs[last].copy())
        assert got.shape == case.outputs[last].shape
        got = np.ascontiguousarray(got.astype(case.outputs[last].dtype))
        said.append(how_wrong(case, [Held(a) for a in (*inputs, got)]))
    return said
