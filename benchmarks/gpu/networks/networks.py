"""The networks by name: drawn, exported, and fed at sizes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from benchmarks.gpu.networks.decoder import Config, Decoder
from benchmarks.gpu.networks.encoder import Encoder
from benchmarks.gpu.networks.residual import ResNet18
from spaces.precision.four_bits import BLOCK, quantize

Sizes = tuple[int, ...]
Feeds = tuple[torch.Tensor, ...]
_TOKENS = range(1, 65)
_WIDTH = 128


@dataclass(frozen=True, slots=True)
class Network:
    """One network.

    Attributes:
        make: draws it in float32.
        feed: inputs in float32 and integers for a generator and sizes.
        example: sizes to export it at.
        open_axes: for each input, its open axes by number, as positions in `sizes`.
        dims: what its open dimensions are called in an archive, with the sizes to tune for.
        sizes: what it is compared at.
        precision: that it is tuned in, as `--precision`; for `int4` its weights are drawn so that 4
            bits hold them.
    """

    make: Callable[[], torch.nn.Module]
    feed: Callable[[torch.Generator, Sizes], Feeds]
    dtype: torch.dtype
    example: Sizes
    sizes: tuple[Sizes, ...]
    open_axes: tuple[Mapping[int, int], ...] = ()
    dims: Mapping[str, range] = field(default_factory=dict)
    precision: str = "as-is"

    def draw(self) -> tuple[torch.nn.Module, torch.nn.Module]:
        """The network in its own type, and one of the same weights in float32."""
        torch.manual_seed(0)
        small = self.make().eval()
        tables = dict(small.named_buffers()) if isinstance(small, Decoder) else {}
        kept = {name: table.clone() for name, table in tables.items()}
        small = small.to(self.dtype)
        for name, table in kept.items():  # positions are computed in float32
            setattr(small, name, table)
        if self.precision == "int4":
            _round_to_four_bits(small)
        wide = self.make().eval()
        wide.load_state_dict({k: v.float() for k, v in small.state_dict().items()}, strict=False)
        return small, wide

    def inputs(self, sizes: Sizes) -> Feeds:
        """Its inputs at some sizes, in its own type."""
        drawn = self.feed(torch.Generator().manual_seed(sum(sizes)), sizes)
        return tuple(x.to(self.dtype) if x.is_floating_point() else x for x in drawn)

    def export(self, network: torch.nn.Module) -> Any:
        """The exported program, its dimensions open."""
        largest = [max(values) for values in self.dims.values()]
        dims = [torch.export.Dim(f"d{n}", min=0, max=most) for n, most in enumerate(largest)]
        said = tuple({axis: dims[n] for axis, n in axes.items()} for axes in self.open_axes)
        shapes: Any = said or None
        if isinstance(network, Decoder):
            shapes = (said[0], said[1:])  # those of `*cache`
        example = self.inputs(self.example)
        return torch.export.export(network, example, dynamic_shapes=shapes)


def _round_to_four_bits(network: torch.nn.Module) -> None:
    """Give products the nearest weights that are codes of 4 bits by scales of the network's type,
    so that they are the same in 4 bits."""
    for layer in network.modules():
        if not isinstance(layer, torch.nn.Linear):
            continue
        weight = layer.weight.detach()
        codes, scales = quantize(weight.float().numpy().T)
        each = torch.from_numpy(scales).to(weight.dtype).float().repeat_interleave(BLOCK, dim=1)
        layer.weight.data = (torch.from_numpy(codes) * each).to(weight.dtype)


def _decoder(dtype: torch.dtype, *, norms_heads: bool, precision: str = "as-is") -> Network:
    config = Config(width=_WIDTH, norms_heads=norms_heads)
    shape = (1, config.shared_heads, 0, config.head_width)

    def feed(generator: torch.Generator, sizes: Sizes) -> Feeds:
        length, past = sizes
        tokens = torch.randint(0, config.vocabulary, (1, length), generator=generator)
        cached = (shape[0], shape[1], past, shape[3])
        cache = (torch.randn(cached, generator=generator) for _ in range(2 * config.layers))
        return (tokens, *cache)

    return Network(
        make=lambda: Decoder(config),
        feed=feed,
        dtype=dtype,
        example=(5, 7),
        sizes=((1, 1), (1, 7), (5, 7), (64, 64), (1, 64), (33, 0), (7, 31), (1, 63)),
        open_axes=({1: 0}, *({2: 1},) * (2 * config.layers)),
        dims={"tokens_1": _TOKENS, "cache_0_2": _TOKENS},
        precision=precision,
    )


def _encoder() -> Network:
    def feed(generator: torch.Generator, sizes: Sizes) -> Feeds:
        batch, length = sizes
        ends = torch.tensor([max(1, length - 2 * row - 1) for row in range(batch)])
        mask = (torch.arange(length)[None, :] < ends[:, None]).to(torch.int64)
        return torch.randn((batch, length, _WIDTH), generator=generator), mask

    return Network(
        make=lambda: Encoder(_WIDTH),
        feed=feed,
        dtype=torch.float16,
        example=(3, 5),
        sizes=((1, 1), (1, 7), (3, 5), (4, 64), (2, 33), (4, 1), (1, 64), (3, 31)),
        open_axes=({0: 0, 1: 1}, {0: 0, 1: 1}),
        dims={"x_0": range(1, 5), "x_1": _TOKENS},
    )


def _residual() -> Network:
    return Network(
        make=lambda: ResNet18(16, 40),
        feed=lambda generator, _sizes: (torch.randn((1, 3, 64, 64), generator=generator),),
        dtype=torch.float16,
        example=(),
        sizes=((),),
    )


NETWORKS: Mapping[str, Network] = {
    "llama f16": _decoder(torch.float16, norms_heads=False),
    "llama bf16": _decoder(torch.bfloat16, norms_heads=False),
    "qwen3 f16": _decoder(torch.float16, norms_heads=True),
    "llama int4": _decoder(torch.float16, norms_heads=False, precision="int4"),
    "qwen3 int4": _decoder(torch.bfloat16, norms_heads=True, precision="int4"),
    "bert layer f16": _encoder(),
    "resnet18 f16": _residual(),
}
