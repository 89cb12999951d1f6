"""The bounds of outputs, from what a program computes beside them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from spaces.check.draws import Argument, Array
from spaces.check.error_bounds import with_bounds
from spaces.check.errors.fast_math import largest_share
from spaces.check.errors.tf32 import largest_roughness
from spaces.ir import tvm_compat
from spaces.ir.element_types import eps_of, is_float, limits_of
from tuner.request.target_text import EXACT, Arithmetic

_AT_ONCE = 1 << 20
"""Elements whose bounds are computed at once: that takes many times their own memory."""


class OutputBounds:
    """A program that computes what bounds follow from, beside its outputs.

    Args:
        args: the program's parameters.
        arithmetic: of kernels, see `spaces.check.errors.fast_math`, `spaces.check.errors.tf32`.
        follow: whether errors are followed through the program; if not, bounds are coarse, see
            `spaces.check.reference`.

    Attributes:
        function: the program, with what it computes beside its outputs as further parameters.

    Raises:
        Unbounded: the program does something whose errors are not known.
    """

    def __init__(
        self,
        function: Any,
        args: Sequence[Argument],
        *,
        arithmetic: Arithmetic = EXACT,
        follow: bool = True,
    ) -> None:
        written = [i for i, arg in enumerate(args) if arg.written]
        self._args = args
        self._rtol = relative_tolerance(function, written, arithmetic=arithmetic)
        self._bounded = with_bounds(function, written, arithmetic=arithmetic) if follow else None
        self.function = function if self._bounded is None else self._bounded.function

    @property
    def beside(self) -> tuple[int, ...]:
        """For each further parameter, the position of the output that it belongs to."""
        shadows = {} if self._bounded is None else self._bounded.shadows
        return tuple(i for i, shadow in shadows.items() for _ in shadow.tensors)

    def before(self, contents: Sequence[Array]) -> list[Array]:
        """The further parameters before a run, those of exact contents."""
        if self._bounded is None:
            return []
        made = []
        for i, shadow in self._bounded.shadows.items():
            for tensor in shadow.tensors:
                if tensor is shadow.exact:
                    made.append(contents[i].astype(self._bounded.wide))
                else:
                    made.append(np.zeros(contents[i].shape, self._bounded.wide))
        return made

    def of(self, outputs: Mapping[int, Array], beside: Sequence[Array]) -> dict[int, Array | None]:
        """The bounds of outputs, or of some elements of them; None where they must be equal.

        Args:
            beside: the further parameters of these outputs after a run, at the same elements.
        """
        if self._bounded is None:
            return {i: self._coarse(output) for i, output in outputs.items()}
        bounds: dict[int, Array | None] = dict.fromkeys(outputs)
        rest = list(beside)
        for i, shadow in self._bounded.shadows.items():
            if i not in outputs:
                continue
            count = len(shadow.tensors)
            parts, rest = [array.reshape(-1) for array in rest[:count]], rest[count:]
            flat = outputs[i].reshape(-1)
            bound = np.empty(flat.shape, self._bounded.wide)
            for start in range(0, flat.size, _AT_ONCE):
                some = slice(start, start + _AT_ONCE)
                with np.errstate(all="ignore"):
                    total = flat[some].astype(self._bounded.wide)
                    told = shadow.bound(total, [part[some] for part in parts], np.sqrt, np.abs)
                told[np.isnan(told)] = np.inf
                bound[some] = told + _least(self._args[i].dtype)
            bounds[i] = bound.reshape(outputs[i].shape)
        return bounds

    def _coarse(self, output: Array) -> Array | None:
        if output.dtype.kind in "iub":
            return None
        size = np.abs(output.astype(np.float64))
        size[~np.isfinite(size)] = 0.0
        mean = float(np.mean(np.square(size))) if size.size else 0.0
        bound: Array = self._rtol * (size + math.sqrt(mean))
        return bound


def relative_tolerance(
    function: Any, written: Sequence[int], *, arithmetic: Arithmetic = EXACT
) -> float:
    """The relative tolerance of a program with unknown errors, see `spaces.check.reference`.

    Args:
        written: positions of its outputs.
        arithmetic: of its kernels.
    """
    terms, dtypes = 0, [tvm_compat.param_dtype(function.params[i]) for i in written]
    for block in tvm_compat.sblocks(function):
        extents = [
            tvm_compat.as_int(axis.dom.extent) or 1
            for axis in block.iter_vars
            if int(axis.iter_type) == tvm_compat.REDUCED
        ]
        terms += math.prod(extents) if extents else 0
        dtypes += [tvm_compat.param_dtype(buffer) for buffer in block.alloc_buffers]
    eps = max((eps_of(dtype) for dtype in dtypes if is_float(dtype)), default=0.0)
    found = eps * (32 + 8 * math.sqrt(terms))
    if arithmetic.fast_math:
        found += largest_share(function)
    return found + largest_roughness(function, terms) if arithmetic.tf32 else found


def _least(dtype: str) -> float:
    """The error of numbers that are too small for a float type, whatever their value."""
    if not is_float(dtype):
        return 0.0
    limits = limits_of(dtype)
    # Formulas for vectors give no subnormals in float32, see `spaces.passes.arithmetic.fast_math`.
    flushed = limits.smallest_normal if dtype == "float32" else limits.smallest_subnormal
    return 2 * float(flushed)
