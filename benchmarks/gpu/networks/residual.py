"""ResNet-18 as torchvision has it, written out; its widths can be less."""

from __future__ import annotations

import torch
from torch import nn


def _convolve(inside: int, outside: int, size: int, stride: int) -> nn.Sequential:
    """A convolution that keeps the image's size but for the stride, and its batch norm."""
    convolution = nn.Conv2d(inside, outside, size, stride, size // 2, bias=False)
    norm = nn.BatchNorm2d(outside)
    nn.init.uniform_(norm.weight, 0.5, 1.0)
    nn.init.uniform_(norm.running_var, 0.5, 2.0)
    nn.init.normal_(norm.running_mean, std=0.1)
    nn.init.normal_(norm.bias, std=0.1)
    return nn.Sequential(convolution, norm)


class Block(nn.Module):
    """Two convolutions of 3x3, and what went in added to them."""

    def __init__(self, inside: int, outside: int, stride: int) -> None:
        super().__init__()
        self.first = _convolve(inside, outside, 3, stride)
        self.second = _convolve(outside, outside, 3, 1)
        straight = stride == 1 and inside == outside
        self.short = nn.Identity() if straight else _convolve(inside, outside, 1, stride)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[batch, outside, height / stride, width / stride]."""
        inner = self.second(torch.relu(self.first(x)))
        return torch.relu(inner + self.short(x))


class ResNet18(nn.Module):
    """Images [batch, 3, height, width] to logits."""

    def __init__(self, width: int = 64, classes: int = 1000) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            _convolve(3, width, 7, 2), nn.ReLU(), nn.MaxPool2d(3, stride=2, padding=1)
        )
        blocks, inside = [], width
        for stage in range(4):
            outside = width << stage
            for stride in (1 if stage == 0 else 2, 1):
                blocks.append(Block(inside, outside, stride))
                inside = outside
        self.blocks = nn.Sequential(*blocks)
        self.head = nn.Linear(inside, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[batch, classes]."""
        return self.head(self.blocks(self.stem(x)).mean((2, 3)))
