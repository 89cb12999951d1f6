"""Tensor programs to compare on, by name, with integer arguments that all have defaults.

Each function can be tuned as it is: `tuner tune benchmarks/workloads.py:gemm --arg m=512`.
Everything is float32 but `gemm_int8`. `constant=1` marks the weights as known ahead, as they are
in a model: then both tuners may pack them once, outside what is timed.
"""

from __future__ import annotations

from typing import Any

OPERATORS = (
    *("C1D", "C2D", "C3D", "DEP", "DIL", "GMM", "GRP", "T2D", "CAP", "NRM", "SFM", "CBR", "TBG"),
    "C2D_WIN_NHWC",
)
"""Of `te_workload.CONFIGS`, in TVM's wheel."""


def gemm(m: int = 512, n: int = 512, k: int = 512, constant: int = 0) -> Any:
    """C[m,n] = A[m,k] B[k,n]."""
    from tvm import te, topi

    a = te.placeholder((m, k), name="A")
    b = te.placeholder((k, n), name="B")
    return _program([a, b, topi.nn.matmul(a, b)], constant)


def batch_gemm(
    b: int = 12,
    m: int = 128,
    n: int = 128,
    k: int = 64,
    transpose_a: int = 0,
    transpose_b: int = 0,
) -> Any:
    """`b` products at once; a transposed operand is stored [k,m] or [n,k]."""
    from tvm import te, topi

    left = te.placeholder((b, k, m) if transpose_a else (b, m, k), name="A")
    right = te.placeholder((b, n, k) if transpose_b else (b, k, n), name="B")
    product = topi.nn.batch_matmul(
        left, right, transpose_a=bool(transpose_a), transpose_b=bool(transpose_b)
    )
    return _program([left, right, product])


def dense(m: int = 128, n: int = 768, k: int = 768, constant: int = 0) -> Any:
    """C[m,n] = A[m,k] W[n,k]^T."""
    from tvm import te, topi

    data = te.placeholder((m, k), name="data")
    weight = te.placeholder((n, k), name="weight")
    return _program([data, weight, topi.nn.dense(data, weight)], constant)


def gemm_int8(m: int = 512, n: int = 512, k: int = 512, constant: int = 0) -> Any:
    """int32 C[m,n] = uint8 A[m,k] times int8 B[k,n]."""
    from tvm import te

    a = te.placeholder((m, k), dtype="uint8", name="A")
    b = te.placeholder((k, n), dtype="int8", name="B")
    r = te.reduce_axis((0, k), name="k")
    c = te.compute(
        (m, n),
        lambda i, j: te.sum(a[i, r].astype("int32") * b[r, j].astype("int32"), axis=r),
        name="C",
    )
    return _program([a, b, c], constant)


def conv2d(
    n: int = 1,
    c: int = 64,
    h: int = 56,
    w: int = 56,
    f: int = 64,
    kernel: int = 3,
    stride: int = 1,
    pad: int = 1,
    constant: int = 0,
) -> Any:
    """Convolution in NCHW, then a ReLU."""
    from tvm import te, topi

    data = te.placeholder((n, c, h, w), name="data")
    weight = te.placeholder((f, c, kernel, kernel), name="weight")
    out = topi.nn.relu(topi.nn.conv2d_nchw(data, weight, stride, pad, 1))
    return _program([data, weight, out], constant)


def conv2d_nhwc(
    n: int = 1,
    c: int = 64,
    h: int = 56,
    w: int = 56,
    f: int = 64,
    kernel: int = 3,
    stride: int = 1,
    pad: int = 1,
    constant: int = 0,
) -> Any:
    """Convolution in NHWC, then a ReLU."""
    from tvm import te, topi

    data = te.placeholder((n, h, w, c), name="data")
    weight = te.placeholder((kernel, kernel, c, f), name="weight")
    out = topi.nn.relu(topi.nn.conv2d_nhwc(data, weight, stride, pad, 1))
    return _program([data, weight, out], constant)


def pointwise(
    n: int = 1, c: int = 256, h: int = 28, w: int = 28, f: int = 256, constant: int = 0
) -> Any:
    """1x1 convolution in NCHW, then a ReLU."""
    return conv2d(n, c, h, w, f, kernel=1, stride=1, pad=0, constant=constant)


def depthwise(
    n: int = 1,
    c: int = 144,
    h: int = 56,
    w: int = 56,
    kernel: int = 3,
    stride: int = 1,
    pad: int = 1,
    constant: int = 0,
) -> Any:
    """Depthwise convolution in NCHW, then a ReLU."""
    from tvm import te, topi

    data = te.placeholder((n, c, h, w), name="data")
    weight = te.placeholder((c, 1, kernel, kernel), name="weight")
    out = topi.nn.relu(topi.nn.depthwise_conv2d_nchw(data, weight, stride, pad, 1))
    return _program([data, weight, out], constant)


def grouped(
    n: int = 1,
    c: int = 256,
    h: int = 28,
    w: int = 28,
    f: int = 256,
    groups: int = 32,
    kernel: int = 3,
    stride: int = 1,
    pad: int = 1,
    constant: int = 0,
) -> Any:
    """Grouped convolution in NCHW, then a ReLU."""
    from tvm import te, topi

    data = te.placeholder((n, c, h, w), name="data")
    weight = te.placeholder((f, c // groups, kernel, kernel), name="weight")
    out = topi.nn.relu(topi.nn.group_conv2d_nchw(data, weight, stride, pad, 1, groups))
    return _program([data, weight, out], constant)


def conv2d_transpose(
    n: int = 1,
    c: int = 128,
    h: int = 28,
    w: int = 28,
    f: int = 64,
    kernel: int = 4,
    stride: int = 2,
    pad: int = 1,
    constant: int = 0,
) -> Any:
    """Transposed convolution in NCHW."""
    from tvm import te, topi

    data = te.placeholder((n, c, h, w), name="data")
    weight = te.placeholder((c, f, kernel, kernel), name="weight")
    strides, padding = (stride, stride), (pad, pad)
    out = topi.nn.conv2d_transpose_nchw(data, weight, strides, padding, "float32", (0, 0))
    return _program([data, weight, out], constant)


def softmax(rows: int = 1536, cols: int = 128) -> Any:
    """Over each row."""
    from tvm import te, topi

    data = te.placeholder((rows, cols), name="data")
    return _program([data, topi.nn.softmax(data, axis=1)])


def layer_norm(rows: int = 512, cols: int = 768) -> Any:
    """Of each row, with scale and shift."""
    from tvm import te, topi

    data = te.placeholder((rows, cols), name="data")
    gamma = te.placeholder((cols,), name="gamma")
    beta = te.placeholder((cols,), name="beta")
    return _program([data, gamma, beta, topi.nn.layer_norm(data, gamma, beta, [1], 1e-5)])


def reduce_sum(rows: int = 2048, cols: int = 1024) -> Any:
    """Of each row."""
    from tvm import te, topi

    data = te.placeholder((rows, cols), name="data")
    return _program([data, topi.sum(data, axis=1)])


def reduce_columns(rows: int = 2048, cols: int = 1024) -> Any:
    """Sum of each column."""
    from tvm import te, topi

    data = te.placeholder((rows, cols), name="data")
    return _program([data, topi.sum(data, axis=0)])


def max_pool(
    n: int = 1,
    c: int = 64,
    h: int = 112,
    w: int = 112,
    kernel: int = 3,
    stride: int = 2,
    pad: int = 1,
) -> Any:
    """Largest of each window, in NCHW."""
    from tvm import te, topi

    data = te.placeholder((n, c, h, w), name="data")
    window, steps, padding = (kernel, kernel), (stride, stride), (pad,) * 4
    out = topi.nn.pool2d(data, window, steps, (1, 1), padding, "max", layout="NCHW")
    return _program([data, out])


def elementwise(rows: int = 2048, cols: int = 1024) -> Any:
    """relu(a * b + c) - a, as a chain of four operators."""
    from tvm import te, topi

    a, b, c = (te.placeholder((rows, cols), name=name) for name in "abc")
    out = topi.subtract(topi.nn.relu(topi.add(topi.multiply(a, b), c)), a)
    return _program([a, b, c, out])


def operator(number: int = 1, case: int = 2) -> Any:
    """One of the operators that TVM's own tuners are compared on, by its place in `OPERATORS`.

    Args:
        case: which of its shapes.
    """
    from tvm.s_tir.meta_schedule.testing.te_workload import create_te_workload

    return create_te_workload(OPERATORS[number], case)


def _program(tensors: list[Any], constant: int = 0) -> Any:
    """The PrimFunc of inputs and an output; with `constant`, the second input is known ahead."""
    from tvm import te

    function = te.create_prim_func(tensors).with_attr("global_symbol", "main")
    return function.with_attr("layout_free_buffers", [1]) if constant else function
