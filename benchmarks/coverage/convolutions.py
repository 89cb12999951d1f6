"""Networks of one convolution with a bias and a ReLU: those that are not plain.

Sizes are those of networks that have such: DeepLab's pyramid, ResNeXt, RegNet, ShuffleNet,
ConvNeXt, U-Nets, DCGAN, vocoders, networks of time series.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from benchmarks.coverage.made import Made, Make


def _one(kind: str, inputs: int, outputs: int, size: int, kernel: int, **settings: Any) -> Made:
    import torch
    from torch import nn

    network = nn.Sequential(getattr(nn, kind)(inputs, outputs, kernel, **settings), nn.ReLU())
    shape = (1, inputs, *[size] * (1 if "1d" in kind else 2))
    return Made(network.eval(), {"x": torch.randn(shape)})


_PLAIN, _UP = "Conv2d", "ConvTranspose2d"
CONVOLUTIONS: dict[str, Make] = {
    "dilated by 2, 256 channels, 28": partial(_one, _PLAIN, 256, 256, 28, 3, padding=2, dilation=2),
    "dilated by 4, 128 channels, 33": partial(_one, _PLAIN, 128, 128, 33, 3, padding=4, dilation=4),
    "dilated by 12, 320 to 128, 33": partial(
        _one, _PLAIN, 320, 128, 33, 3, padding=12, dilation=12
    ),
    "dilated by 8 over time, 64 channels, 1000": partial(
        _one, "Conv1d", 64, 64, 1000, 3, padding=8, dilation=8
    ),
    "32 groups of 4, 56": partial(_one, _PLAIN, 128, 128, 56, 3, padding=1, groups=32),
    "32 groups of 32, 7": partial(_one, _PLAIN, 1024, 1024, 7, 3, padding=1, groups=32),
    "8 groups of 16, stride 2, 28": partial(
        _one, _PLAIN, 128, 128, 28, 3, padding=1, stride=2, groups=8
    ),
    "4 groups of 60, 1 by 1, 28": partial(_one, _PLAIN, 240, 240, 28, 1, groups=4),
    "depthwise 3 by 3, 96 channels, 56": partial(_one, _PLAIN, 96, 96, 56, 3, padding=1, groups=96),
    "depthwise 7 by 7, 192 channels, 28": partial(
        _one, _PLAIN, 192, 192, 28, 7, padding=3, groups=192
    ),
    "depthwise 5 by 5, stride 2, 72 channels, 56": partial(
        _one, _PLAIN, 72, 72, 56, 5, padding=2, stride=2, groups=72
    ),
    "transposed 2 by 2, 128 to 64, 28": partial(_one, _UP, 128, 64, 28, 2, stride=2),
    "transposed 3 by 3, 64 to 32, 56": partial(
        _one, _UP, 64, 32, 56, 3, stride=2, padding=1, output_padding=1
    ),
    "transposed 4 by 4, 256 to 128, 16": partial(_one, _UP, 256, 128, 16, 4, stride=2, padding=1),
    "transposed by 8 over time, 256 to 128, 100": partial(
        _one, "ConvTranspose1d", 256, 128, 100, 16, stride=8, padding=4
    ),
}
"""By name."""
