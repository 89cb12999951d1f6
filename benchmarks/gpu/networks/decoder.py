"""A decoder as Llama's and Qwen3's are, written out: RMS norms, rotary positions, heads that share
keys, SwiGLU, and keys and values of what was there before as inputs and outputs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import nn


@dataclass(frozen=True, slots=True)
class Config:
    """Sizes of a decoder.

    Attributes:
        norms_heads: whether queries and keys are normed head by head, as Qwen3's.
    """

    layers: int = 2
    width: int = 128
    heads: int = 4
    shared_heads: int = 2
    head_width: int = 32
    inner: int = 256
    vocabulary: int = 160
    norms_heads: bool = False


class RmsNorm(nn.Module):
    """Over the last axis, in float32."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(0.5 + torch.rand(width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[..., width] in x's type."""
        wide = x.to(torch.float32)
        scale = torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)
        return self.weight * (wide * scale).to(x.dtype)


def rotate(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """Heads [batch, heads, length, head width] turned by their positions."""
    half = x.shape[-1] // 2
    turned = torch.cat((-x[..., half:], x[..., :half]), dim=-1)
    return x * cos + turned * sin


class Attention(nn.Module):
    """Of `length` new tokens to `past` known ones and those of them that are not later."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        wide, narrow = (n * config.head_width for n in (config.heads, config.shared_heads))
        self.query = nn.Linear(config.width, wide, bias=False)
        self.key = nn.Linear(config.width, narrow, bias=False)
        self.value = nn.Linear(config.width, narrow, bias=False)
        self.out = nn.Linear(wide, config.width, bias=False)
        norms = (config.head_width,) * 2 if config.norms_heads else ()
        self.norms = nn.ModuleList(RmsNorm(width) for width in norms)

    def forward(
        self, x: torch.Tensor, turns: Any, hidden: torch.Tensor, keys: Any, values: Any
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """[1, length, width], and keys and values with those of the new tokens behind them."""
        batch, length, _ = x.shape
        config = self.config

        def split(projected: torch.Tensor, heads: int) -> torch.Tensor:
            return projected.view(batch, length, heads, config.head_width)

        query = split(self.query(x), config.heads)
        key = split(self.key(x), config.shared_heads)
        if config.norms_heads:
            query, key = self.norms[0](query), self.norms[1](key)
        query, key = (rotate(part.transpose(1, 2), *turns) for part in (query, key))
        keys = torch.cat((keys, key), dim=2)
        values = torch.cat((values, split(self.value(x), config.shared_heads).transpose(1, 2)), 2)
        group = config.heads // config.shared_heads
        each_keys, each_values = (part.repeat_interleave(group, 1) for part in (keys, values))
        scores = torch.matmul(query, each_keys.transpose(2, 3)) * config.head_width**-0.5
        scores = scores.masked_fill(hidden, float("-inf"))
        chances = torch.softmax(scores.to(torch.float32), dim=-1).to(x.dtype)
        mixed = torch.matmul(chances, each_values).transpose(1, 2)
        return self.out(mixed.reshape(batch, length, -1)), keys, values


class Layer(nn.Module):
    """Attention and SwiGLU, each behind a norm and added to what went in."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.attention = Attention(config)
        self.before, self.between = RmsNorm(config.width), RmsNorm(config.width)
        self.gate = nn.Linear(config.width, config.inner, bias=False)
        self.up = nn.Linear(config.width, config.inner, bias=False)
        self.down = nn.Linear(config.inner, config.width, bias=False)

    def forward(
        self, x: torch.Tensor, turns: Any, hidden: torch.Tensor, keys: Any, values: Any
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """As `Attention.forward`."""
        mixed, keys, values = self.attention(self.before(x), turns, hidden, keys, values)
        x = x + mixed
        normed = self.between(x)
        gated = torch.nn.functional.silu(self.gate(normed)) * self.up(normed)
        return x + self.down(gated), keys, values


class Decoder(nn.Module):
    """Tokens [1, length] and a cache (keys and values of each layer) to logits and the cache."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        self.embedding = nn.Embedding(config.vocabulary, config.width)
        self.layers = nn.ModuleList(Layer(config) for _ in range(config.layers))
        self.norm = RmsNorm(config.width)
        self.head = nn.Linear(config.width, config.vocabulary, bias=False)
        steps = torch.arange(0, config.head_width, 2, dtype=torch.float32) / config.head_width
        self.register_buffer("frequencies", 1.0 / 10000.0**steps, persistent=False)

    def forward(self, tokens: torch.Tensor, *cache: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Logits [1, length, vocabulary], then keys and values of each layer."""
        x = self.embedding(tokens)
        length, past = tokens.shape[1], cache[0].shape[2]
        positions = torch.arange(past, past + length)
        angles = positions[:, None].to(torch.float32) * self.frequencies[None, :]
        angles = torch.cat((angles, angles), dim=-1)
        turns = (angles.cos().to(x.dtype), angles.sin().to(x.dtype))
        hidden = torch.arange(past + length)[None, :] > positions[:, None]
        kept: list[torch.Tensor] = []
        for layer, keys, values in zip(self.layers, cache[::2], cache[1::2], strict=True):
            x, *pair = layer(x, turns, hidden, keys, values)
            kept += pair
        return (self.head(self.norm(x)), *kept)
