"""The programs whose spaces are recorded: what models are made of, odd sizes included."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def _gemm(m: int, n: int, k: int) -> Any:
    from tvm import te, topi

    a = te.placeholder((m, k), name="A")
    b = te.placeholder((k, n), name="B")
    return te.create_prim_func([a, b, topi.nn.matmul(a, b)])


def _batch_matmul(batch: int, m: int, n: int, k: int, *, transposed: bool = False) -> Any:
    from tvm import te, topi

    a = te.placeholder((batch, m, k), name="A")
    b = te.placeholder((batch, n, k) if transposed else (batch, k, n), name="B")
    out = topi.nn.batch_matmul(a, b, transpose_a=False, transpose_b=transposed)
    return te.create_prim_func([a, b, out])


def _conv_nchw(channels: int, filters: int, size: int, kernel: int, stride: int = 1) -> Any:
    """With padding that keeps the size at a stride of 1, and a ReLU."""
    from tvm import te, topi

    data = te.placeholder((1, channels, size, size), name="data")
    weight = te.placeholder((filters, channels, kernel, kernel), name="weight")
    convolved = topi.nn.conv2d_nchw(data, weight, stride, kernel // 2, 1)
    return te.create_prim_func([data, weight, topi.nn.relu(convolved)])


def _conv_nhwc(channels: int, filters: int, size: int, kernel: int) -> Any:
    from tvm import te, topi

    data = te.placeholder((1, size, size, channels), name="data")
    weight = te.placeholder((kernel, kernel, channels, filters), name="weight")
    convolved = topi.nn.conv2d_nhwc(data, weight, 1, kernel // 2, 1)
    return te.create_prim_func([data, weight, topi.nn.relu(convolved)])


def _depthwise(channels: int, size: int, kernel: int = 3) -> Any:
    from tvm import te, topi

    data = te.placeholder((1, channels, size, size), name="data")
    weight = te.placeholder((channels, 1, kernel, kernel), name="weight")
    convolved = topi.nn.depthwise_conv2d_nchw(data, weight, 1, kernel // 2, 1)
    return te.create_prim_func([data, weight, topi.nn.relu(convolved)])


def _softmax(rows: int, columns: int) -> Any:
    from tvm import te, topi

    data = te.placeholder((rows, columns), name="data")
    return te.create_prim_func([data, topi.nn.softmax(data, axis=1)])


def _layer_norm(rows: int, columns: int) -> Any:
    from tvm import te, topi

    data = te.placeholder((rows, columns), name="data")
    gamma = te.placeholder((columns,), name="gamma")
    beta = te.placeholder((columns,), name="beta")
    out = topi.nn.layer_norm(data, gamma, beta, axis=[1], epsilon=1e-5)
    return te.create_prim_func([data, gamma, beta, out])


PROGRAMS: dict[str, Callable[[], Any]] = {
    "gemm-512": lambda: _gemm(512, 512, 512),
    "gemm-odd": lambda: _gemm(203, 509, 331),
    "batch-matmul": lambda: _batch_matmul(12, 128, 128, 64),
    "conv-nchw": lambda: _conv_nchw(64, 64, 56, 3),
    "conv-nchw-deep": lambda: _conv_nchw(128, 256, 14, 3),
    "conv-nhwc": lambda: _conv_nhwc(64, 128, 28, 3),
    "depthwise": lambda: _depthwise(144, 56),
    "softmax": lambda: _softmax(1536, 384),
    "layer-norm": lambda: _layer_norm(512, 768),
}
"""By the name of their recordings."""

HELD_OUT: dict[str, Callable[[], Any]] = {
    "held-gemm": lambda: _gemm(333, 517, 1000),
    "held-conv": lambda: _conv_nchw(96, 96, 28, 3, stride=2),
    "held-depthwise": lambda: _depthwise(144, 28, 5),
    "held-batch": lambda: _batch_matmul(12, 96, 80, 64, transposed=True),
}
"""Those that policies are judged by: no constant is fitted on them."""
