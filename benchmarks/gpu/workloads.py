"""The programs that are compared on a device, each as a tensor program and as a call of torch."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from benchmarks.gpu.attention import causal_attention
from tuner.task import Instance, Task

_OPEN = "M"
_DRAFTS = 200
"""Tried at most: some are invalid."""


@dataclass(frozen=True, slots=True)
class Workload:
    """One program.

    Attributes:
        kind: of `KINDS`; names the program and the call.
        sizes: of its dimensions, see the kinds.
        rows: sizes of the first dimension where that is open; else empty, and it is in `sizes`.
    """

    name: str
    kind: str
    sizes: tuple[int, ...]
    dtype: str = "float32"
    rows: tuple[int, ...] = ()

    def task(self, target: str) -> Task:
        """The program as a task."""
        from spaces.lowering.extract_tasks import task_of

        shapes = tuple((self.instance(rows), 1.0) for rows in self.rows)
        return replace(task_of(self._program(), target, name=self.kind), shapes=shapes)

    def draw(self, target: str, count: int) -> Iterator[Any]:
        """Scheduled modules of so many points of the product's own space, in a fixed order."""
        from spaces.design_space.realize import realize
        from spaces.design_space.task_space import TaskSpace
        from spaces.ir.schedules import InvalidCandidate
        from tuner.candidate import Draft

        task = self.task(target)
        space, found = TaskSpace(task), 0
        for seed in range(_DRAFTS):
            if found == count:
                return
            with suppress(InvalidCandidate):
                point = space.realize_draft(Draft(task.key, seed, 1 + seed, None))
                yield realize(task, point.candidate).mod
                found += 1

    @property
    def largest(self) -> Instance:
        """The shape on which a kernel for open sizes is searched; empty for known sizes."""
        return self.instance(self.rows[-1]) if self.rows else ()

    @property
    def least(self) -> Instance:
        """The shape with the fewest rows; empty for known sizes."""
        return self.instance(self.rows[0]) if self.rows else ()

    def instance(self, rows: int) -> Instance:
        """The shape with so many rows, where their number is open."""
        return ((_OPEN, rows),)

    def _program(self) -> Any:
        from tvm import te, topi

        if self.kind == "product":
            return _product(self)
        if self.kind == "int4":
            return _of_codes(self)
        if self.kind == "batched":
            return _batched(self)
        if self.kind == "convolution":
            batch, channels, size, filters, width = self.sizes
            x = te.placeholder((batch, channels, size, size), self.dtype, name="x")
            w = te.placeholder((filters, channels, width, width), self.dtype, name="w")
            return te.create_prim_func([x, w, topi.nn.conv2d_nchw(x, w, 1, width // 2, 1)])
        if self.kind == "attention":
            heads, length, width = self.sizes
            return causal_attention(heads, length, width, self.dtype)
        x = te.placeholder(self.sizes, self.dtype, name="x")
        if self.kind == "softmax":
            return te.create_prim_func([x, topi.nn.softmax(x, axis=1)])
        if self.kind == "gelu":
            return te.create_prim_func([x, _gelu(x)])
        scale, shift = (te.placeholder(self.sizes[1:], self.dtype, name=n) for n in ("s", "t"))
        return te.create_prim_func([x, scale, shift, topi.nn.layer_norm(x, scale, shift, [1])])


def _product(workload: Workload) -> Any:
    """Summed in float32, as torch does, and rounded to the type of the operands."""
    from tvm import te, tirx

    *rows, n, k = (tirx.const(size, "int64") for size in workload.sizes)
    m = rows[0] if rows else te.var(_OPEN, "int64")
    a = te.placeholder((m, k), workload.dtype, name="a")
    b = te.placeholder((k, n), workload.dtype, name="b")
    return _write_rounded(workload.dtype, [a, b], _sum_products(a, b))


def _sum_products(a: Any, b: Any) -> Any:
    """The product of two matrices in float32."""
    from tvm import te, tirx

    (m, k), (_, n) = a.shape, b.shape
    along = te.reduce_axis((tirx.const(0, "int64"), k), "k")

    def term(i: Any, j: Any) -> Any:
        return te.sum(a[i, along].astype("float32") * b[along, j].astype("float32"), along)

    return te.compute((m, n), term, name="c")


def _of_codes(workload: Workload) -> Any:
    """The right operand is codes of 4 bits with a scale for each 32 terms, as of `MatMulNBits`;
    summed as `_product` sums."""
    from tvm import te, tirx

    from spaces.lowering.weights.codes import Codes

    block, middle = 32, 8.0
    m, n, k = (tirx.const(size, "int64") for size in workload.sizes)
    a = te.placeholder((m, k), workload.dtype, name="a")
    codes = te.placeholder((n, k // 2), "uint8", name="codes")
    scales = te.placeholder((n, k // block), workload.dtype, name="scales")
    packed = Codes(codes, 4)

    def weight(at: Any, j: Any) -> Any:
        scale = scales[j, at // block].astype("float32")
        return ((packed.read(codes, (j, at)) - middle) * scale).astype(workload.dtype)

    sums = _sum_products(a, te.compute((k, n), weight, name="b"))
    return _write_rounded(workload.dtype, [a, codes, scales], sums)


def _batched(workload: Workload) -> Any:
    """The right operand's rows are its columns; summed as `_product` sums."""
    from tvm import te, topi

    b, m, n, k = workload.sizes
    left = te.placeholder((b, m, k), workload.dtype, name="a")
    right = te.placeholder((b, n, k), workload.dtype, name="b")
    sums = topi.nn.batch_matmul(left, right, out_dtype="float32")
    return _write_rounded(workload.dtype, [left, right], sums)


def _write_rounded(dtype: str, operands: list[Any], sums: Any) -> Any:
    from tvm import te

    if dtype == "float32":
        return te.create_prim_func([*operands, sums])
    rounded = te.compute(sums.shape, lambda *at: sums[at].astype(dtype), name="d")
    return te.create_prim_func([*operands, rounded])


def _gelu(x: Any) -> Any:
    """By tanh, as language models have it."""
    from tvm import te, tirx

    def value(*at: Any) -> Any:
        v = x(*at)
        inner = tirx.const(0.7978845608, "float32") * (v + 0.044715 * v * v * v)
        return 0.5 * v * (1.0 + tirx.tanh(inner))

    return te.compute(x.shape, value, name="y")


ON_A_DEVICE = (
    Workload("product f32 1024", "product", (1024, 1024, 1024)),
    Workload("product f32 2048", "product", (2048, 2048, 2048)),
    Workload("product f32 1000x333x517", "product", (1000, 333, 517)),
    Workload("product f16 1024", "product", (1024, 1024, 1024), "float16"),
    Workload("product f16 2048", "product", (2048, 2048, 2048), "float16"),
    Workload("product bf16 2048", "product", (2048, 2048, 2048), "bfloat16"),
    Workload("product f16 4096", "product", (4096, 4096, 4096), "float16"),
    Workload("decode f16 1x4096x4096", "product", (1, 4096, 4096), "float16"),
    Workload("decode f16 16x4096x4096", "product", (16, 4096, 4096), "float16"),
    Workload("decode int4 1x4096x4096", "int4", (1, 4096, 4096), "float16"),
    Workload("product int4 4096", "int4", (4096, 4096, 4096), "float16"),
    Workload("open rows f32 ?x1024x1024", "product", (1024, 1024), rows=(16, 128, 1024)),
    Workload("batched f32 NT 48x512x512x64", "batched", (48, 512, 512, 64)),
    Workload("batched f16 NT 48x512x512x64", "batched", (48, 512, 512, 64), "float16"),
    Workload("convolution f32 3x3", "convolution", (8, 64, 56, 64, 3)),
    Workload("attention f16 32x2048x128", "attention", (32, 2048, 128), "float16"),
    Workload("softmax 4096x4096", "softmax", (4096, 4096)),
    Workload("layer norm 4096x1024", "layer norm", (4096, 1024)),
    Workload("gelu 4096x4096", "gelu", (4096, 4096)),
)

ON_THE_EMULATED_DEVICE = (
    Workload("product f32 100x72x40", "product", (100, 72, 40)),
    Workload("product f16 80x96x64", "product", (80, 96, 64), "float16"),
    Workload("product bf16 48x64x32", "product", (48, 64, 32), "bfloat16"),
    Workload("decode f16 1x96x64", "product", (1, 96, 64), "float16"),
    Workload("decode int4 1x96x64", "int4", (1, 96, 64), "float16"),
    Workload("open rows f32 ?x72x40", "product", (72, 40), rows=(3, 33, 100)),
    Workload("batched f32 NT 3x40x24x32", "batched", (3, 40, 24, 32)),
    Workload("convolution f32 3x3 1x4x10x8", "convolution", (1, 4, 10, 8, 3)),
    Workload("attention f16 2x40x32", "attention", (2, 40, 32), "float16"),
    Workload("softmax 20x72", "softmax", (20, 72)),
    Workload("layer norm 20x72", "layer norm", (20, 72)),
    Workload("gelu 20x72", "gelu", (20, 72)),
)
"""Small ones, for a device whose times are a model's."""
