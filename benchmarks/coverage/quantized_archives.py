"""Archives as PyTorch's export for quantization writes them: rows and weights in 8 bits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks.coverage.made import write_calls

KINDS = (
    "one scale for each tensor",
    "one scale for each channel",
    "rows whose scales a run finds",
)
"""Where scales are from."""
_WITHIN = 5e-2


def write_archive(kind: str, folder: Path) -> None:
    """Write an archive and its call into a folder.

    Args:
        kind: one of `KINDS`.
    """
    import torch
    from torch.ao.quantization.fx import _decomposed  # noqa: F401 -- registers the operators

    known = torch.ops.quantized_decomposed
    rng = torch.Generator().manual_seed(0)

    def rounded(x: Any, scale: float, zero: int) -> Any:
        said = (scale, zero, -128, 127, torch.int8)
        if kind != "rows whose scales a run finds":
            return known.dequantize_per_tensor(known.quantize_per_tensor(x, *said), *said)
        found, point = known.choose_qparams(x, -128, 127, 1e-5, torch.int8)
        rows = known.quantize_per_tensor.tensor(x, found, point, -128, 127, torch.int8)
        return known.dequantize_per_tensor.tensor(rows, found, point, -128, 127, torch.int8)

    class Network(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            for name, shape in (("first", (16, 3, 3, 3)), ("second", (16, 16, 3, 3)),
                                ("last", (10, 16))):  # fmt: skip
                codes = torch.randint(-127, 128, shape, dtype=torch.int8, generator=rng)
                self.register_buffer(name, codes)
                scales = torch.rand(shape[0], generator=rng) * 0.004 + 0.001
                self.register_buffer(f"{name}_scales", scales)
                self.register_buffer(f"{name}_zeros", torch.zeros(shape[0], dtype=torch.int64))

        def weight(self, name: str) -> Any:
            codes = getattr(self, name)
            if kind == "one scale for each channel":
                scales, zeros = getattr(self, f"{name}_scales"), getattr(self, f"{name}_zeros")
                said = (scales, zeros, 0, -127, 127, torch.int8)
                return known.dequantize_per_channel(codes, *said)
            return known.dequantize_per_tensor(codes, 0.003, 0, -127, 127, torch.int8)

        def forward(self, x: Any) -> Any:
            f = torch.nn.functional
            x = rounded(x, 0.03, 0)
            x = rounded(f.relu(f.conv2d(x, self.weight("first"), padding=1)), 0.02, -128)
            y = rounded(f.relu(f.conv2d(x, self.weight("second"), padding=1)), 0.06, -128)
            x = rounded(x + y, 0.06, -128).mean((2, 3))
            return f.linear(rounded(x, 0.02, -128), self.weight("last"))

    network, x = Network().eval(), torch.randn(2, 3, 16, 16, generator=rng)
    torch.export.save(torch.export.export(network, (x,)), folder / "model.pt2")
    write_calls(folder, [{"x": x.numpy()}], [[network(x).numpy()]], within=_WITHIN)


def write_groups(folder: Path) -> None:
    """Write an archive of two products into a folder, with its call: weights of 4 bits in groups of
    32, rows in 8 bits with a scale for each."""
    import torch
    from torch.ao.quantization.fx import _decomposed  # noqa: F401 -- registers the operators

    known = torch.ops.quantized_decomposed
    rng = torch.Generator().manual_seed(0)

    def round_rows(x: Any) -> Any:
        found = known.choose_qparams_per_token_asymmetric(x, torch.int8)
        rows = known.quantize_per_token(x, *found, -128, 127, torch.int8)
        return known.dequantize_per_token(rows, *found, -128, 127, torch.int8, torch.float32)

    class Product(torch.nn.Module):
        def __init__(self, columns: int, depth: int) -> None:
            super().__init__()
            codes = torch.randint(-8, 8, (columns, depth), dtype=torch.int8, generator=rng)
            self.register_buffer("codes", codes)
            groups = (columns, depth // 32)
            self.register_buffer("scales", torch.rand(groups, generator=rng) * 0.01 + 0.001)
            self.register_buffer("zeros", torch.zeros(groups, dtype=torch.int64))

        def forward(self, x: Any) -> Any:
            said = (self.scales, self.zeros, -8, 7, torch.int8, 32, torch.float32)
            weight = known.dequantize_per_channel_group(self.codes, *said)
            return torch.nn.functional.linear(round_rows(x), weight)

    network = torch.nn.Sequential(Product(256, 128), torch.nn.ReLU(), Product(128, 256)).eval()
    x = torch.randn(2, 7, 128, generator=rng)
    torch.export.save(torch.export.export(network, (x,)), folder / "model.pt2")
    write_calls(folder, [{"input": x.numpy()}], [[network(x).numpy()]], within=_WITHIN)
