"""Warp shuffles, by CUDA's names and by PTX's."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tests.spaces.emulation.instructions.program import Array, Arrays, Program, kernel

_SECTION = "CUDA C++ Programming Guide 13.0, Warp Shuffle Functions"
_PTX = "PTX ISA 9.1, 9.7.9.6 shfl.sync"

Source = Callable[[Array, Array, int], Array]
"""The lane whose value a lane gets: from lane, operand and width; its own where it is outside."""


def _idx(lane: Array, operand: Array, width: int) -> Array:
    return np.asarray(lane // width * width + operand % width)


def _up(lane: Array, operand: Array, width: int) -> Array:
    return np.where(lane % width >= operand, lane - operand, lane)


def _down(lane: Array, operand: Array, width: int) -> Array:
    return np.where(lane % width + operand < width, lane + operand, lane)


def _xor(lane: Array, operand: Array, width: int) -> Array:
    """Lanes of earlier groups can be read, those of later ones cannot."""
    other = lane ^ operand
    return np.where(other < (lane // width + 1) * width, other, lane)


_FORMS: dict[str, tuple[str, Source]] = {
    "idx": ("__shfl_sync", _idx),
    "up": ("__shfl_up_sync", _up),
    "down": ("__shfl_down_sync", _down),
    "xor": ("__shfl_xor_sync", _xor),
}
_WIDTHS = (32, 16, 8, 4, 2, 1)
_TYPES: dict[str, type[np.generic]] = {
    "int": np.int32,
    "float": np.float32,
    "long long": np.int64,
    "double": np.float64,
    "__half": np.float16,
}


def _shuffle(form: str, kind: str) -> Program:
    """All widths; the operand is the same for all lanes, as compilers emit it, but for idx."""
    function, source = _FORMS[form]
    dtype = _TYPES[kind]
    calls = "\n".join(
        f"  out[{i} * 32 + lane] = {function}(0xffffffff, in[lane], "
        f"operand[{i} * 32 + lane], {width});"
        for i, width in enumerate(_WIDTHS)
    )

    def make(rng: np.random.Generator) -> Arrays:
        if form == "idx":
            operand = rng.integers(0, 32, (len(_WIDTHS), 32))
        else:
            operand = np.repeat(np.array([[5], [3], [2], [1], [1], [0]]), 32, axis=1)
            if form == "xor":
                operand[1], operand[2] = 17, 12
        return [rng.permutation(32).astype(dtype), operand.astype(np.int32)]

    def expect(given: Array, operand: Array) -> Arrays:
        lane = np.arange(32)
        rows = [
            given[source(lane, row, width)] for row, width in zip(operand, _WIDTHS, strict=True)
        ]
        return [np.stack(rows)]

    before = "#include <cuda_fp16.h>" if kind == "__half" else ""
    return Program(
        name=f"{function}.{kind.strip('_').replace(' ', '_')}",
        section=_SECTION,
        source=kernel(
            f"const {kind}* in, const int* operand, {kind}* out",
            f"  int lane = threadIdx.x;\n{calls}",
            before=before,
        ),
        make=make,
        expect=expect,
    )


def _part() -> Program:
    """A tree of sums in halves of a warp, each with a mask of its own."""
    body = """
  int lane = threadIdx.x;
  float v = in[lane];
  if (lane < 16) {
    for (int d = 8; d > 0; d /= 2) v += __shfl_down_sync(0x0000ffff, v, d, 32);
    if (lane == 0) out[0] = v;
  } else {
    for (int d = 8; d > 0; d /= 2) v += __shfl_xor_sync(0xffff0000, v, d, 32);
    if (lane == 31) out[1] = v;
  }"""
    return Program(
        name="__shfl_down_sync.part",
        section=_SECTION,
        source=kernel("const float* in, float* out", body),
        make=lambda rng: [rng.integers(-100, 101, 32).astype(np.float32)],
        expect=lambda given: [given.reshape(2, 16).sum(1)],
    )


def _ptx(mode: str, form: str) -> Program:
    """c holds 32 - width in bits 8 to 12, and the clamp: 31, but 0 for up."""
    source = _FORMS[form][1]
    clamp = 0 if form == "up" else 31
    rows = "\n".join(
        f"""  asm volatile("shfl.sync.{mode}.b32 %0, %1, %2, %3, %4;" : "=r"(out[{i} * 32 + lane])
    : "r"(in[lane]), "r"({operand}), "r"({(32 - width) << 8 | clamp}), "r"(0xffffffff));"""
        for i, (width, operand) in enumerate(_PTX_CASES)
    )

    def expect(given: Array) -> Arrays:
        lane = np.arange(32)
        return [np.stack([given[source(lane, np.full(32, op), width)] for width, op in _PTX_CASES])]

    return Program(
        name=f"shfl.sync.{mode}.b32",
        section=_PTX,
        source=kernel("const uint32_t* in, uint32_t* out", f"  int lane = threadIdx.x;\n{rows}"),
        make=lambda rng: [rng.integers(0, 1 << 32, 32, np.uint32)],
        expect=expect,
    )


_PTX_CASES = ((32, 9), (16, 5), (8, 3))


def programs() -> list[Program]:
    """All of them."""
    return [
        *(_shuffle(form, kind) for form in _FORMS for kind in ("int", "float")),
        *(_shuffle("down", kind) for kind in ("long long", "double", "__half")),
        _shuffle("xor", "__half"),
        _part(),
        *(_ptx(*names) for names in (("idx", "idx"), ("up", "up"), ("down", "down"))),
        _ptx("bfly", "xor"),
    ]
