"""nvcuda::wmma: fragments whose layout is nobody's business, loaded, multiplied, stored.

TVM declares arrays of fragments; so do these.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from tests.spaces.emulation.instructions.program import Array, Arrays, Program, filled, kernel
from tests.spaces.emulation.instructions.rounding import bfloat_bits

_SECTION = "CUDA C++ Programming Guide 13.0, Warp Matrix Functions (nvcuda::wmma)"


@dataclass(frozen=True, slots=True)
class _Wmma:
    """One form: kinds of A and B, of the accumulator, and the layouts of A, B and D."""

    shape: tuple[int, int, int]
    kind: str = "half"
    accumulator: str = "float"
    layouts: tuple[str, str, str] = ("row", "col", "row")

    @property
    def name(self) -> str:
        """As others call it."""
        m, n, k = self.shape
        kind = self.kind.replace("__nv_bfloat16", "bf16").replace(" ", "_")
        return f"wmma.m{m}n{n}k{k}.{kind}.{self.accumulator}.{'.'.join(self.layouts)}"


_FORMS = [
    *(_Wmma((16, 16, 16), layouts=(a, b, "row")) for a in ("row", "col") for b in ("row", "col")),
    _Wmma((16, 16, 16), layouts=("row", "col", "col")),
    _Wmma((16, 16, 16), accumulator="half"),
    _Wmma((16, 16, 16), accumulator="half", layouts=("col", "row", "col")),
    _Wmma((8, 32, 16), layouts=("row", "row", "row")),
    _Wmma((8, 32, 16), layouts=("col", "col", "col")),
    _Wmma((32, 8, 16), layouts=("row", "row", "row")),
    _Wmma((32, 8, 16), layouts=("col", "col", "col")),
    _Wmma((16, 16, 16), kind="__nv_bfloat16"),
    _Wmma((16, 16, 16), kind="signed char", accumulator="int"),
    _Wmma((16, 16, 16), kind="unsigned char", accumulator="int", layouts=("col", "row", "row")),
]

_PADDING = 16
"""Elements that each row is longer in memory: strides are not sizes."""

_ENCODE: dict[str, Callable[[Array], Array]] = {
    "half": lambda v: v.astype(np.float16),
    "__nv_bfloat16": lambda v: bfloat_bits(v.astype(np.float32)),
    "signed char": lambda v: v.astype(np.int8),
    "unsigned char": lambda v: np.abs(v).astype(np.uint8),
}
_ACCUMULATORS = {"float": np.float32, "half": np.float16, "int": np.int32}


def _stored(matrix: Array, layout: str) -> Array:
    """The matrix in memory, with its stride; what lies between is NaN or -1."""
    lines = matrix if layout == "row" else matrix.T
    memory = filled(np.zeros((lines.shape[0], lines.shape[1] + _PADDING), matrix.dtype))
    memory[:, : lines.shape[1]] = lines
    return memory


def _matrix(memory: Array, layout: str) -> Array:
    lines = memory[:, :-_PADDING]
    return lines if layout == "row" else lines.T


def _program(form: _Wmma) -> Program:
    m, n, k = form.shape
    encode, accumulator = _ENCODE[form.kind], _ACCUMULATORS[form.accumulator]
    of_a, of_b, of_d = form.layouts

    def make(rng: np.random.Generator) -> Arrays:
        a, b = (encode(rng.integers(-8, 9, shape)) for shape in ((m, k), (k, n)))
        c = rng.integers(-900, 901, (m, n)).astype(accumulator)
        return [_stored(a, of_a), _stored(b, of_b), _stored(c, of_d)]

    def expect(a: Array, b: Array, c: Array) -> Arrays:
        left, right = _matrix(a, of_a), _matrix(b, of_b)
        if form.kind == "__nv_bfloat16":
            left, right = ((x.astype(np.uint32) << 16).view(np.float32) for x in (left, right))
        product = left.astype(np.float64) @ right.astype(np.float64)
        added = product + _matrix(c, of_d)
        return [_stored(x.astype(accumulator), of_d) for x in (added, product)]

    return Program(
        name=form.name,
        section=_SECTION,
        source=_source(form),
        make=make,
        expect=expect,
    )


def _source(form: _Wmma) -> str:
    m, n, k = form.shape
    of_a, of_b, of_d = form.layouts
    lda = (k if of_a == "row" else m) + _PADDING
    ldb = (n if of_b == "row" else k) + _PADDING
    ldd = (n if of_d == "row" else m) + _PADDING
    w, size, acc = "nvcuda::wmma::", f"{m}, {n}, {k}", form.accumulator
    zero = {"float": "0.0f", "half": "__float2half_rn(0.0f)", "int": "0"}[acc]
    body = f"""
  {w}fragment<{w}matrix_a, {size}, {form.kind}, {w}{of_a}_major> fa[1];
  {w}fragment<{w}matrix_b, {size}, {form.kind}, {w}{of_b}_major> fb[1];
  {w}fragment<{w}accumulator, {size}, {acc}> fc[2];
  {w}load_matrix_sync(fa[0], a, {lda});
  {w}load_matrix_sync(fb[0], b, {ldb});
  {w}load_matrix_sync(fc[0], c, {ldd}, {w}mem_{of_d}_major);
  {w}fill_fragment(fc[1], {zero});
  {w}mma_sync(fc[0], fa[0], fb[0], fc[0]);
  {w}mma_sync(fc[1], fa[0], fb[0], fc[1]);
  {w}store_matrix_sync(added, fc[0], {ldd}, {w}mem_{of_d}_major);
  {w}store_matrix_sync(product, fc[1], {ldd}, {w}mem_{of_d}_major);"""
    return kernel(
        f"const {form.kind}* a, const {form.kind}* b, const {acc}* c, {acc}* added, {acc}* product",
        body,
        before="#include <cuda_fp16.h>\n#include <cuda_bf16.h>\n#include <mma.h>",
    )


def programs() -> list[Program]:
    """All of them."""
    return [_program(form) for form in _FORMS]
