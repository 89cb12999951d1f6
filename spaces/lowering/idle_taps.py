"""Convolutions without the weights that meet nothing but padding.

An atrous convolution whose dilation is as large as its feature map, as those of DeepLab's pyramid,
multiplies zeros with most of its weights: with dilation 12 on a map of 6 by 6, one of 3 by 3 is
left.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from spaces.ir import tvm_compat
from spaces.lowering.relax_rewrite import constant, with_weighted_calls

_LAYOUTS = {"relax.nn.conv1d": "NCW", "relax.nn.conv2d": "NCHW", "relax.nn.conv3d": "NCDHW"}


@dataclass(frozen=True, slots=True)
class Window:
    """A convolution along one dimension.

    Attributes:
        size: of the input.
        kernel: weights along it.
        before: padding; `after` is at the other end.
    """

    size: int
    kernel: int
    stride: int
    dilation: int
    before: int
    after: int

    @property
    def outputs(self) -> int:
        """The size of the output."""
        padded = self.size + self.before + self.after
        return (padded - self.dilation * (self.kernel - 1) - 1) // self.stride + 1

    def reaches(self, tap: int) -> bool:
        """Whether any output multiplies this weight with an element of the input."""
        first = tap * self.dilation - self.before
        steps = max(0, -(-(0 - first) // self.stride))  # to the first position that is not before
        return steps < self.outputs and first + steps * self.stride < self.size

    def busy(self) -> tuple[int, int]:
        """The first and last of the weights to keep. Between them all stay, and so do those whose
        loss would crop the input."""
        reached = [tap for tap in range(self.kernel) if self.reaches(tap)]
        if not reached:
            return 0, self.kernel - 1
        uncropped = -(-(self.size + self.before - self.outputs * self.stride) // self.dilation)
        return min(reached[0], self.before // self.dilation), max(reached[-1], uncropped)

    def narrowed(self) -> Window:
        """The same outputs from the weights that are kept."""
        first, last = self.busy()
        kernel, before = last - first + 1, self.before - first * self.dilation
        spanned = (self.outputs - 1) * self.stride + self.dilation * (kernel - 1) + 1
        after = max(0, spanned - self.size - before)
        return Window(self.size, kernel, self.stride, self.dilation, before, after)


def without_idle_taps(module: Any) -> Any:
    """A module whose convolutions with constant weights have none that only meets padding.

    Feature maps are channels-first and of known sizes; other convolutions stay as they are.
    """
    for name in _LAYOUTS:
        module = with_weighted_calls(module, name, _narrow)
    return module


def _narrow(call: Any, data: Any, weight: Any) -> Any:
    from tvm import relax

    windows = _windows(call, data, weight)
    if windows is None:
        return call
    kept = [w.narrowed() for w in windows]
    if all(after.kernel == before.kernel for after, before in zip(kept, windows, strict=True)):
        return call
    taps = tuple(slice(w.busy()[0], w.busy()[1] + 1) for w in windows)
    fewer = constant(np.ascontiguousarray(weight.value.numpy()[:, :, *taps]))
    made = getattr(relax.op.nn, tvm_compat.operator_name(call).rpartition(".")[2])
    attrs = call.attrs
    return made(
        data,
        fewer,
        strides=list(attrs.strides),
        padding=[w.before for w in kept] + [w.after for w in kept],
        dilation=list(attrs.dilation),
        groups=int(attrs.groups),
        data_layout=str(attrs.data_layout),
        kernel_layout=str(attrs.kernel_layout),
        out_dtype=attrs.out_dtype,
    )


def _windows(call: Any, data: Any, weight: Any) -> list[Window] | None:
    """The convolution along each spatial dimension; None where that is not known."""
    layout = _LAYOUTS[tvm_compat.operator_name(call)]
    attrs = call.attrs
    if str(attrs.data_layout) != layout or str(attrs.kernel_layout)[:2] != "OI":
        return None
    sizes = [tvm_compat.as_int(dim) for dim in (tvm_compat.tensor_dims(data) or [])[2:]]
    kernel = [tvm_compat.as_int(dim) for dim in (tvm_compat.tensor_dims(weight) or [])[2:]]
    padding = [int(p) for p in attrs.padding]
    rank = len(layout) - 2
    if len(sizes) != rank or None in sizes or len(padding) != 2 * rank:
        return None
    each: Sequence[Any] = (sizes, kernel, attrs.strides, attrs.dilation, padding, padding[rank:])
    return [
        Window(*map(int, numbers)) for numbers in zip(*(part[:rank] for part in each), strict=True)
    ]
