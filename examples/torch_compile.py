"""A PyTorch module, tuned where it is called: torch.compile with our backend.

python examples/torch_compile.py
"""

from __future__ import annotations

import torch


class Classifier(torch.nn.Module):
    """A small network."""

    def __init__(self) -> None:
        super().__init__()
        self.hidden = torch.nn.Linear(64, 256)
        self.norm = torch.nn.BatchNorm1d(256)
        self.out = torch.nn.Linear(256, 32)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Shares of 32 classes, for rows of 64 features."""
        return self.out(torch.relu(self.norm(self.hidden(x)))).softmax(-1)


def main(options: dict[str, object]) -> float:
    """The largest difference to PyTorch's own output."""
    torch.manual_seed(0)
    model, x = Classifier().eval(), torch.randn(16, 64)
    fast = torch.compile(model, backend="elastic_tuner", options=options)
    with torch.no_grad():
        fast(x)  # tunes for a while, and goes on with what it has found the next time
        return float((fast(x) - model(x)).abs().max())


if __name__ == "__main__":
    print("largest difference:", main({"trials": 64, "run": "runs/torch"}))
