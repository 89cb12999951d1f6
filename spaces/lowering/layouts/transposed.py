"""Transposed convolutions as convolutions, whose outputs are then woven together.

A transposed convolution of stride s makes an output position o of the weights k with `(o + before -
k) mod s = 0` alone. The positions of one phase, `(o + before) mod s`, are a convolution of stride 1
with these weights; all s phases read the same input. They are computed as one convolution with s
times as many channels (the sub-pixel convolution of Shi et al., CVPR'16), or as one for each phase
where phases have unlike numbers of weights, as those of a kernel of 3 with stride 2: there the one
convolution would multiply with many zeros. The other way, a convolution over an input with s - 1
zeros between its elements, multiplies s times as often along each dimension.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from math import prod
from typing import Any

import numpy as np

from spaces.ir import tvm_compat
from spaces.lowering.relax_rewrite import constant, with_weighted_calls

_MOST_ZEROS = 1.25
"""Products of one convolution for each that is needed; with more, each phase has one of its own."""
_LAYOUTS = {
    "relax.nn.conv1d_transpose": ("NCW", "IOW"),
    "relax.nn.conv2d_transpose": ("NCHW", "IOHW"),
    "relax.nn.conv3d_transpose": ("NCDHW", "IODHW"),
}


@dataclass(frozen=True, slots=True)
class Phases:
    """A transposed convolution along one dimension, as convolutions of stride 1.

    Attributes:
        kernel: weights along it.
        before: padding, which shortens the output; `after` is at the other end, less what is added
            to the output there.
    """

    kernel: int
    stride: int
    before: int
    after: int

    @property
    def taps(self) -> int:
        """Weights of each of the convolutions; where there are fewer, the rest is zero."""
        return -(-self.kernel // self.stride)

    @property
    def skipped(self) -> int:
        """Positions at the start of all convolutions that padding cuts off."""
        return self.before // self.stride

    @property
    def padding(self) -> tuple[int, int]:
        """Of the convolutions; below zero where this form does not exist."""
        return self.taps - 1 - self.skipped, (self.kernel - 1 - self.after) // self.stride

    @property
    def first(self) -> int:
        """The first position of the woven outputs that is kept."""
        return self.before - self.skipped * self.stride

    @property
    def beyond(self) -> int:
        """Positions at the end of the woven outputs that are not kept."""
        woven = (sum(self.padding) - self.taps + 2) * self.stride
        return woven - self.kernel + self.before + self.after - self.first

    def unused(self, phase: int) -> int:
        """Places at the start of one phase's convolution whose weights are zero; at most as many as
        padding can be left out for."""
        zeros = self.taps - -(-(self.kernel - phase) // self.stride)
        return max(0, min(zeros, self.taps - 1, self.padding[0]))

    def tap(self, phase: int, place: int) -> int | None:
        """The weight at a place of the convolution of one phase; None where it is zero."""
        found = (self.taps - 1 - place) * self.stride + phase
        return found if found < self.kernel else None


def without_transposed(module: Any) -> Any:
    """A module whose transposed convolutions with constant weights are convolutions.

    Their inputs are channels-first, of known and unknown sizes alike; dilated ones stay as they
    are.
    """
    for name in _LAYOUTS:
        module = with_weighted_calls(module, name, _rewritten)
    return module


def _rewritten(call: Any, data: Any, weight: Any) -> Any:
    phases = _phases(call, weight)
    return call if phases is None else _as_convolution(call, data, weight, phases)


def _phases(call: Any, weight: Any) -> list[Phases] | None:
    """Along each spatial dimension; None where it must stay as it is."""
    attrs, name = call.attrs, tvm_compat.operator_name(call)
    if (str(attrs.data_layout), str(attrs.kernel_layout)) != _LAYOUTS[name]:
        return None
    if any(int(d) != 1 for d in attrs.dilation):
        return None
    kernel = weight.value.numpy().shape[2:]
    padding, more = [int(p) for p in attrs.padding], [int(p) for p in attrs.output_padding]
    ends = zip(padding, padding[len(kernel) :], more, strict=False)
    found = [
        Phases(size, int(stride), before, after - added)
        for size, stride, (before, after, added) in zip(kernel, attrs.strides, ends, strict=True)
    ]
    return found if all(min(p.padding) >= 0 for p in found) else None


def _as_convolution(call: Any, data: Any, weight: Any, phases: Sequence[Phases]) -> Any:
    from tvm import relax

    groups = int(call.attrs.groups)
    weights = phase_weights(weight.value.numpy(), groups, phases)
    if groups > 1 or weights.size <= _MOST_ZEROS * weight.value.numpy().size:
        convolved = _convolve(call, data, weights, phases, [0] * len(phases))
    else:
        parts = np.split(weights, prod(p.stride for p in phases))
        each = np.ndindex(*(p.stride for p in phases))
        pairs = zip(each, parts, strict=True)
        convolved = relax.op.concat([_phase(call, data, w, phases, n) for n, w in pairs], 1)
    if all(p.stride == 1 for p in phases):
        return convolved
    return _woven(convolved, data, call, groups, phases)


def _phase(
    call: Any, data: Any, weights: Any, phases: Sequence[Phases], number: Sequence[int]
) -> Any:
    """The convolution of one phase along each dimension, without the weights that are zero."""
    unused = [p.unused(phase) for p, phase in zip(phases, number, strict=True)]
    taken = weights[:, :, *(slice(first, None) for first in unused)]
    return _convolve(call, data, taken, phases, unused)


def _convolve(
    call: Any, data: Any, weights: Any, phases: Sequence[Phases], unused: Sequence[int]
) -> Any:
    """A convolution of stride 1.

    Args:
        unused: weights at the start of each dimension that were left out.
    """
    from tvm import relax

    name = tvm_compat.operator_name(call).rpartition(".")[2].removesuffix("_transpose")
    before = [p.padding[0] - first for p, first in zip(phases, unused, strict=True)]
    return getattr(relax.op.nn, name)(
        data,
        constant(np.ascontiguousarray(weights)),
        padding=before + [p.padding[1] for p in phases],
        groups=int(call.attrs.groups),
        out_dtype=call.attrs.out_dtype,
    )


def phase_weights(weight: Any, groups: int, phases: Sequence[Phases]) -> Any:
    """Weights of the convolution.

    Args:
        weight: (inputs, outputs of a group, *kernel).

    Returns:
        (outputs, inputs of a group, *taps), outputs in the order group, phases, output of a group.
    """
    inputs, outputs = weight.shape[0] // groups, weight.shape[1]
    strides, taps = [p.stride for p in phases], [p.taps for p in phases]
    grouped = weight.reshape(groups, inputs, outputs, *weight.shape[2:]).swapaxes(1, 2)
    made = np.zeros((groups, *strides, outputs, inputs, *taps), weight.dtype)
    for phase in np.ndindex(*strides):
        for place in np.ndindex(*taps):
            found = (p.tap(r, m) for p, r, m in zip(phases, phase, place, strict=True))
            source = [k for k in found if k is not None]
            if len(source) == len(phases):
                made[:, *phase, :, :, *place] = grouped[:, :, :, *source]
    return made.reshape(-1, inputs, *taps)


def _woven(convolved: Any, data: Any, call: Any, groups: int, phases: Sequence[Phases]) -> Any:
    """The convolutions' outputs in the order of the transposed convolution's, cut to its size.

    Channels are last while they are woven: so are those of a convolution on a CPU.
    """
    from tvm.relax import op

    rank = len(phases)
    batch, _, *sizes = tvm_compat.tensor_dims(data) or []
    _, outputs, *kept = tvm_compat.tensor_dims(call) or []
    channels = tvm_compat.as_int(outputs) or 0
    found = [size + sum(p.padding) - p.taps + 1 for size, p in zip(sizes, phases, strict=True)]
    last = op.permute_dims(convolved, [0, *range(2, rank + 2), 1])
    strides = [p.stride for p in phases]
    apart = op.reshape(last, [batch, *found, groups, *strides, channels // groups])
    pairs = chain.from_iterable((1 + i, rank + 2 + i) for i in range(rank))
    woven = op.permute_dims(apart, [0, *pairs, rank + 1, 2 * rank + 2])
    whole = [size * p.stride for size, p in zip(found, phases, strict=True)]
    together = op.reshape(woven, [batch, *whole, outputs])
    begins = [p.first for p in phases]
    if any(p.first or p.beyond for p in phases):
        ends = [first + size for first, size in zip(begins, kept, strict=True)]
        axes = list(range(1, rank + 1))
        together = op.strided_slice(together, axes, begins, ends, assume_inbound=True)
    return op.permute_dims(together, [0, rank + 1, *range(1, rank + 1)])
