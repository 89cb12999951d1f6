"""A layer of BERT's encoder, written out: attention under a mask of padding, layer norms after the
residual sums, GELU by the error function, and biases."""

from __future__ import annotations

import torch
from torch import nn


class Encoder(nn.Module):
    """Hidden states [batch, length, width] and a mask [batch, length], 1 where there is a token,
    to hidden states."""

    def __init__(self, width: int = 128, heads: int = 4, inner: int = 256) -> None:
        super().__init__()
        self.heads = heads
        self.query, self.key, self.value, self.out = (nn.Linear(width, width) for _ in range(4))
        self.first, self.last = nn.LayerNorm(width, eps=1e-12), nn.LayerNorm(width, eps=1e-12)
        self.widen, self.narrow = nn.Linear(width, inner), nn.Linear(inner, width)

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """[batch, length, width]."""
        batch, length, width = x.shape

        def split(projected: torch.Tensor) -> torch.Tensor:
            return projected.view(batch, length, self.heads, -1).transpose(1, 2)

        query, key, value = (split(part(x)) for part in (self.query, self.key, self.value))
        scores = query @ key.transpose(-1, -2) / (width // self.heads) ** 0.5
        padding = (1.0 - mask[:, None, None, :].to(x.dtype)) * torch.finfo(x.dtype).min
        mixed = torch.softmax(scores + padding, dim=-1) @ value
        attended = self.first(x + self.out(mixed.transpose(1, 2).reshape(batch, length, width)))
        widened = nn.functional.gelu(self.widen(attended))
        return self.last(attended + self.narrow(widened))
